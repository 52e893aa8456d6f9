//! Ways in for radio data, over what they really come by: files, FIFOs, WebSockets, HTTP.

mod common;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{Network, count, report, until, until_doing};
use midspan_assist::agent::{Agent, Memory};
use midspan_assist::config::DaemonConfig;
use midspan_assist::control::{Answer, Request};
use midspan_assist::daemon::Daemon;
use midspan_assist_proto::{Causal, Oracle};
use serde_json::Value;

/// A daemon with one source, told of by these lines of its settings.
fn config(network: &Network, source: &str) -> DaemonConfig {
    network.daemon_config();
    let text = fs::read_to_string(network.path("daemon.toml")).unwrap();
    let head = text.split("[[source]]").next().unwrap();
    network.put("daemon.toml", &format!("{head}[[source]]\nname = \"cell\"\n{source}\n"));
    DaemonConfig::load(&network.path("daemon.toml")).unwrap()
}

fn daemon(network: &Network, source: &str) -> Daemon<Causal> {
    Daemon::start(config(network, source)).unwrap()
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn ue<'a>(state: &'a Value, address: &str) -> Option<&'a Value> {
    state["ues"].as_array()?.iter().find(|ue| ue["ue"] == address)
}

fn bandwidth(daemon: &Daemon<Causal>, address: &str) -> Option<u64> {
    ue(&common::state(daemon), address)?["bandwidth_bps"].as_u64()
}

#[test]
fn a_file_is_followed_past_truncation_and_replacement() {
    let network = Network::new();
    let path = network.path("feed.csv");
    let heading = "ue,window_ms,downlink.capacity_bps\n";
    // What was there before the daemon is of the past, but for the heading.
    append(&path, &format!("{heading}10.45.0.9,50,1000000\n"));
    let daemon = daemon(&network, &format!("kind = \"feed\"\nfile = {path:?}"));
    let tell = |bits: u64| append(&path, &format!("10.45.0.2,50,{bits}\n"));
    let told =
        |bits: u64| move |daemon: &Daemon<Causal>| bandwidth(daemon, "10.45.0.2") == Some(bits);
    until_doing("a line", || tell(8_000_000), || told(8_000_000)(&daemon));
    assert!(ue(&common::state(&daemon), "10.45.0.9").is_none());
    fs::write(&path, heading).unwrap();
    until_doing("a line after truncation", || tell(7_000_000), || told(7_000_000)(&daemon));
    fs::rename(&path, network.path("old.csv")).unwrap();
    append(&path, heading);
    until_doing("a line of the new file", || tell(6_000_000), || told(6_000_000)(&daemon));
    assert_eq!(count(&common::state(&daemon), "/sources/0/unreadable"), 0);
}

#[test]
fn a_fifo_has_writers_that_come_and_go() {
    let network = Network::new();
    let path = network.path("feed");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let daemon = daemon(&network, &format!("kind = \"feed\"\nfile = {path:?}"));
    for bits in [8_000_000, 5_000_000] {
        let line = format!("{{\"ue\":\"10.45.0.2\",\"downlink\":{{\"capacity_bps\":{bits}}}}}\n");
        let tell = || {
            OpenOptions::new().write(true).open(&path).unwrap().write_all(line.as_bytes()).unwrap()
        };
        until_doing("a line", tell, || bandwidth(&daemon, "10.45.0.2") == Some(bits));
    }
}

