//! What is told of the relay: metrics, and the flow log.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::{EARLY, RelayProcess};
use crate::world::{BOX, CLIENT, PATIENCE, SERVER, World, abort, assert_reset, ip};

const METRICS: &str = "[metrics]\nlisten = \"10.1.0.1:9742\"\n";

/// What the relay's metrics are, by name and labels, and as text.
fn scrape(world: &World) -> (HashMap<String, f64>, String) {
    let (head, text) = fetch(world, &[]);
    assert!(head.contains("content-type: application/openmetrics-text"), "{head}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    (samples.collect(), text.clone())
}

/// Asks for them by curl; gives the answer's head, in lower case, and its body.
fn fetch(world: &World, arguments: &[&str]) -> (String, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--fail", "--include", "--max-time", "10"]);
    command.args(arguments).arg("http://10.1.0.1:9742/metrics");
    let output = world.client.apply(&mut command).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let (head, text) = said.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), text.to_owned())
}

/// Whether the format's reference parser is here; says so if not.
fn has_parser() -> bool {
    let import = "import prometheus_client.openmetrics.parser";
    let found = Command::new("python3").args(["-c", import]).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped in part: no python3-prometheus-client to parse with");
    }
    found
}

/// Moves so much to the server and back, and ends in order.
fn exchange(world: &World, bytes: usize) {
    let (mut near, mut far) = world.pair(SERVER[0]);
    let echo = thread::spawn(move || {
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        far.write_all(&all).unwrap();
    });
    near.write_all(&vec![7; bytes]).unwrap();
    near.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    near.read_to_end(&mut back).unwrap();
    assert_eq!(back.len(), bytes);
    echo.join().unwrap();
}

/// One flow that ends in order after a lot, one after a little, one reset by its client, and one
/// whose server refuses.
fn some_flows(world: &World) {
    exchange(world, 4 << 20);
    exchange(world, 10);
    let (mut near, mut far) = world.pair(SERVER[1]);
    near.write_all(b"x").unwrap();
    far.read_exact(&mut [0]).unwrap();
    abort(near);
    assert!(far.read(&mut [0]).is_err());
    assert_reset(world.connect(SocketAddr::new(ip(SERVER[0]), 9)));
}

#[test]
fn metrics_are_the_counters_and_name_no_subscriber() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, &format!("{EARLY}{METRICS}"));
    some_flows(&world);
    let _open = world.pair(SERVER[0]);
    let counts = relay.until(|counts| counts["active"] == 1);
    let (metrics, text) = scrape(&world);
    let of = |name: &str| metrics.get(&format!("midspan_relay_{name}")).copied();
    assert_eq!(of("flows_accepted_total"), Some(5.0), "{text}");
    assert_eq!(of("flows_active"), Some(1.0));
    for (how, count) in [("closed", 2.0), ("reset_by_client", 1.0), ("connect_failed", 1.0)] {
        assert_eq!(of(&format!("flows_ended_total{{how=\"{how}\"}}")), Some(count), "{text}");
    }
    let received = of("received_bytes_total{leg=\"client\"}").unwrap();
    assert_eq!(received, counts["bytes_from_client"] as f64);
    assert!(received > (4 << 20) as f64);
    // Of four ended flows all have a client leg that was measured; three servers answered.
    assert_eq!(of("leg_rtt_seconds_count{leg=\"client\"}"), Some(4.0), "{text}");
    assert_eq!(of("connect_seconds_count"), Some(3.0));
    assert_eq!(of("flow_duration_seconds_count"), Some(4.0));
    assert_eq!(of("leg_delivery_rate_bytes_per_second_count{leg=\"server\"}"), Some(3.0));
    assert_eq!(of("leg_retransmitted_ratio_count{leg=\"server\"}"), Some(3.0));
    assert_eq!(of("heartbeat_age_seconds{worker=\"0\"}").map(|age| age < 10.0), Some(true));
    assert!(of("start_time_seconds").unwrap() > 1.7e9);
    assert!(metrics["midspan_steer_verdicts_total{verdict=\"split\"}"] >= 5.0);
    for (name, least) in [("process_resident_memory_bytes", 1e6), ("process_open_fds", 10.0)] {
        assert!(metrics[name] > least, "{text}");
    }
    assert_eq!(of("config_last_reload_successful"), Some(1.0));
    for address in CLIENT {
        assert!(!text.contains(address), "{text}");
    }
    // Each family is documented, and each counter is in one.
    let docs = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/reference/metrics.md"
    ));
    let docs = docs.unwrap();
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(docs.contains(&format!("`{name}")), "docs/reference/metrics.md lacks {name}");
    }
    let all: f64 = counts.values().map(|_| 1.0).sum();
    let families = text.matches("midspan_relay_").count() as f64;
    assert!(families > all, "{text}");
    let plain = fetch(&world, &["--header", "Accept: text/plain"]);
    assert!(plain.0.contains("content-type: text/plain; version=0.0.4"), "{}", plain.0);
    assert!(plain.1.contains("# TYPE midspan_relay_flows_accepted_total counter\n"), "{}", plain.1);
    for (text, format) in [(&text, "openmetrics.parser"), (&plain.1, "parser")] {
        // Bounds are exact; a sum of what was measured may well end in nines.
        let bounds: Vec<_> =
            text.split("le=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(!bounds.is_empty(), "{text}");
        let is_exact = |bound: &&str| bound.split('.').all(|digits| digits.len() <= 10);
        assert!(bounds.iter().all(is_exact), "{bounds:?}");
        let families = text.matches("# TYPE ").count();
        assert!(parsed_families(text, format).is_none_or(|parsed| parsed == families), "{format}");
    }
}

