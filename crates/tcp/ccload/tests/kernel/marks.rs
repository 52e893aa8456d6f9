//! What the network marks on acknowledgements reaches TCP-ME's reactions: over emulated links whose
//! elements set the marks, to a control in the running kernel.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::path::EmulatedPath;
use crate::world::{World, named};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use midspan_cc::Config;
use midspan_ccload::{Change, Error, Kernel, Options, Removal};
use midspan_sys::socket::tcp_info;
use midspan_units::Rate;

/// With which the first loss comes when the radio has a queue already.
const SEED: u64 = 5;

/// The first rate of the connections here.
const FIRST: u64 = 400_000;

/// A radio that is slower than [`FIRST`], so that it has a queue whenever something comes up, and loses
/// nothing itself; the losses are before it.
const SLOW_RADIO: &str = "{ loss = { share = '3 %' } }, { radio = { rate = '350 kbit/s', \
    modulation = 'qpsk 1/2', channel = { frequency = '2.5 GHz', bandwidth = '5 MHz', \
    distance = '1 km', power = '70 dBm', speed = '0 km/h' } } }, { delay = '5 ms' }";

const BASE_STATION: &str = "{ wla = { threshold = '1 B' } }, { delay = '5 ms' }";
const NO_BASE_STATION: &str = "{ delay = '5 ms' }";

fn load(world: &World) -> Change {
    let config = Config { me_initial_rate: Rate::from_bps(FIRST), ..Config::default() };
    world.load("me", &Options { config, unrestricted: false })
}

/// The rate that SRI() of table I makes of `rate`, bits per second.
fn increased(rate: u64, most: u64) -> u64 {
    if rate + 50 >= most { rate + 2000 } else { rate + (most - rate) * 15 / 100 }
}

/// What the rate, which is the socket's greatest pacing rate, was before its first decrease that steps follow, after it,
/// and a step later.
fn first_decrease(path: &EmulatedPath) -> [u64; 3] {
    let mut rates: Vec<u64> = Vec::new();
    path.send_until(|sender| {
        let rate = tcp_info(sender).unwrap().max_pacing_rate * 8;
        if rates.last() != Some(&rate) {
            rates.push(rate);
        }
        let seen = |three: &&[u64]| three[1] < three[0] && three[1] < three[2];
        rates.windows(3).find(seen).and_then(|three| three.try_into().ok())
    })
}

/// Steps that may pass unseen on a machine that is emulated.
const MISSED: u64 = 3;

/// The kernel keeps the rate in whole bytes.
fn about(rate: u64, expected: u64) -> bool {
    rate.abs_diff(expected) <= 16
}

/// Whether SRI() leads from one rate to another in one step, or a few of them.
fn leads(mut from: u64, to: u64, most: u64) -> bool {
    (0..=MISSED).any(|_| {
        from = increased(from, most);
        about(to, from)
    })
}

/// A loss whose duplicates the base station marks is the radio's: R_max stays where it was at first.
#[test]
fn a_marked_loss_is_the_radios() {
    let Some(world) = World::new() else { return };
    load(&world);
    let path = EmulatedPath::new(&world.name("me"), SEED, BASE_STATION, SLOW_RADIO);
    let [before, after, then] = first_decrease(&path);
    assert!(leads(after, then, FIRST), "{before} {after} {then}");
    assert!(!leads(after, then, after * 10 / 9), "{before} {after} {then}");
}

/// Without a base station the same loss is taken for the policer's: R_max is where it happened.
#[test]
fn the_same_loss_unmarked_is_the_policers() {
    let Some(world) = World::new() else { return };
    load(&world);
    let path = EmulatedPath::new(&world.name("me"), SEED, NO_BASE_STATION, SLOW_RADIO);
    let [before, after, then] = first_decrease(&path);
    assert!(leads(after, then, after * 10 / 9), "{before} {after} {then}");
    assert!(!leads(after, then, FIRST), "{before} {after} {then}");
}

/// Bits of bpf/marks.h.
const SEEN: u8 = 1;
const WLA: u8 = 2;
const ECE: u8 = 4;

/// What is kept of a socket's acknowledgements: numbers, and marks.
fn kept(map: &MapHandle, socket: &TcpStream) -> Option<(Vec<u32>, Vec<u8>)> {
    let value = map.lookup(&socket.as_raw_fd().to_ne_bytes(), MapFlags::ANY).unwrap()?;
    let (numbers, rest) = value.split_at(64);
    let numbers = numbers.chunks(4).map(|four| u32::from_ne_bytes(four.try_into().unwrap()));
    Some((numbers.collect(), rest[..16].to_vec()))
}