/// Base stations know no addresses: a UE without one gets no feedback; file and command say which.
#[test]
fn an_rnti_is_a_ue_once_somebody_says_which() {
    let network = Network::new();
    let (path, map) = (network.path("enb.json"), network.path("rnti.csv"));
    append(&path, "");
    fs::write(&map, "# nobody yet\n").unwrap();
    let source = format!(
        "kind = \"srsenb\"\nfile = {path:?}\nrnti = {map:?}\ncell = {{ technology = \"lte\", blocks = 50 }}"
    );
    let daemon = daemon(&network, &source);
    let mut time = 1_000.0;
    let mut tell = || {
        time += 0.1;
        let ue = |rnti: u32| {
            format!(
                r#"{{"ue_container": {{"ue_rnti": {rnti}, "dl_cqi": 15.0, "dl_bitrate": 9000000.0, "dl_bler": 0.0,
                "bearer_list": [{{"bearer_container": {{"dl_buffered_bytes": 9000}}}}]}}}}"#
            )
        };
        append(
            &path,
            &format!(
                "{{\n \"type\": \"metrics\", \"timestamp\": {time:.1},\n \"cell_list\": [{{\"cell_container\": \
                 {{\"ue_list\": [{},{}]}}}}]\n}}\n",
                ue(70),
                ue(71)
            ),
        );
    };
    let unmapped = || count(&common::state(&daemon), "/sources/0/unmapped");
    until_doing("unmapped readings", &mut tell, || unmapped() > 2);
    assert_eq!(common::state(&daemon)["ues"].as_array().unwrap().len(), 0);
    fs::write(&map, "70,10.45.0.2\n").unwrap();
    let served = |address: &'static str| {
        let daemon = &daemon;
        // Bytes stand still in this report, which says that nothing was carried of what waits.
        move || ue(&common::state(daemon), address).is_some()
    };
    until_doing("the UE of the file", &mut tell, served("10.45.0.2"));
    let map_to = |rnti, ue: &str| {
        daemon.ask(Request::Map { source: "cell".into(), rnti, ue: ue.parse().unwrap() })
    };
    assert!(matches!(map_to(71, "10.45.0.3"), Some(Answer::Done { done: true })));
    until_doing("the UE of the command", &mut tell, served("10.45.0.3"));
    // The RNTI is given to another: what was known of the first holds no longer.
    assert!(matches!(map_to(71, "10.45.0.4"), Some(Answer::Done { done: true })));
    until_doing("the other UE", &mut tell, served("10.45.0.4"));
    assert!(ue(&common::state(&daemon), "10.45.0.3").is_none());
    let unknown = daemon.ask(Request::Unmap { source: "tower".into(), rnti: 71 });
    let Some(Answer::Refused { error }) = unknown else { panic!("{unknown:?}") };
    assert_eq!(error, "no source `tower`");
}