#[test]
fn how_the_configuration_was_read_last_is_told() {
    let Some(world) = World::new() else { return };
    let relay = RelayProcess::start(&world.relay, METRICS);
    let read = |wanted: f64| {
        relay.signal(rustix::process::Signal::HUP);
        let start = Instant::now();
        loop {
            let (metrics, _) = scrape(&world);
            if metrics["midspan_relay_config_last_reload_successful"] == wanted {
                return metrics["midspan_relay_config_last_reload_success_timestamp_seconds"];
            }
            assert!(start.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(10));
        }
    };
    let (started, _) = scrape(&world);
    let started = started["midspan_relay_config_last_reload_success_timestamp_seconds"];
    relay.rewrite("nonsense\n");
    assert_eq!(read(0.0), started, "it was not taken");
    relay.rewrite(METRICS);
    assert!(read(1.0) > started);
}

/// How many families the reference parser of a format finds; none if it is not here.
fn parsed_families(text: &str, format: &str) -> Option<usize> {
    if !has_parser() {
        return None;
    }
    let script = format!(
        "import sys\nfrom prometheus_client.{format} import *\n\
         print(len(list(text_string_to_metric_families(sys.stdin.read()))))"
    );
    let mut parser = Command::new("python3");
    let parser = parser.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parser = parser.spawn().unwrap();
    parser.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = parser.wait_with_output().unwrap();
    assert!(output.status.success(), "the reference parser refuses this:\n{text}");
    Some(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap())
}

#[test]
fn metrics_are_served_to_who_asks_rightly_whatever_others_do() {
    let Some(world) = World::new() else { return };
    let _relay = RelayProcess::start(&world.relay, METRICS);
    let at: SocketAddr = "10.1.0.1:9742".parse().unwrap();
    // Some that say nothing, or nonsense, must not be in the way.
    let mut others: Vec<TcpStream> = (0..5).map(|_| world.connect(at).unwrap()).collect();
    for (number, other) in others.iter_mut().enumerate() {
        let junk: &[u8] = if number % 2 == 0 { b"\0\xff\r\n\r\n" } else { b"GET /metrics HT" };
        other.write_all(junk).unwrap();
    }
    scrape(&world);
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: relay\r\n\r\n", "200"),
        ("GET /else HTTP/1.1\r\nHost: relay\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nHost: relay\r\nContent-Length: 0\r\n\r\n", "405"),
    ] {
        let mut stream = world.connect(at).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer.ends_with(status.as_bytes()), "{}", String::from_utf8_lossy(&answer));
    }
}

/// A connection for metrics, which has asked for them once if it `asks`.
fn idle(world: &World, asks: bool) -> TcpStream {
    let mut stream = world.connect("10.1.0.1:9742".parse().unwrap()).unwrap();
    if asks {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: relay\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
    } else {
        stream.write_all(b"GET /metrics HT").unwrap();
    }
    stream
}

