//! One relay takes over from another, or from what one that died has left.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use midspan_sys::netlink::Netlink;
use midspan_sys::netns::Netns;
use rustix::process::Signal;

use crate::process::RelayProcess;
use crate::steer::{exchange, start};
use crate::world::{PATIENCE, SERVER, World, await_link, connect, ip, route, skip, up};

const PIN: &str = "interception = \"bpf\"\npin = true\n";

/// What relays pin in a namespace, which goes with this.
pub(crate) struct Pins(PathBuf);

impl Pins {
    pub(crate) fn of(netns: &Netns) -> Option<Pins> {
        if !fs::exists("/sys/fs/bpf/ip").unwrap_or(true) && fs::metadata("/sys/fs/bpf").is_err() {
            skip("there is no BPF file system");
            return None;
        }
        Some(Pins(format!("/sys/fs/bpf/midspan/net-{}", netns.inode().unwrap()).into()))
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn rules(world: &World) -> usize {
    let out = world.relay.apply(Command::new("ip").arg("rule")).output().unwrap();
    String::from_utf8(out.stdout).unwrap().matches("0x4d53").count()
}

#[test]
fn a_new_relay_takes_new_connections_and_the_old_one_drains() {
    let Some(world) = World::new() else { return };
    let Some(pins) = Pins::of(&world.relay) else { return };
    let Some(mut old) = start(&world, "pin = true\n") else { return };
    assert!(pins.0.exists());
    let (mut near, mut far) = world.pair(SERVER[0]);
    exchange(&mut near, &mut far);
    let mut new = RelayProcess::replace(&world.relay, PIN);
    let mut pairs: Vec<_> = SERVER.iter().map(|server| world.pair(server)).collect();
    for (near, far) in &mut pairs {
        exchange(near, far);
    }
    assert_eq!(new.counts()["accepted"], 2);
    // The old one's goes on, and ends in order; and so does the old relay.
    exchange(&mut near, &mut far);
    assert_eq!(old.counts()["accepted"], 1);
    drop(near);
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
    drop(far);
    let (status, counts) = old.wait();
    assert!(status.success());
    let counts = counts.unwrap();
    assert_eq!((counts["closed"], counts["stopped"]), (1, 0));
    // What both used is the new one's now, and goes with it.
    for (near, far) in &mut pairs {
        exchange(near, far);
    }
    assert_eq!(rules(&world), 1);
    drop(pairs);
    new.until(|counts| counts["active"] == 0);
    new.signal(Signal::TERM);
    assert!(new.wait().0.success());
    assert!(!pins.0.exists());
    assert_eq!(rules(&world), 0);
    let (mut near, mut far) = world.pair(SERVER[1]);
    exchange(&mut near, &mut far);
}

#[test]
fn what_a_killed_relay_has_left_lets_connections_pass_and_is_taken_over() {
    let Some(world) = World::new() else { return };
    let Some(pins) = Pins::of(&world.relay) else { return };
    for round in 0..3 {
        let Some(mut relay) = start(&world, "pin = true\n") else { return };
        let (mut near, mut far) = world.pair(SERVER[0]);
        exchange(&mut near, &mut far);
        assert_eq!(relay.counts()["accepted"], 1, "round {round}");
        relay.signal(Signal::KILL);
        relay.wait();
        assert!(pins.0.exists());
        let (mut near, mut far) = world.pair(SERVER[0]);
        exchange(&mut near, &mut far);
    }
    let links =
        fs::read_dir(&pins.0).unwrap().flatten().flat_map(|layout| fs::read_dir(layout.path()));
    let links = links
        .flatten()
        .flatten()
        .filter(|pin| pin.file_name().to_string_lossy().starts_with("link-"));
    // One for each interface, however many relays there were.
    assert_eq!(links.count(), 2);
}

#[test]
fn a_relay_that_hangs_is_replaced_all_the_same() {
    let Some(world) = World::new() else { return };
    let Some(_pins) = Pins::of(&world.relay) else { return };
    let Some(mut old) = start(&world, "pin = true\n") else { return };
    let (mut near, mut far) = world.pair(SERVER[0]);
    exchange(&mut near, &mut far);
    old.signal(Signal::STOP);
    let mut new = RelayProcess::replace(&world.relay, PIN);
    let (mut other, mut end) = world.pair(SERVER[0]);
    exchange(&mut other, &mut end);
    assert_eq!(new.counts()["accepted"], 1);
    old.signal(Signal::CONT);
    exchange(&mut near, &mut far);
    let (mut other, mut end) = world.pair(SERVER[0]);
    exchange(&mut other, &mut end);
    assert_eq!(new.counts()["accepted"], 2);
    assert_eq!(old.counts()["accepted"], 1);
}

#[test]
fn what_cannot_be_replaced_is_said_to_be_so() {
    let Some(world) = World::new() else { return };
    let Some(_old) = start(&world, "") else { return };
    let config = format!("{}pin = true\n", crate::process::CLIENTS).parse().unwrap();
    let _pins = Pins::of(&world.relay);
    let refused = world.relay.run(|| midspan_relay::Relay::replace(config).map(drop)).unwrap();
    assert!(refused.unwrap_err().to_string().contains("cannot be replaced"));
    let (mut near, mut far) = world.pair(SERVER[0]);
    exchange(&mut near, &mut far);
}

/// One that fails late, after it has shared what the other uses.
#[test]
fn a_replacement_that_fails_leaves_the_old_relay_at_work() {
    let Some(world) = World::new() else { return };
    let Some(_pins) = Pins::of(&world.relay) else { return };
    let Some(mut old) = start(&world, "pin = true\n") else { return };
    let (mut near, mut far) = world.pair(SERVER[0]);
    exchange(&mut near, &mut far);
    let rules_before = rules(&world);
    let config =
        format!("{}interfaces = [\"nowhere\"]\n", crate::process::CLIENTS).parse().unwrap();
    let failed = world.relay.run(|| midspan_relay::Relay::replace(config).map(drop)).unwrap();
    assert!(failed.unwrap_err().to_string().contains("nowhere"));
    assert_eq!(rules(&world), rules_before);
    exchange(&mut near, &mut far);
    for server in SERVER {
        let (mut near, mut far) = world.pair(server);
        exchange(&mut near, &mut far);
    }
    assert_eq!(old.counts()["accepted"], 3);
    // And the next one succeeds.
    let mut new = RelayProcess::replace(&world.relay, PIN);
    let mut pair = world.pair(SERVER[0]);
    exchange(&mut pair.0, &mut pair.1);
    assert_eq!(new.counts()["accepted"], 1);
}

#[test]
fn a_name_that_somebody_has_bound_keeps_no_relay_away() {
    let Some(world) = World::new() else { return };
    let bind = |name| UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?);
    let _taken = world.relay.run(|| bind("midspan-relay")).unwrap().unwrap();
    let config = crate::process::CLIENTS.parse().unwrap();
    let relay = world.relay.run(|| midspan_relay::Relay::start(config).map(drop)).unwrap();
    assert!(relay.is_ok(), "{}", relay.unwrap_err());
}

#[test]
fn who_floods_the_socket_of_successors_delays_no_interface() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "") else { return };
    let socket = format!("/run/midspan/net-{}.sock", world.relay.inode().unwrap());
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut silent = VecDeque::new();
            while !stop.load(Ordering::Relaxed)
                && let Ok(stream) = UnixStream::connect(&socket)
            {
                count.fetch_add(1, Ordering::Relaxed);
                silent.push_back(stream);
                if silent.len() > 50 {
                    silent.pop_front();
                }
            }
        });
        let _end = Stop(&stop);
        while count.load(Ordering::Relaxed) < 50 {
            thread::yield_now();
        }
        let before = relay.counts()["accepted"];
        late_interface(&world, || relay.counts()["accepted"] > before);
        // It was not over before.
        let during = count.load(Ordering::Relaxed);
        relay.until(|_| count.load(Ordering::Relaxed) > during);
    });
}

