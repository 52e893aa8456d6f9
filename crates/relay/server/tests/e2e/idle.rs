//! Flows in which nothing moves.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use midspan_sys::netns::Netns;

use crate::process::RelayProcess;
use crate::steer::start;
use crate::world::{SERVER, World};

fn is_reset(end: &mut TcpStream) -> bool {
    matches!(end.read(&mut [0]), Err(error) if error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn an_idle_flow_is_reset_and_one_that_moves_is_not() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, "[limits]\nidle = \"3 s\"\n");
    let idle: Vec<_> = SERVER.iter().map(|server| world.pair(server)).collect();
    let mut moving = [world.pair(SERVER[0]), world.pair(SERVER[1])];
    // One that only the client sends on, and one that only the server does.
    while relay.counts()["idle"] < 2 {
        for (index, (near, far)) in moving.iter_mut().enumerate() {
            let (from, to) = if index == 0 { (near, far) } else { (far, near) };
            from.write_all(b"x").unwrap();
            to.read_exact(&mut [0]).unwrap();
        }
        thread::sleep(Duration::from_millis(50));
    }
    let counts = relay.counts();
    assert_eq!((counts["idle"], counts["active"]), (2, 2), "{counts:?}");
    for (mut near, mut far) in idle {
        assert!(is_reset(&mut near) && is_reset(&mut far));
    }
    drop(moving);
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!((counts["half_closed"], counts["closed"]), (0, 2));
}

/// What belongs to a split connection is delivered without a look for its socket, which may be gone.
#[test]
fn an_end_that_its_reset_did_not_reach_is_told_by_the_other() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "[limits]\nidle = \"3 s\"\n") else { return };
    let nft = |netns: &Netns, arguments: &[&str]| {
        assert!(netns.apply(Command::new("nft").args(arguments)).status().unwrap().success());
    };
    for server in SERVER {
        let (mut near, mut far) = world.pair(server);
        for _ in 0..3 {
            near.write_all(b"x").unwrap();
            far.read_exact(&mut [0]).unwrap();
            far.write_all(b"x").unwrap();
            near.read_exact(&mut [0]).unwrap();
        }
        nft(&world.client, &["add", "table", "inet", "deaf"]);
        let chain = "add chain inet deaf in { type filter hook input priority 0; }";
        nft(&world.client, &[chain]);
        nft(&world.client, &["add rule inet deaf in tcp flags & rst == rst drop"]);
        assert!(is_reset(&mut far));
        drop(far);
        nft(&world.client, &["flush", "ruleset"]);
        near.write_all(b"is anybody there?").unwrap();
        assert!(is_reset(&mut near));
    }
    assert_eq!(relay.counts()["idle"], 2);
}

#[test]
fn a_half_closed_flow_may_stay_for_less() {
    let Some(world) = World::new() else { return };
    let settings = "[limits]\nidle = \"1 h\"\nhalf_closed = \"3 s\"\n";
    let mut relay = RelayProcess::start(&world.relay, settings);
    let (mut open, mut open_far) = world.pair(SERVER[0]);
    let (mut near, mut far) = world.pair(SERVER[0]);
    near.shutdown(Shutdown::Write).unwrap();
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
    // It is not reset while the other end still sends.
    let (mut slow, mut slow_far) = world.pair(SERVER[1]);
    slow.shutdown(Shutdown::Write).unwrap();
    while relay.counts()["half_closed"] < 1 {
        slow_far.write_all(b"x").unwrap();
        slow.read_exact(&mut [0]).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    let counts = relay.counts();
    assert_eq!((counts["half_closed"], counts["idle"], counts["active"]), (1, 0, 2), "{counts:?}");
    assert!(is_reset(&mut near));
    // To whom has read the end already a reset is told when it writes.
    assert_eq!(far.write(b"late").unwrap_err().kind(), ErrorKind::BrokenPipe);
    open.write_all(b"still here").unwrap();
    open_far.read_exact(&mut [0; 10]).unwrap();
}