#[test]
fn metrics_do_not_wait_for_those_that_keep_connections() {
    let Some(world) = World::new() else { return };
    let relay = RelayProcess::start(&world.relay, METRICS);
    let alone = Instant::now();
    scrape(&world);
    let alone = alone.elapsed();
    for (count, asks) in [(8, true), (8, false), (100, true), (100, false)] {
        let before = relay.descriptors();
        let mut others: Vec<_> = (0..count).map(|_| idle(&world, asks)).collect();
        let begun = Instant::now();
        scrape(&world);
        let took = begun.elapsed();
        // The least of the times that others may take is seconds.
        assert!(took < alone + Duration::from_secs(1), "{took:?} with {count} others");
        assert!(relay.descriptors() < before + 20, "{} for {count}", relay.descriptors());
        // The one that came last has not lost its place.
        let last = others.last_mut().unwrap();
        let rest: &[u8] = if asks { b"GET /metrics HTTP/1.1\r\n" } else { b"TP/1.1\r\n" };
        last.write_all(rest).unwrap();
        last.write_all(b"Host: relay\r\nConnection: close\r\n\r\n").unwrap();
        let mut said = String::new();
        last.read_to_string(&mut said).unwrap();
        assert!(said.ends_with("# EOF\n"), "{said}");
    }
}