fn marks_of(world: &World) -> MapHandle {
    MapHandle::from_pinned_path(world.folder.join("marks")).unwrap()
}

/// Each mark is told from the other: CE on an acknowledgement, and ECN-Echo for CE on data.
#[test]
fn marks_are_told_apart() {
    let Some(world) = World::new() else { return };
    load(&world);
    let marking = "{ rate = { rate = '350 kbit/s', aqm = { ecn-threshold = { \
                   threshold = '1 B', weight = '100 %' } } } }, { delay = '5 ms' }";
    for (up, down, wanted, unwanted) in [
        (BASE_STATION, SLOW_RADIO, WLA, ECE),
        (NO_BASE_STATION, marking, ECE, WLA),
        (NO_BASE_STATION, "{ delay = '5 ms' }", SEEN, WLA | ECE),
    ] {
        let path = EmulatedPath::new(&world.name("me"), SEED, up, down);
        let map = marks_of(&world);
        let mut seen = 0;
        path.send_until(|sender| {
            let (_, marks) = kept(&map, sender)?;
            seen |= marks.iter().fold(0, |all, mark| all | mark);
            (seen & wanted != 0).then_some(())
        });
        assert_eq!(seen & unwanted, 0, "{up}, {down}");
    }
}

/// A connection keeps the control that it began with when that is replaced, and its marks.
#[test]
fn marks_outlive_a_replacement() {
    let Some(world) = World::new() else { return };
    assert_eq!(load(&world), Change::Loaded);
    let path = EmulatedPath::new(&world.name("me"), SEED, BASE_STATION, SLOW_RADIO);
    assert_eq!(load(&world), Change::Replaced);
    let map = marks_of(&world);
    path.send_until(|sender| {
        let (_, marks) = kept(&map, sender)?;
        marks.iter().any(|mark| mark & WLA != 0).then_some(())
    });
}

/// Who shares a control has its marks too, when those end that brought them.
#[test]
fn marks_stay_with_those_who_hold_the_control() {
    let Some(world) = World::new() else { return };
    if !Kernel::running().unwrap().links {
        return;
    }
    load(&world);
    let map = marks_of(&world);
    let held = world.controls.hold(named("me"), &Options::default()).unwrap();
    assert_eq!(world.controls.unload(named("me")).unwrap(), Removal::InUse);
    let path = EmulatedPath::new(held.name(), SEED, BASE_STATION, SLOW_RADIO);
    path.send_until(|sender| {
        let (_, marks) = kept(&map, sender)?;
        marks.iter().any(|mark| mark & WLA != 0).then_some(())
    });
}

/// Other controls' sockets have nothing kept, and unloading leaves nothing attached.
#[test]
fn only_its_own_sockets_are_looked_at_and_only_while_it_is_loaded() {
    let Some(world) = World::new() else { return };
    load(&world);
    let map = marks_of(&world);
    let (mut near, mut far) = world.connect("reno").unwrap();
    near.write_all(&[0; 1000]).unwrap();
    far.read_exact(&mut [0; 1000]).unwrap();
    assert!(kept(&map, &near).is_none());
    let (mut near, mut far) = world.connect(&world.name("me")).unwrap();
    let mut exchange = || {
        near.write_all(&[0; 3000]).unwrap();
        far.read_exact(&mut [0; 3000]).unwrap();
        // The other end's answer carries the acknowledgement.
        far.write_all(&[0; 10]).unwrap();
        near.read_exact(&mut [0; 10]).unwrap();
        kept(&map, &near).unwrap()
    };
    let (first, second) = (exchange(), exchange());
    assert_ne!(first, second);
    world.controls.unload(named("me")).unwrap();
    for pin in ["me", "me-ingress", "marks"] {
        assert!(!world.folder.join(pin).exists(), "{pin}");
    }
    // A program goes when the kernel finds the time.
    let deadline = Instant::now() + Duration::from_secs(20);
    while exchange() != exchange() {
        assert!(Instant::now() < deadline, "marks are still kept");
    }
}

/// What fails leaves nothing attached.
#[test]
fn a_name_that_is_taken_leaves_nothing_at_the_ingress() {
    let Some(world) = World::new() else { return };
    let _held = world.controls.hold(named("me"), &Options::default()).unwrap();
    let error = world.controls.load(named("me"), &Options::default()).unwrap_err();
    assert!(matches!(error, Error::NameTaken { .. }), "{error}");
    assert!(!world.folder.join("me-ingress").exists());
}
