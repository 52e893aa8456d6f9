//! Programs that know nothing of Midspan, across a lossy path with the relay in the middle.

mod common;

use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::Network;
use midspan_lab::topology::SERVER;
use midspan_sys::process::die_with_parent;
use tiny_http::{Method, Response, Server};

#[test]
fn iperf3_runs_both_ways_and_is_split() {
    if !common::can_run() || !common::has("iperf3") {
        return;
    }
    let network = Network::with_relay();
    for (port, reverse) in [(5201, false), (5202, true)] {
        let number = port.to_string();
        let mut server = Command::new("iperf3");
        server.args(["--server", "--one-off", "--port", &number]);
        let server = network.topology.server.apply(&mut server).stdout(Stdio::null());
        let mut server = die_with_parent(server).spawn().unwrap();
        wait_for_listener(&network, port);
        let mut client = Command::new("iperf3");
        let address = SERVER.v4.to_string();
        client.args(["--client", &address, "--port", &number, "--json", "--time", "2"]);
        client.args(["--parallel", "2"]);
        if reverse {
            client.arg("--reverse");
        }
        let client = network.topology.ue.apply(&mut client).stdout(Stdio::piped());
        let mut client = die_with_parent(client).spawn().unwrap();
        let mut split = false;
        while client.try_wait().unwrap().is_none() {
            split |= network.is_split(port);
            thread::sleep(Duration::from_millis(20));
        }
        let output = client.wait_with_output().unwrap();
        assert!(server.wait().unwrap().success());
        assert!(split, "the relay was not in the path");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report.get("error").is_none(), "{report}");
        let received = &report["end"]["sum_received"]["bits_per_second"];
        assert!(received.as_f64().unwrap() > 1e6, "{received}");
    }
}

#[test]
fn curl_gets_and_puts_every_byte_over_both_families() {
    if !common::can_run() || !common::has("curl") {
        return;
    }
    let network = Network::with_relay();
    let directory = tempfile::tempdir().unwrap();
    let body = noise(3_000_001);
    let file = directory.path().join("body");
    fs::File::create(&file).unwrap().write_all(&body).unwrap();
    for address in [IpAddr::V4(SERVER.v4), IpAddr::V6(SERVER.v6)] {
        let address = SocketAddr::new(address, 8080);
        let listener = network.topology.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
        let server = Server::from_listener(listener, None).unwrap();
        let url = format!("http://{address}/body");
        thread::scope(|scope| {
            let serving = scope.spawn(|| serve_two(&server, &body));
            let got = directory.path().join("got");
            curl(&network, &["--output", got.to_str().unwrap(), &url]);
            assert!(fs::read(&got).unwrap() == body, "the download differs");
            curl(&network, &["--upload-file", file.to_str().unwrap(), &url]);
            assert!(serving.join().unwrap() == body, "the upload differs");
        });
    }
}

/// Answers one GET with `body` and returns the body of one PUT.
fn serve_two(server: &Server, body: &[u8]) -> Vec<u8> {
    loop {
        let mut request = server.recv().unwrap();
        match request.method() {
            Method::Get => request.respond(Response::from_data(body)).unwrap(),
            _ => {
                let mut put = Vec::new();
                request.as_reader().read_to_end(&mut put).unwrap();
                request.respond(Response::empty(204)).unwrap();
                return put;
            }
        }
    }
}

fn curl(network: &Network, arguments: &[&str]) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--globoff", "--max-time", "60"]);
    let output = network.topology.ue.apply(curl.args(arguments)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn wait_for_listener(network: &Network, port: u16) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let needle = format!(":{port:04X}");
    let is_there = || {
        ["tcp", "tcp6"].iter().any(|table| {
            let table = fs::read_to_string(format!("/proc/thread-self/net/{table}"));
            table.is_ok_and(|table| table.lines().any(|line| is_listener(line, &needle)))
        })
    };
    while !network.topology.server.run(is_there).unwrap() {
        assert!(Instant::now() < deadline, "no program listens on port {port}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a line of the kernel's table is a socket in LISTEN on that port.
fn is_listener(line: &str, port: &str) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    fields.get(1).is_some_and(|local| local.ends_with(port)) && fields.get(3) == Some(&"0A")
}

/// Bytes without a pattern that a gap or a repetition could hide in.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