#[test]
fn metrics_are_not_kept_for_a_request_that_never_ends() {
    let Some(world) = World::new() else { return };
    let _relay = RelayProcess::start(&world.relay, METRICS);
    let mut stream = world.connect("10.1.0.1:9742".parse().unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    // A byte now and then does not prolong its time.
    let slow = stream.try_clone().unwrap();
    thread::spawn(move || {
        while (&slow).write_all(b"a").is_ok() {
            thread::sleep(Duration::from_millis(200));
        }
    });
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(!String::from_utf8_lossy(&said).contains("# EOF"));
}

/// The whole lines of a log: what is just being written may be there in part.
pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Those of one kind.
pub(crate) fn of_kind(lines: Vec<Value>, kind: &str) -> Vec<Value> {
    lines.into_iter().filter(|line| line["kind"] == kind).collect()
}

/// Waits until the log has so many lines of split flows.
pub(crate) fn await_lines(path: &Path, count: usize) -> Vec<Value> {
    let start = Instant::now();
    loop {
        let lines = of_kind(lines(path), "split");
        if lines.len() >= count {
            return lines;
        }
        assert!(start.elapsed() < PATIENCE, "{lines:#?}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_flow_log_has_a_line_for_each_flow_that_ended() {
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows.jsonl");
    let settings = format!("{EARLY}[flow_log]\npath = {path:?}\n");
    let mut relay = RelayProcess::start(&world.relay, &settings);
    some_flows(&world);
    let open = world.pair(SERVER[0]);
    relay.until(|counts| counts["active"] == 1);
    let flows = await_lines(&path, 4);
    let ended: Vec<_> = flows.iter().map(|flow| flow["ended"].as_str().unwrap()).collect();
    assert_eq!(ended, ["closed", "closed", "reset_by_client", "connect_failed"]);
    let bulk = &flows[0];
    for key in ["bytes_from_client", "bytes_to_server", "bytes_from_server", "bytes_to_client"] {
        assert_eq!(bulk[key], 4 << 20, "{bulk:#}");
    }
    for leg in ["client_leg", "server_leg"] {
        let leg = &bulk[leg];
        assert!(leg["rtt_us"].as_u64() > Some(0) && leg["min_rtt_us"].as_u64() > Some(0));
        assert!(leg["bytes_sent"].as_u64() >= Some(4 << 20), "{bulk:#}");
        assert!(leg["delivery_rate"].as_u64() > Some(0), "{bulk:#}");
        // The kernel counts it in ticks.
        assert!(leg["busy_us"].is_u64());
        assert!(!leg["congestion_control"].as_str().unwrap().is_empty());
    }
    assert_eq!(bulk["spliced"][0], true, "{bulk:#}");
    assert!(bulk["connect_us"].as_u64() > Some(0));
    assert!(bulk["start"].as_str() < bulk["end"].as_str());
    let refused = &flows[3];
    assert_eq!(refused["connect_us"], Value::Null);
    assert_eq!(refused["server"], format!("{}:9", SERVER[0]));
    // A subscriber has one name, which is not the address.
    assert_eq!(flows[0]["client"], flows[3]["client"]);
    assert_ne!(flows[0]["client"], flows[2]["client"]);
    let text = fs::read_to_string(&path).unwrap();
    assert!(CLIENT.iter().all(|address| !text.contains(address)), "{text}");
    // What is still open when the relay is told to end at once is said too.
    for _ in 0..2 {
        relay.signal(rustix::process::Signal::TERM);
        // Two at once would be one.
        thread::sleep(Duration::from_millis(100));
    }
    let (status, counts) = relay.wait();
    assert!(status.success());
    drop(open);
    let passed = of_kind(lines(&path), "path");
    assert!(passed.iter().all(|flow| flow["verdict"] == "split"), "{passed:#?}");
    let bulk = passed.iter().find(|flow| flow["up"]["bytes"] == 4 << 20).unwrap();
    assert_eq!((&bulk["down"]["bytes"], &bulk["ended"]), (&(4 << 20).into(), &"finished".into()));
    assert!(bulk["up"]["last_payload_us"].as_u64() > bulk["up"]["first_payload_us"].as_u64());
    // Both saw the same flow at the same time, within what the two clocks and a busy machine make.
    assert_eq!(bulk["client"], flows[0]["client"]);
    assert_eq!(bulk["start"].as_str().unwrap()[..16], flows[0]["start"].as_str().unwrap()[..16]);
    let flows = of_kind(lines(&path), "split");
    assert_eq!(flows.len() as u64, counts.unwrap()["accepted"]);
    assert_eq!(flows[4]["ended"], "stopped");
}

#[test]
fn a_hang_up_opens_the_flow_log_anew() {
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (path, old) = (directory.path().join("flows"), directory.path().join("flows.1"));
    let mut relay = RelayProcess::start(&world.relay, &format!("[flow_log]\npath = {path:?}\n"));
    exchange(&world, 10);
    await_lines(&path, 1);
    fs::rename(&path, &old).unwrap();
    relay.signal(rustix::process::Signal::HUP);
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < PATIENCE, "it is not opened anew");
        thread::sleep(Duration::from_millis(5));
    }
    exchange(&world, 10);
    assert_eq!(await_lines(&path, 1).len(), 1);
    assert_eq!((of_kind(lines(&old), "split").len(), relay.counts()["accepted"]), (1, 2));
}

#[test]
fn addresses_are_shown_to_who_wants_them_and_forwarded_flows_too() {
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows.jsonl");
    let (listener, address) = world.listen(SERVER[0]);
    let settings = format!(
        "interception = \"none\"\n[log]\naddresses = \"plain\"\n[flow_log]\npath = {path:?}\n\
         [[forward]]\nlisten = \"0.0.0.0:8080\"\nto = [\"{}:9\", \"{address}\"]\n",
        SERVER[0]
    );
    let _relay = RelayProcess::start(&world.relay, &settings);
    let near = world.connect(SocketAddr::new(ip(BOX[0]), 8080)).unwrap();
    let client = near.local_addr().unwrap();
    drop((listener.accept().unwrap(), near));
    let flow = &await_lines(&path, 1)[0];
    assert_eq!(flow["client"], client.to_string());
    // The one that took it, not the one that refused.
    assert_eq!(flow["server"], address.to_string());
}

#[test]
fn what_cannot_be_told_is_said_at_the_start() {
    let Some(world) = World::new() else { return };
    let start = |settings: &str| {
        let config = format!("{}{settings}", crate::process::CLIENTS).parse().unwrap();
        let relay = world.relay.run(|| midspan_relay::Relay::start(config).map(drop)).unwrap();
        relay.unwrap_err().to_string()
    };
    let said = start("[flow_log]\npath = \"/nonexistent/flows\"\n");
    assert!(said.contains("/nonexistent/flows"), "{said}");
    let _taken = world.relay.run(|| std::net::TcpListener::bind("10.1.0.1:9742")).unwrap();
    let said = start(METRICS);
    assert!(said.contains("10.1.0.1:9742"), "{said}");
}