/// Ends what goes on until then, in whatever way the test goes.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Gives the box an interface, and connects by it until `is_split`.
pub(crate) fn late_interface(world: &World, mut is_split: impl FnMut() -> bool) {
    let late = Netns::create().unwrap();
    world
        .relay
        .run(|| {
            let mut netlink = Netlink::open().unwrap();
            netlink.add_veth("late", "late-peer", late.as_fd()).unwrap();
            up(&mut netlink, "late", &["10.9.0.1"]).unwrap();
        })
        .unwrap();
    late.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let link = up(&mut netlink, "late-peer", &["10.9.0.2"]).unwrap();
        route(&mut netlink, "0.0.0.0", 0, link, Some("10.9.0.1")).unwrap();
        await_link("10.9.0.1");
    })
    .unwrap();
    let (listener, address) = world.listen(SERVER[0]);
    let start = Instant::now();
    while !is_split() {
        assert!(start.elapsed() < PATIENCE, "the interface is not steered");
        drop(late.run(|| connect((ip("10.9.0.2"), 0).into(), address)).unwrap().unwrap());
        drop(listener.accept().unwrap());
    }
}

/// Answers each connection with what it sent, whole, and ends.
fn echo(listener: TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        thread::spawn(move || {
            let mut all = Vec::new();
            if stream.read_to_end(&mut all).is_ok() {
                let _ = stream.write_all(&all);
            }
        });
    }
}

fn round_trip(mut stream: TcpStream, size: usize) {
    let sent: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
    stream.write_all(&sent).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(back == sent, "{} bytes of {}", back.len(), sent.len());
}

/// Replaces relays under load: no connection is refused or reset, no byte is lost, and in the end
/// every relay but the last has ended.
fn replacements(count: u32) {
    let Some(world) = World::new() else { return };
    let Some(_pins) = Pins::of(&world.relay) else { return };
    let Some(mut relay) = start(&world, "pin = true\n") else { return };
    let (listener, address) = world.listen(SERVER[0]);
    thread::spawn(move || echo(listener));
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut old = Vec::new();
    let mut split = 0;
    thread::scope(|scope| {
        for size in [0, 100, 10_000, 1_000_000] {
            let (world, stop, done) = (&world, &stop, &done);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    round_trip(world.connect(address).unwrap(), size);
                    done.fetch_add(1, Ordering::Relaxed);
                    // The client's port is taken for a minute after each, and it has 28,000.
                    thread::sleep(Duration::from_millis(10));
                }
            });
        }
        for _ in 0..count {
            let new = RelayProcess::replace(&world.relay, PIN);
            old.push(std::mem::replace(&mut relay, new));
            let before = done.load(Ordering::Relaxed);
            let start = Instant::now();
            while done.load(Ordering::Relaxed) < before + 4 && start.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(1));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    for old in old {
        let (status, counts) = old.wait();
        let counts = counts.unwrap();
        assert!(status.success());
        assert_eq!(counts["stopped"] + counts["reset_by_client"] + counts["reset_by_server"], 0);
        split += counts["accepted"];
    }
    split += relay.until(|counts| counts["active"] == 0)["accepted"];
    let done = done.into_inner();
    // A few pass while one relay gives place to the other.
    assert!(split <= done && split * 10 >= done * 9, "{split} of {done} split");
}

#[test]
fn replacements_under_load_lose_nothing() {
    replacements(if std::env::var_os("MIDSPAN_TEST_ALL").is_some() { 100 } else { 10 });
}
