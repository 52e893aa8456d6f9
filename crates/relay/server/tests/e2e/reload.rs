//! Configuration that changes while the relay runs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use midspan_observe::admin::{Answer, Flow, Order, Request};

use crate::admin::{Admin, start};
use crate::process::{EARLY, RelayProcess};
use crate::world::{BOX, SERVER, World, ip};

fn exchange((near, far): &mut (TcpStream, TcpStream)) {
    near.write_all(b"ping").unwrap();
    far.read_exact(&mut [0; 4]).unwrap();
}

fn reload(admin: &mut Admin) -> Result<String, String> {
    match admin.ask(&Request::Reload) {
        Answer::Done(said) => Ok(said),
        Answer::Error(said) => Err(said),
        other => panic!("{other:?}"),
    }
}

/// The oldest first.
fn flows(admin: &mut Admin) -> Vec<Flow> {
    match admin.ask(&Request::Flows { order: Order::Age, most: 10 }) {
        Answer::Flows(flows) => flows.flows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn new_flows_have_what_the_file_says_now_and_old_ones_go_on() {
    let Some(world) = World::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut relay, mut admin) = start(&world, folder.path(), "[limits]\nflows_per_client = 1\n");
    let settings =
        |more: &str| format!("{more}\n[admin]\nsocket = {:?}\n", folder.path().join("relay.sock"));
    let mut old = world.pair(SERVER[0]);
    relay.until(|counts| counts["accepted"] == 1);
    // The client is full, and passes.
    drop(world.pair(SERVER[0]));
    assert_eq!(relay.counts()["accepted"], 1);
    let legs = "[client_leg]\ncongestion_control = \"reno\"\n\
                [server_leg]\ncongestion_control = \"reno\"\n[limits]\nflows_per_client = 3";
    relay.rewrite(&settings(legs));
    let said = reload(&mut admin).unwrap();
    for key in ["client_leg.congestion_control", "limits.flows_per_client"] {
        assert!(said.contains(key), "{said}");
    }
    // Workers take it up when they wake, at once but not before the answer.
    let accepted = |relay: &mut RelayProcess| relay.counts()["accepted"];
    let mut new = Vec::new();
    while accepted(&mut relay) == 1 {
        assert!(new.len() < 1000, "the client is still full");
        new.push(world.pair(SERVER[0]));
    }
    let algorithms: Vec<_> = flows(&mut admin)
        .iter()
        .map(|flow| {
            let name = |leg: &Option<midspan_observe::LegStats>| {
                leg.unwrap().congestion_control.as_str().to_owned()
            };
            (name(&flow.client_leg), name(&flow.server_leg))
        })
        .collect();
    assert_ne!(algorithms[0].0, "reno");
    assert_eq!(algorithms[1], ("reno".to_owned(), "reno".to_owned()));
    // A policy, and what is open is not touched by it.
    let passes = format!("[policy]\npass_servers = [\"{}/32\"]\n{legs}", SERVER[0]);
    relay.rewrite(&settings(&passes));
    assert_eq!(reload(&mut admin).unwrap(), "changed policy.pass_servers");
    let before = relay.counts();
    new.push(world.pair(SERVER[0]));
    let counts = relay.counts();
    assert_eq!(counts["accepted"], before["accepted"]);
    assert_eq!(counts["pass_server"], before["pass_server"] + 1);
    relay.rewrite(&settings(legs));
    reload(&mut admin).unwrap();
    drop(new);
    relay.until(|counts| counts["active"] == 1);
    let mut again = world.pair(SERVER[0]);
    relay.until(|counts| counts["active"] == 2);
    exchange(&mut again);
    exchange(&mut old);
    assert_eq!(reload(&mut admin).unwrap(), "nothing has changed");
}

#[test]
fn what_is_wrong_or_cannot_change_changes_nothing() {
    let Some(world) = World::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut relay, mut admin) = start(&world, folder.path(), "");
    let socket = format!("[admin]\nsocket = {:?}\n", folder.path().join("relay.sock"));
    let passes = format!("[policy]\npass_servers = [\"{}/32\"]\n", SERVER[0]);
    for (settings, words) in [
        (format!("wrokers = 1\n{passes}{socket}"), ["relay.toml:3", "wrokers"]),
        (format!("workers = 7\n{passes}{socket}"), ["`workers`", "--replace"]),
        (passes.clone(), ["`admin.socket`", "--replace"]),
        (
            format!("{passes}[server_leg]\ncongestion_control = \"none\"\n{socket}"),
            ["server_leg", "none"],
        ),
    ] {
        relay.rewrite(&settings);
        let said = reload(&mut admin).unwrap_err();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
    let mut pair = world.pair(SERVER[0]);
    exchange(&mut pair);
    let counts = relay.counts();
    assert_eq!((counts["accepted"], counts["pass_server"]), (1, 0));
    // By signal as well.
    relay.rewrite(&format!("{passes}{socket}"));
    relay.signal(rustix::process::Signal::HUP);
    relay.until(|counts| {
        drop(world.pair(SERVER[0]));
        counts["pass_server"] > 0
    });
}

/// A key that is gone from the file means the default again, and not what was before.
#[test]
fn a_handshake_that_is_no_longer_named_is_another() {
    let Some(world) = World::new() else { return };
    if !crate::steer::is_possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (relay, mut admin) = start(&world, folder.path(), EARLY);
    relay.rewrite(&format!("[admin]\nsocket = {:?}\n", folder.path().join("relay.sock")));
    assert!(reload(&mut admin).unwrap_err().starts_with("`handshake`"));
}

#[test]
fn a_forward_goes_to_other_servers_from_now_on() {
    let Some(world) = World::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (world.listen(SERVER[0]), world.listen(SERVER[0]));
    let forward = |to: SocketAddr| {
        format!("interception = \"none\"\n[[forward]]\nlisten = \"0.0.0.0:8080\"\nto = \"{to}\"\n")
    };
    let (mut relay, mut admin) = start(&world, folder.path(), &forward(first.1));
    let connect = || world.connect(SocketAddr::new(ip(BOX[0]), 8080)).unwrap();
    let mut old = (connect(), first.0.accept().unwrap().0);
    exchange(&mut old);
    let socket = format!("[admin]\nsocket = {:?}\n", folder.path().join("relay.sock"));
    relay.rewrite(&format!("{}{socket}", forward(second.1)));
    assert_eq!(reload(&mut admin).unwrap(), "changed forward");
    // The workers know a moment later.
    second.0.set_nonblocking(true).unwrap();
    let mut tried = 0;
    let far = loop {
        let _near = connect();
        tried += 1;
        relay.until(|counts| counts["accepted"] == 1 + tried);
        std::thread::sleep(std::time::Duration::from_millis(20));
        match second.0.accept() {
            Ok((far, _)) => break far,
            Err(_) => assert!(tried < 100, "it still goes to the first"),
        }
    };
    drop(far);
    exchange(&mut old);
}