#[test]
fn a_gnb_is_subscribed_to_over_its_websocket_and_again_when_it_is_lost() {
    let network = Network::new();
    fs::write(network.path("rnti.csv"), "0x4601,10.45.0.2\n").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = format!(
        "kind = \"srsgnb\"\nurl = \"ws://{}\"\nrnti = {:?}",
        listener.local_addr().unwrap(),
        network.path("rnti.csv"),
    );
    let gnb = thread::spawn(move || {
        // Two connections: the first is lost, the second ends with the daemon.
        for lost_after in [5, usize::MAX] {
            let (stream, _) = listener.accept().unwrap();
            let mut socket = tungstenite::accept(stream).unwrap();
            let asked = socket.read().unwrap();
            assert_eq!(asked.to_text().unwrap(), r#"{"cmd":"metrics_subscribe"}"#);
            socket.send(asked).unwrap();
            for index in 0..lost_after {
                let text = format!(
                    r#"{{"timestamp":{}.5,"cells":[{{"ue_list":[{{"rnti":"0x4601","dl_brate":17000000.0,"dl_bs":44000}}]}}]}}"#,
                    1_000 * (1 + usize::from(lost_after > 5)) + index
                );
                if socket.send(text.into()).is_err() {
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let daemon = daemon(&network, &source);
    until("feedback", || bandwidth(&daemon, "10.45.0.2") == Some(17_000_000));
    until("a lost connection", || count(&common::state(&daemon), "/sources/0/down") > 0);
    let before = count(&common::state(&daemon), "/sources/0/readings");
    until("readings again", || count(&common::state(&daemon), "/sources/0/readings") > before + 5);
    assert_eq!(count(&common::state(&daemon), "/sources/0/unreadable"), 0);
    drop(daemon);
    gnb.join().unwrap();
}

#[test]
fn radio_network_information_is_polled() {
    let network = Network::new();
    let server = tiny_http::Server::http("127.0.0.1:0").unwrap();
    let source = format!(
        "kind = \"rni\"\nurl = \"http://{}/rni/v2\"\nperiod = \"20 ms\"",
        server.server_addr().to_ip().unwrap()
    );
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let api = thread::spawn(move || {
        let mut seconds = 0;
        while !stopped.load(Ordering::Relaxed) {
            let Ok(Some(request)) = server.recv_timeout(Duration::from_millis(50)) else {
                continue;
            };
            assert_eq!(request.url(), "/rni/v2/queries/layer2_meas");
            seconds += 1;
            let body = format!(
                r#"{{"timeStamp":{{"seconds":{seconds},"nanoSeconds":0}},"cellUEInfo":[{{"associateId":
                [{{"type":"UE_IPV4_ADDRESS","value":"10.45.0.2"}}],"dl_nongbr_throughput_ue":24000}}]}}"#
            );
            // Now and then it is out of order.
            let status = if seconds % 10 == 0 { 500 } else { 200 };
            let response = tiny_http::Response::from_string(body).with_status_code(status);
            let _ = request.respond(response);
        }
    });
    let daemon = daemon(&network, &source);
    until("feedback", || bandwidth(&daemon, "10.45.0.2") == Some(24_000_000));
    until("an answer that is none", || count(&common::state(&daemon), "/sources/0/down") > 0);
    let before = count(&common::state(&daemon), "/sources/0/readings");
    until("readings again", || count(&common::state(&daemon), "/sources/0/readings") > before + 5);
    drop(daemon);
    stop.store(true, Ordering::Relaxed);
    api.join().unwrap();
}

#[test]
fn a_source_that_lies_or_stalls_is_cut_off_and_not_believed() {
    let network = Network::new();
    let (daemon, cell) = network.daemon();
    let (_agent, memory) = network.agent(&[daemon.address()], &[common::ue(2)]);
    let known = || common::bandwidth(&memory, common::ue(2));
    until_doing(
        "feedback",
        || report(&cell, common::ue(2), 20_000_000),
        || known() == Some(20_000_000),
    );
    let verdict = || common::state(&daemon)["sources"][0]["verdict"].as_str().unwrap().to_owned();
    // Ten times what the network can have, and back, again and again.
    let mut turn = 0;
    let lie = || {
        turn += 1;
        report(&cell, common::ue(2), if turn % 2 == 0 { 90_000_000_000 } else { 1_000_000 });
    };
    until_doing("the cut", lie, || verdict() == "cut_off");
    assert!(known().unwrap() <= 10_000_000_000);
    let state = common::state(&daemon);
    assert!(count(&state, "/counts/clipped_jump") + count(&state, "/counts/clipped_ceiling") >= 10);
    assert_eq!(count(&state, "/sources/0/cut_off"), 1);
    // What it says now has no effect.
    let before = count(&state, "/counts/sent");
    until_doing(
        "ignored readings",
        || report(&cell, common::ue(2), 20_000_000),
        || count(&common::state(&daemon), "/sources/0/ignored") > 20,
    );
    assert_eq!(count(&common::state(&daemon), "/counts/sent"), before);
    assert!(
        ue(&common::state(&daemon), "10.45.0.2").is_none_or(|ue| ue["bandwidth_bps"].is_null())
    );
    until("a timeout", || !common::is_fresh(&memory, common::ue(2)));
}

#[test]
fn a_stalled_source_is_said_to_be_and_heard_again() {
    let network = Network::new();
    let (daemon, cell) = network.daemon();
    let verdict = || common::state(&daemon)["sources"][0]["verdict"].as_str().unwrap().to_owned();
    report(&cell, common::ue(2), 20_000_000);
    until("a stall", || verdict() == "stalled");
    until_doing("a word", || report(&cell, common::ue(2), 20_000_000), || verdict() == "believed");
    until("the count", || count(&common::state(&daemon), "/sources/0/stalled") >= 1);
}

#[test]
fn an_oracle_tells_what_comes_and_only_of_recordings() {
    let network = Network::new();
    // 12 Mbit/s.
    fs::write(network.path("link.trace"), "1\n").unwrap();
    let source = format!(
        "kind = \"trace\"\nfile = {:?}\nue = \"10.45.0.2\"\nperiod = \"50 ms\"",
        network.path("link.trace")
    );
    let mut settings = config(&network, &source);
    settings.basis = midspan_assist_proto::BasisKind::Oracle;
    let daemon: Daemon<Oracle> = Daemon::start(settings).unwrap();
    let known = |memory: &Memory| common::bandwidth(memory, common::ue(2));
    // An agent that wants the past takes nothing of it.
    let (causal, nothing) = network.agent(&[daemon.address()], &[common::ue(2)]);
    let mut oracle = network.agent_config(&[daemon.address()], &[common::ue(2)]);
    oracle.basis = midspan_assist_proto::BasisKind::Oracle;
    let memory = Memory::default();
    let _oracle = Agent::start(oracle, Box::new(memory.clone())).unwrap();
    until("feedback", || known(&memory) == Some(12_000_000));
    let fault = || causal.status().daemons[0].last_fault.clone().unwrap_or_default();
    until("a refusal", || fault().contains("its feedback is oracle"));
    assert_eq!(known(&nothing), None);
    drop(daemon);
    // And no base station is one.
    let mut settings = config(&network, "kind = \"srsgnb\"\nurl = \"ws://127.0.0.1:1\"");
    settings.basis = midspan_assist_proto::BasisKind::Oracle;
    let refusal = Daemon::<Oracle>::start(settings).unwrap_err().to_string();
    assert!(refusal.contains("no base station knows what comes"), "{refusal}");
}
