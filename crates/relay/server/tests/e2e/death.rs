//! How a relay ends, and what is left of it.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use midspan_sys::netns::Netns;
use midspan_sys::tun::Unit;

use rustix::process::Signal;

use crate::peer::{ACK, SYN, Segment, Wire, host};
use crate::process::{NFTABLES, RelayProcess};
use crate::steer::start;
use crate::world::{PATIENCE, SERVER, World};

fn says(netns: &Netns, program: &str, arguments: &[&str]) -> String {
    let out = netns.apply(Command::new(program).args(arguments)).output().unwrap();
    String::from_utf8(out.stdout).unwrap()
}

/// nftables tables, and routing rules for the relay's mark of both families.
fn left_behind(netns: &Netns) -> (usize, usize) {
    let lines = |program: &str, arguments: &[&str], word: &str| {
        says(netns, program, arguments).lines().filter(|line| line.contains(word)).count()
    };
    let rules = lines("ip", &["rule"], "0x4d53") + lines("ip", &["-6", "rule"], "0x4d53");
    (lines("nft", &["list", "tables"], "midspan"), rules)
}

#[test]
fn a_killed_relay_resets_both_ends_and_leaves_no_rule_twice() {
    let Some(world) = World::new() else { return };
    for round in 0..3 {
        let mut relay = RelayProcess::start(&world.relay, NFTABLES);
        assert_eq!(left_behind(&world.relay), (1, 2), "round {round}");
        let mut pairs: Vec<_> = SERVER.map(|server| world.pair(server)).into();
        for (near, far) in &mut pairs {
            near.write_all(b"half of it").unwrap();
            far.read_exact(&mut [0; 10]).unwrap();
        }
        assert_eq!(relay.counts()["accepted"], 2);
        relay.signal(Signal::KILL);
        for (near, far) in &mut pairs {
            for end in [near, far] {
                let error = end.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            }
        }
        relay.wait();
        let gone = std::time::Instant::now();
        while left_behind(&world.relay).0 > 0 {
            assert!(gone.elapsed().as_secs() < 5, "the table outlives the relay");
        }
        // New connections pass unsplit.
        let (mut near, mut far) = world.pair(SERVER[0]);
        near.write_all(b"as if nothing had been").unwrap();
        far.read_exact(&mut [0; 22]).unwrap();
    }
}

#[test]
fn a_stopped_relay_drains_and_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let relay = RelayProcess::start(&world.relay, NFTABLES);
    let (mut near, mut far) = world.pair(SERVER[0]);
    near.write_all(b"old").unwrap();
    far.read_exact(&mut [0; 3]).unwrap();
    relay.signal(Signal::TERM);
    // New connections pass unsplit as soon as the rules say so.
    let chain = ["list", "chain", "inet", "midspan", "take"];
    let start = std::time::Instant::now();
    while says(&world.relay, "nft", &chain).contains("tproxy") {
        assert!(start.elapsed() < PATIENCE, "the relay still takes connections");
    }
    let new = world.pair(SERVER[0]);
    // The old one goes on, and ends in order.
    near.write_all(b"more").unwrap();
    far.read_exact(&mut [0; 4]).unwrap();
    drop(near);
    let mut rest = Vec::new();
    assert_eq!(far.read_to_end(&mut rest).unwrap(), 0);
    drop(far);
    let (status, counts) = relay.wait();
    assert!(status.success());
    let counts = counts.unwrap();
    assert_eq!((counts["accepted"], counts["closed"], counts["stopped"]), (1, 1, 0));
    assert_eq!(left_behind(&world.relay), (0, 0));
    let (mut near, mut far) = new;
    near.write_all(b"unsplit").unwrap();
    far.read_exact(&mut [0; 7]).unwrap();
}

/// Only somebody whose SYN the relay has answered is waited for.
#[test]
fn a_stop_without_flows_is_immediate() {
    let Some(world) = World::new() else { return };
    let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
    let (_listener, address) = world.listen(SERVER[0]);
    let stop = |client: Option<u16>| {
        let relay = start(&world, "")?;
        if let Some(port) = client {
            let client = SocketAddr::new(host(4, 202), port);
            wire.send(&Segment::new(client, address, SYN));
            let answer = wire.receive(PATIENCE).unwrap();
            assert_eq!((answer.to, answer.flags), (client, SYN | ACK));
        }
        let told = Instant::now();
        relay.signal(Signal::TERM);
        let (status, _) = relay.wait();
        assert!(status.success());
        Some(told.elapsed())
    };
    let Some(idle) = stop(None) else { return };
    let awaited = stop(Some(40_000)).unwrap();
    assert!(idle < awaited / 2, "{idle:?} without anybody, {awaited:?} with a handshake under way");
}

#[test]
fn draining_ends_in_time_and_a_second_signal_ends_at_once() {
    let Some(world) = World::new() else { return };
    for (settings, signals) in
        [(format!("{NFTABLES}drain_timeout = \"300 ms\"\n"), 1), (NFTABLES.into(), 2)]
    {
        let relay = RelayProcess::start(&world.relay, &settings);
        let (mut near, mut far) = world.pair(SERVER[0]);
        near.write_all(b"old").unwrap();
        far.read_exact(&mut [0; 3]).unwrap();
        for _ in 0..signals {
            relay.signal(Signal::INT);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        for end in [&mut near, &mut far] {
            let error = end.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        let (status, counts) = relay.wait();
        assert!(status.success());
        assert_eq!(counts.unwrap()["stopped"], 1);
        assert_eq!(left_behind(&world.relay), (0, 0));
    }
}

#[test]
fn two_relays_do_not_share_a_box() {
    let Some(world) = World::new() else { return };
    let _first = RelayProcess::start(&world.relay, NFTABLES);
    let config = format!("{}port = 8743\n", crate::process::CLIENTS).parse().unwrap();
    let second = world.relay.run(|| midspan_relay::Relay::start(config).map(drop)).unwrap();
    let said = second.unwrap_err().to_string();
    assert!(said.contains("another relay"), "{said}");
    assert_eq!(left_behind(&world.relay), (1, 2));
}
