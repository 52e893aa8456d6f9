//! The admin socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use midspan_observe::admin::{Answer, Flows, Order, Request, Status};
use midspan_observe::{ClientName, LegStats};
use serde_json::Value;

use crate::process::RelayProcess;
use crate::world::{CLIENT, PATIENCE, SERVER, World, ip};

/// A connection to the socket.
pub(crate) struct Admin(BufReader<UnixStream>);

impl Admin {
    pub(crate) fn open(socket: &Path) -> Admin {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Admin(BufReader::new(stream))
    }

    fn say(&mut self, line: &[u8]) -> Value {
        self.0.get_mut().write_all(line).unwrap();
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Answer {
        let mut line = serde_json::to_vec(request).unwrap();
        line.push(b'\n');
        serde_json::from_value(self.say(&line)).unwrap()
    }

    fn status(&mut self) -> Status {
        match self.ask(&Request::Status) {
            Answer::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    fn flows(&mut self, order: Order, most: usize) -> Flows {
        match self.ask(&Request::Flows { order, most }) {
            Answer::Flows(flows) => flows,
            other => panic!("{other:?}"),
        }
    }
}

/// A relay with an admin socket.
pub(crate) fn start(world: &World, folder: &Path, settings: &str) -> (RelayProcess, Admin) {
    let socket = folder.join("relay.sock");
    let settings = format!("{settings}\n[admin]\nsocket = {socket:?}\n");
    let relay = RelayProcess::start(&world.relay, &settings);
    let admin = Admin::open(&socket);
    (relay, admin)
}

#[test]
fn a_relay_says_how_it_is_and_what_it_counted() {
    let Some(world) = World::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut relay, mut admin) = start(&world, folder.path(), "workers = 2");
    let _open = world.pair(SERVER[0]);
    // Both ends are connected before the worker has taken it.
    relay.until(|counts| counts["active"] == 1);
    let status = admin.status();
    assert_eq!((status.phase.as_str(), status.steered_by.as_str()), ("running", "BPF"));
    assert_eq!((status.pid, status.flows), (relay.pid(), 1));
    assert_eq!(status.heartbeat_age_s.len(), 2);
    let Answer::Counters(counters) = admin.ask(&Request::Counters) else { panic!() };
    let counts = relay.counts();
    assert_eq!(counters.counters["accepted"], counts["accepted"]);
    assert_eq!(counters.verdicts.unwrap()["split"], counts["split"]);
}

#[test]
fn open_flows_are_listed_with_both_legs_and_by_what_moves() {
    let Some(world) = World::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_relay, mut admin) = start(&world, folder.path(), "workers = 2");
    let mut pairs: Vec<_> = (0..40).map(|_| world.pair(SERVER[0])).collect();
    let move_some = |pair: &mut (TcpStream, TcpStream), bytes: usize| {
        pair.0.write_all(&vec![1; bytes]).unwrap();
        pair.1.read_exact(&mut vec![0; bytes]).unwrap();
    };
    for (number, pair) in pairs.iter_mut().enumerate() {
        move_some(pair, 1000 + number);
    }
    let flows = admin.flows(Order::Bytes, 3);
    assert_eq!(flows.open, 40);
    let bytes: Vec<_> = flows.flows.iter().map(|flow| flow.bytes_up).collect();
    assert_eq!(bytes, [1039, 1038, 1037]);
    for flow in &flows.flows {
        assert!(matches!(flow.client, ClientName::Pseudonym(_)) && flow.connected);
        assert_eq!((flow.server.ip(), flow.bytes_down, flow.buffered), (ip(SERVER[0]), 0, 0));
        let (client, server) = (flow.client_leg.unwrap(), flow.server_leg.unwrap());
        assert_eq!((client.bytes_received, server.bytes_sent), (flow.bytes_up, flow.bytes_up));
        assert!(server.rtt_us > 0 && !server.congestion_control.as_str().is_empty());
    }
    // By rate the one that moved since this connection last asked comes first, whatever it moved before.
    move_some(&mut pairs[5], 100);
    let flows = admin.flows(Order::Rate, 2).flows;
    assert_eq!(flows[0].bytes_up, 1105);
    assert!(flows[0].rate_up > 0.0 && flows[1].rate_up == 0.0, "{flows:#?}");
    // All at once, from all workers.
    let all = admin.flows(Order::Age, 1000).flows;
    assert_eq!(all.len(), 40);
    assert!(all.iter().any(|flow| flow.worker == 0) && all.iter().any(|flow| flow.worker == 1));
    assert!(all.windows(2).all(|pair| pair[0].age_s >= pair[1].age_s));
    let legs: Option<Vec<LegStats>> = all.iter().map(|flow| flow.client_leg).collect();
    assert!(legs.is_some());
    let text = serde_json::to_string(&all).unwrap();
    assert!(!text.contains(CLIENT[0]), "{text}");
}

#[test]
fn what_is_no_request_is_refused_and_others_are_still_answered() {
    let Some(world) = World::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_relay, mut admin) = start(&world, folder.path(), "");
    for wrong in ["", "status", "{\"ask\":\"dance\"}", "{\"ask\":\"status\"} and", "\u{0}"] {
        let answer = admin.say(format!("{wrong}\n").as_bytes());
        assert!(answer["error"].as_str().unwrap().starts_with("not understood"), "{answer}");
    }
    // This process has nobody who could change how much is logged.
    let answer = admin.say(b"{\"ask\":\"log\",\"level\":\"debug\"}\n");
    assert!(answer["error"].as_str().unwrap().contains("cannot be changed"), "{answer}");
    // One that never ends its line is told so, and goes.
    let answer = admin.say(&[b'x'; 4096]);
    assert!(answer["error"].as_str().unwrap().contains("4096"), "{answer}");
    assert_eq!(admin.0.read(&mut [0]).unwrap(), 0);
    Admin::open(&folder.path().join("relay.sock")).status();
}

#[test]
fn only_its_own_user_may_ask() {
    let Some(world) = World::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_relay, _admin) = start(&world, folder.path(), "");
    // Reachable for everybody, so that the relay itself has to refuse.
    let socket = folder.path().join("relay.sock");
    for path in [folder.path(), &socket] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(path, mode).unwrap();
    }
    let script = "import socket, sys, os\nos.setgid(65534); os.setuid(65534)\n\
                  s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
                  s.sendall(b'{\"ask\":\"status\"}\\n'); print(s.makefile().readline())";
    let output = Command::new("python3").args(["-c", script]).arg(&socket).output();
    let Ok(output) = output else {
        eprintln!("skipped: no python3");
        return;
    };
    let said = String::from_utf8(output.stdout).unwrap();
    if said.is_empty() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    assert!(said.contains("may not ask"), "{said}");
}

#[test]
fn a_relay_can_be_told_to_drain() {
    let Some(world) = World::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (relay, mut admin) = start(&world, folder.path(), "");
    let (mut near, mut far) = world.pair(SERVER[0]);
    assert!(matches!(admin.ask(&Request::Drain), Answer::Done(_)));
    assert_eq!(admin.status().phase, "draining");
    near.write_all(b"still").unwrap();
    far.read_exact(&mut [0; 5]).unwrap();
    drop((near, far));
    let (status, counts) = relay.wait();
    assert!(status.success());
    assert_eq!(counts.unwrap()["closed"], 1);
    assert!(!folder.path().join("relay.sock").exists());
}
