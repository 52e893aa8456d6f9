//! SYNs of clients that do not exist, as many as a link brings: who does exist is served, and split, as before.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use midspan_sys::tun::Unit;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::peer::{SYN, Segment, Wire, host};
use crate::process::EARLY;
use crate::steer::start;
use crate::world::{PATIENCE, SERVER, World};

/// SYNs, and how many of them a second.
const RATE: u32 = 50_000;
/// Connections of a client that does exist, meanwhile.
const CONNECTIONS: u64 = 400;

#[test]
fn who_exists_is_split_during_a_flood() {
    let seconds = if std::env::var_os("MIDSPAN_TEST_ALL").is_some() { 12.0 } else { 1.5 };
    let Some(world) = World::new() else { return };
    let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
    let Some(mut relay) = start(&world, "") else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let server = thread::spawn(move || {
        for served in 0.. {
            let (mut far, from) = listener.accept().unwrap();
            assert_ne!(from.ip(), host(4, 202), "a client that does not exist");
            far.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut word = [0; 4];
            far.read_exact(&mut word).unwrap();
            far.write_all(&word).unwrap();
            if &word == b"last" {
                return served;
            }
        }
        unreachable!()
    });
    let exchange = |word: &[u8; 4]| {
        let mut near = world.connect(address).unwrap();
        near.write_all(word).unwrap();
        let mut got = [0; 4];
        near.read_exact(&mut got).unwrap();
        assert_eq!(&got, word);
    };
    let flooding = AtomicBool::new(true);
    let sent = thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let sent = flood(&wire, address, Duration::from_secs_f64(seconds));
            flooding.store(false, Ordering::Relaxed);
            sent
        });
        // By then the queues are full.
        thread::sleep(Duration::from_secs_f64(seconds / 3.0));
        assert!(flooding.load(Ordering::Relaxed));
        for _ in 0..CONNECTIONS {
            exchange(b"here");
        }
        flood.join().unwrap()
    });
    let counts = relay.until(|counts| counts["active"] == 0);
    eprintln!("{sent} SYNs; {counts:?}");
    assert!(counts["cookie"] > 0, "it was no flood: {counts:?}");
    assert!(counts["accepted"] >= CONNECTIONS * 9 / 10, "{counts:?}");
    // The queues are full of them still, for a minute.
    for _ in 0..20 {
        exchange(b"here");
    }
    exchange(b"last");
    assert_eq!(server.join().unwrap(), CONNECTIONS + 20);
    let after = relay.until(|counts| counts["active"] == 0);
    assert_eq!(after["accepted"], counts["accepted"] + 21, "{after:?}");
    // What is accounted for is as it was without a flood.
    assert!(after["split_connections"] >= after["accepted"] * 9 / 10, "{after:?}");
}

/// The relay would have to reset what it has taken beyond its limits.
#[test]
fn half_open_connections_count_until_they_are_a_flood() {
    let Some(world) = World::new() else { return };
    let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
    let Some(mut relay) = start(&world, &format!("{EARLY}workers = 1\n[limits]\nflows = 2\n"))
    else {
        return;
    };
    let (_listener, address) = world.listen(SERVER[0]);
    // Not by what the proof's attempts have met with.
    let before = relay.counts()["pass_full"];
    for port in 40_000..40_005 {
        wire.send(&Segment::new(SocketAddr::new(host(4, 202), port), address, SYN));
    }
    let counts = relay.until(|counts| counts["pass_full"] - before >= 3);
    assert_eq!(counts["pass_full"] - before, 3, "{counts:?}");
}

/// Sends SYNs for so long; gives how many.
fn flood(wire: &Wire, to: SocketAddr, length: Duration) -> u32 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < length {
        let due = (start.elapsed().as_secs_f64() * f64::from(RATE)) as u32;
        while sent < due {
            let mut syn =
                Segment::new(SocketAddr::new(host(4, 202), random.next_u32() as u16), to, SYN);
            syn.sequence = random.next_u32();
            wire.send(&syn);
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    sent
}
