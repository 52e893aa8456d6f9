//! More connections than there are descriptors for.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::process::{Counts, NFTABLES, RelayProcess};
use crate::steer;
use crate::world::{PATIENCE, SERVER, World};

/// What the clients met with.
struct Met {
    open: Vec<TcpStream>,
    reset: u64,
}

/// Opens so many connections, one after the other, and has each carry something both ways.
fn open(world: &World, listener: &TcpListener, connections: u64) -> (Met, Vec<TcpStream>) {
    let address = listener.local_addr().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = scope.spawn(|| answer(listener, &done));
        let done = Done(&done);
        let mut met = Met { open: Vec::new(), reset: 0 };
        for _ in 0..connections {
            match world.connect(address).and_then(ask) {
                Ok(stream) => met.open.push(stream),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => met.reset += 1,
                Err(error) => panic!("{error}"),
            }
        }
        drop(done);
        (met, server.join().unwrap())
    })
}

/// Lets the server end, also if the clients fail.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn ask(mut stream: TcpStream) -> io::Result<TcpStream> {
    stream.write_all(b"ping")?;
    stream.read_exact(&mut [0; 4])?;
    Ok(stream)
}

/// Answers one after the other, and keeps all open.
fn answer(listener: &TcpListener, done: &AtomicBool) -> Vec<TcpStream> {
    let mut open = Vec::new();
    while !done.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                // One that is reset instead has no answer.
                if stream.read_exact(&mut [0; 4]).is_ok() && stream.write_all(b"pong").is_ok() {
                    open.push(stream);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_micros(200));
            }
            Err(error) => panic!("{error}"),
        }
    }
    open
}

fn sum(counts: &Counts, names: &[&str]) -> u64 {
    names.iter().map(|name| counts.get(*name).copied().unwrap_or(0)).sum()
}

const PASSED: &[&str] = &["pass_full", "pass_no_relay"];
const REFUSED: &[&str] = &["refused_flows", "refused_descriptors", "refused_errors"];

/// Descriptors of a relay without flows, once its threads have opened theirs.
fn idle(relay: &RelayProcess) -> usize {
    loop {
        let before = relay.descriptors();
        thread::sleep(Duration::from_millis(500));
        if relay.descriptors() == before {
            return before;
        }
    }
}

/// Whatever does not fit passes, or is reset, and is counted; and when the others have ended there is
/// room again.
fn more_than_fit(descriptors: u32, connections: u64, settings: &str, rounds: usize) {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start_limited(&world.relay, settings, descriptors);
    let (listener, _) = world.listen(SERVER[0]);
    listener.set_nonblocking(true).unwrap();
    let idle = idle(&relay);
    let mut before = relay.counts();
    for round in 0..rounds {
        let (mut met, far) = open(&world, &listener, connections);
        let counts = relay.counts();
        let since = |names: &[&str]| sum(&counts, names) - sum(&before, names);
        let (split, passed, refused) = (since(&["accepted"]), since(PASSED), since(REFUSED));
        let opened = met.open.len() as u64;
        assert_eq!((split + passed, refused), (opened, met.reset), "{round}: {counts:?}");
        assert!(split > 20 && split < connections, "{round}: {split} split");
        assert_eq!(counts["active"], split, "{round}");
        assert!(relay.descriptors() <= descriptors as usize, "{round}");
        let busy = relay.busy();
        thread::sleep(Duration::from_millis(500));
        assert!(relay.busy() - busy < Duration::from_millis(250), "{round}: it spins");
        // All that were taken still work, split or not.
        for near in &mut met.open {
            near.write_all(b"still here").unwrap();
        }
        for mut end in far {
            end.read_exact(&mut [0; 10]).unwrap();
        }
        drop(met);
        relay.until(|counts| counts["active"] == 0);
        // Servers that were asked for nobody are let go a moment later.
        let start = Instant::now();
        while relay.descriptors() > idle {
            assert!(start.elapsed() < PATIENCE, "{round}: some have leaked");
            thread::sleep(Duration::from_millis(10));
        }
        // What there is room for is known to BPF a moment later.
        let start = Instant::now();
        while relay.counts()["accepted"] == counts["accepted"] {
            assert!(start.elapsed() < PATIENCE, "no connection is split any more");
            drop(open(&world, &listener, 1));
        }
        before = relay.until(|counts| counts["active"] == 0);
    }
}

#[test]
fn without_room_connections_pass_and_are_split_again_later() {
    if steer::is_possible() {
        more_than_fit(300, 150, "workers = 2\n", 3);
    }
}

#[test]
fn without_room_nftables_connections_are_reset_and_split_again_later() {
    more_than_fit(300, 150, &format!("{NFTABLES}workers = 2\n"), 2);
}

/// The hard limit of many systems.
#[test]
fn twenty_thousand_descriptors_are_lived_with() {
    const LIMIT: u32 = 20_000;
    if std::env::var_os("MIDSPAN_TEST_ALL").is_none() {
        return eprintln!("skipped: takes --all");
    }
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    if most.is_some_and(|most| most < u64::from(LIMIT)) {
        return eprintln!("skipped: the test itself has too few descriptors");
    }
    if steer::is_possible() {
        more_than_fit(LIMIT, 9_000, "", 1);
    }
}
