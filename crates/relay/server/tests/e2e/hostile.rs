//! A client that does all that a client should not, on thousands of connections at once: what it
//! costs the relay stays within the bounds that docs/explanation/relay.md states, and others do not notice.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use midspan_sys::socket::set_max_pacing_rate;
use midspan_sys::tun::Unit;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::load::{End, Load};
use crate::peer::{ACK, FIN, PSH, RST, SYN, Segment, Wire, host};
use crate::process::{Counts, RelayProcess};
use crate::steer::start;
use crate::world::{PATIENCE, SERVER, World};

/// Descriptors, as under a usual hard limit.
const DESCRIPTORS: u32 = 20_000;
const LIMITS: &str = "[limits]\nbuffered = \"64 MiB\"\n";
/// Resident memory of a relay may grow by `buffered` and so much for each flow.
const BUFFERED: u64 = 64 << 20;
const PER_FLOW: u64 = 8 << 10;

#[test]
fn a_hostile_client_takes_only_what_is_bounded() {
    let (connections, rounds) = match std::env::var_os("MIDSPAN_TEST_ALL") {
        Some(_) => (10_000, 5),
        None => (1_000, 3),
    };
    let Some(world) = World::new() else { return };
    let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
    drop(start(&world, ""));
    let mut relay = RelayProcess::start_limited(&world.relay, LIMITS, DESCRIPTORS);
    let accomplice = Accomplice::new(&world);
    let good = Good::new(&world);
    let (memory, descriptors) = (relay.memory(), relay.descriptors());
    let (mut quiet, mut attacked) = (Vec::new(), Vec::new());
    let (mut most_memory, mut most_descriptors, mut most_active) = (0, 0, 0);
    let load = Load::start(&world, Duration::from_millis(20));
    for round in 0..=rounds {
        // The last one only floods: with that there would be no room for anything else.
        let (connections, flood) = match round < rounds {
            true => (connections, u32::from(connections) / 20),
            false => (0, FLOOD),
        };
        quiet.push(good.measure());
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let attack = scope
                .spawn(|| Attack::new(&wire, &accomplice, round).run(connections, flood, &stop));
            let ending = Ending(&stop);
            let opened = Instant::now();
            // Much of it is under way.
            while accomplice.seen.load(Ordering::Relaxed) < u64::from(connections / 2)
                && opened.elapsed() < PATIENCE
            {
                thread::sleep(Duration::from_millis(10));
            }
            attacked.push(good.measure());
            attacked.push(good.measure());
            most_memory = relay.memory().max(most_memory);
            most_descriptors = relay.descriptors().max(most_descriptors);
            let counts = relay.counts();
            assert!(counts["buffered"] <= BUFFERED, "{counts:?}");
            most_active = counts["active"].max(most_active);
            drop(ending);
            attack.join().unwrap();
        });
        accomplice.seen.store(0, Ordering::Relaxed);
    }
    let outcomes = load.stop();
    drop(good);
    let counts = relay.until(|counts| counts["active"] == 0);

    let bad: Vec<_> = outcomes.iter().filter(|outcome| outcome.end != End::Whole).collect();
    let some = &bad[..bad.len().min(5)];
    assert!(bad.is_empty(), "{} of {}: {some:#?}; {counts:?}", bad.len(), outcomes.len());
    let ratio = median(&mut attacked) / median(&mut quiet);
    let grown = most_memory.saturating_sub(memory);
    eprintln!(
        "goodput under attack / without: {ratio:.3}; {most_active} flows at most, {} B of memory, \
         {most_descriptors} descriptors; {counts:?}",
        grown
    );
    assert!(counts["split"] > u64::from(FLOOD), "it was no flood: {counts:?}");
    assert!(ratio > 0.9, "{quiet:?} {attacked:?}");
    assert!(most_active > u64::from(connections) / 4, "it was no attack: {most_active}");
    let bound = BUFFERED + PER_FLOW * most_active;
    assert!(grown < bound, "{grown} bytes for {most_active} flows, where {bound} is the bound");
    assert!(most_descriptors <= DESCRIPTORS as usize);
    add_up(&counts);
    // Nothing is left of it but what is kept for the next flow.
    assert_eq!(counts["buffered"], 0);
    assert!(relay.descriptors() < descriptors + 200, "{} descriptors", relay.descriptors());
}

/// Thousands who ask for much and take nothing of it: what is for them waits at the relay, and others do not.
#[test]
fn closed_windows_leave_others_alone_and_memory_comes_back() {
    let readers = if std::env::var_os("MIDSPAN_TEST_ALL").is_some() { 9_000 } else { 1_500 };
    // The control run is without a relay.
    let mut ratios = Vec::new();
    for is_split in [false, true] {
        let Some(world) = World::new() else { return };
        let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
        let mut relay = match is_split {
            true => Some(start(&world, "")),
            false => None,
        };
        if matches!(relay, Some(None)) {
            return;
        }
        let mut relay = relay.take().flatten();
        let accomplice = Accomplice::new(&world);
        let good = Good::new(&world);
        // Pools are filled by ordinary load.
        let warm = Load::start(&world, Duration::from_millis(5));
        let mut quiet: Vec<f64> = (0..3).map(|_| good.measure()).collect();
        assert!(warm.stop().iter().all(|outcome| outcome.end == End::Whole));
        let before = relay.as_ref().map(RelayProcess::memory);
        let load = Load::start(&world, Duration::from_millis(20));
        let stop = AtomicBool::new(false);
        let mut attacked = Vec::new();
        thread::scope(|scope| {
            let mut attack = Attack::new(&wire, &accomplice, 1);
            attack.manners = &[Manner::ZeroWindow];
            let attack = scope.spawn(|| attack.run(readers, 0, &stop));
            let ending = Ending(&stop);
            let opened = Instant::now();
            // Those that SYN cookies let in beyond what descriptors suffice for wait at the relay.
            let served = u64::from(readers.min(7_400)) * 95 / 100;
            while accomplice.seen.load(Ordering::Relaxed) < served {
                assert!(
                    opened.elapsed() < 2 * PATIENCE,
                    "{:?}: {:?}",
                    accomplice.seen,
                    relay.as_mut().map(RelayProcess::counts)
                );
                thread::sleep(Duration::from_millis(10));
            }
            attacked.extend((0..3).map(|_| good.measure()));
            if let Some(relay) = &mut relay {
                let counts = relay.counts();
                eprintln!(
                    "{} open, {} split, {} B resident, {} B buffered",
                    accomplice.seen.load(Ordering::Relaxed),
                    counts["active"],
                    relay.memory(),
                    counts["buffered"]
                );
                // Beyond what descriptors suffice for they pass.
                assert!(counts["active"] > u64::from(readers.min(7_400)) * 9 / 10, "{counts:?}");
            }
            drop(ending);
            attack.join().unwrap();
        });
        let outcomes = load.stop();
        let whole = outcomes.iter().filter(|outcome| outcome.end == End::Whole).count();
        let ratio = median(&mut attacked) / median(&mut quiet);
        eprintln!(
            "relay: {is_split}; {whole} of {} others' connections, goodput of others {ratio:.3}",
            outcomes.len()
        );
        let counts = relay.as_mut().map(RelayProcess::counts);
        assert_eq!(whole, outcomes.len(), "{counts:?}");
        ratios.push(ratio);
        drop(good);
        let (Some(mut relay), Some(before)) = (relay, before) else { continue };
        let gone = Instant::now();
        while relay.memory() > before * 12 / 10 {
            let (counts, memory) = (relay.counts(), relay.memory());
            assert!(
                gone.elapsed() < Duration::from_secs(60),
                "{memory} after {before}: {counts:?}"
            );
            thread::sleep(Duration::from_millis(100));
        }
        eprintln!("{before} B before, {} after {:?}", relay.memory(), gone.elapsed());
        relay.until(|counts| counts["active"] == 0);
    }
    assert!(ratios[1] > 0.9 * ratios[0].min(1.0), "{ratios:?}");
}

/// Ends an attack, also when the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Every flow taken has ended in one way.
fn add_up(counts: &Counts) {
    let ends = [
        "active",
        "closed",
        "connect_failed",
        "connect_timed_out",
        "reset_by_client",
        "reset_by_server",
        "stopped",
        "inconsistent",
    ];
    let ended: u64 = ends.iter().map(|end| counts[*end]).sum();
    assert_eq!(counts["accepted"], ended, "{counts:?}");
    assert_eq!(counts["inconsistent"], 0);
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What a hostile connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Takes a segment now and then.
    SlowReader,
    /// Takes nothing, but answers probes.
    ZeroWindow,
    /// Says a byte now and then.
    SlowWriter,
    /// Says all it has in segments of one byte.
    SmallSegments,
    /// Opens half of a connection.
    HalfOpen,
    /// Opens one, and then is silent.
    Silent,
    /// Ends its half at once.
    HalfClosed,
    /// Resets: instead of ending the handshake, after it, after some data from either side, after
    /// its FIN.
    ResetInHandshake,
    ResetAfterHandshake,
    ResetAfterSaying,
    ResetAfterHearing,
    ResetAfterFin,
}

impl Manner {
    const ALL: [Manner; 12] = [
        Manner::SlowReader,
        Manner::ZeroWindow,
        Manner::SlowWriter,
        Manner::SmallSegments,
        Manner::HalfOpen,
        Manner::Silent,
        Manner::HalfClosed,
        Manner::ResetInHandshake,
        Manner::ResetAfterHandshake,
        Manner::ResetAfterSaying,
        Manner::ResetAfterHearing,
        Manner::ResetAfterFin,
    ];
}

/// The hostile client: its own TCP, behind an interface of the box.
struct Attack<'a> {
    wire: &'a Wire,
    servers: &'a Accomplice,
    round: u16,
    manners: &'static [Manner],
    hands: HashMap<(SocketAddr, SocketAddr), Hand>,
}

struct Hand {
    manner: Manner,
    next: u32,
    heard: u32,
    open: bool,
    over: bool,
}

/// SYNs, more than the half-open connections that the relay's listeners may have.
const FLOOD: u32 = 10_000;
/// How often each open connection does something.
const TICK: Duration = Duration::from_millis(300);

impl<'a> Attack<'a> {
    fn new(wire: &'a Wire, servers: &'a Accomplice, round: u16) -> Attack<'a> {
        Attack { wire, servers, round, manners: &Manner::ALL, hands: HashMap::new() }
    }

    /// Opens so many connections, and floods the box with so many SYNs of made up clients; keeps the
    /// connections until it is to stop, and resets them.
    fn run(mut self, connections: u16, flood: u32, stop: &AtomicBool) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.round.into());
        let mut ticked = Instant::now();
        let (mut opened, mut flooded) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..20 {
                if opened < connections {
                    self.open(opened);
                    opened += 1;
                }
                if flooded < flood {
                    self.flood(&mut random);
                    flooded += 1;
                }
            }
            while let Some(segment) = self.wire.receive(Duration::from_millis(1)) {
                self.hear(&segment);
            }
            if ticked.elapsed() > TICK {
                ticked = Instant::now();
                self.tick();
            }
        }
        let mut left: Vec<_> = self.hands.iter().collect();
        left.retain(|(_, hand)| !hand.over);
        for ((from, to), hand) in left {
            let mut reset = Segment::new(*from, *to, RST | ACK);
            (reset.sequence, reset.acknowledgement) = (hand.next, hand.heard);
            self.wire.send(&reset);
        }
        // What was on its way is answered with a reset as well.
        while let Some(segment) = self.wire.receive(Duration::from_millis(100)) {
            if segment.flags & RST == 0 {
                let mut reset = Segment::new(segment.to, segment.from, RST);
                reset.sequence = segment.acknowledgement;
                self.wire.send(&reset);
            }
        }
    }

    fn open(&mut self, id: u16) {
        let version = usize::from(id % 2);
        // A few hundred clients, so that it is none's own limit that protects the rest.
        let from = SocketAddr::new(host([4, 6][version], 2 + id % 200), 1024 + id);
        let to = self.servers.addresses[version];
        let manner = self.manners[usize::from(id / 2) % self.manners.len()];
        let mut syn = Segment::new(from, to, SYN);
        syn.sequence = u32::from(self.round) << 20 | u32::from(id);
        self.wire.send(&syn);
        let hand = Hand { manner, next: syn.next(), heard: 0, open: false, over: false };
        self.hands.insert((from, to), hand);
    }

    /// A SYN of somebody who will never answer.
    fn flood(&self, random: &mut impl Rng) {
        let word = random.next_u32();
        let version = word as usize % 2;
        let from = host([4, 6][version], 202 + (word >> 8) as u16 % 50);
        let from = SocketAddr::new(from, (word >> 16) as u16 | 1);
        let mut syn = Segment::new(from, self.servers.addresses[version], SYN);
        syn.sequence = random.next_u32();
        self.wire.send(&syn);
    }

    fn hear(&mut self, segment: &Segment) {
        let Some(hand) = self.hands.get_mut(&(segment.to, segment.from)) else { return };
        if hand.over {
            return;
        }
        if segment.flags & RST != 0 {
            hand.over = true;
            return;
        }
        let mut answer = Segment::new(segment.to, segment.from, ACK);
        if segment.flags & (SYN | ACK) == SYN | ACK {
            if hand.manner == Manner::HalfOpen {
                return;
            }
            hand.heard = segment.next();
            hand.open = true;
            (answer.sequence, answer.acknowledgement) = (hand.next, hand.heard);
            match hand.manner {
                Manner::ResetInHandshake => {
                    answer.flags = RST;
                    hand.over = true;
                }
                Manner::ZeroWindow => answer.window = 0,
                Manner::SlowReader => answer.window = 1000,
                _ => {}
            }
            self.wire.send(&answer);
            let (flags, words) = match hand.manner {
                Manner::HalfClosed => (FIN | ACK, &b""[..]),
                Manner::ResetAfterFin => (FIN | PSH | ACK, &b"the last"[..]),
                Manner::ResetAfterSaying | Manner::SlowReader | Manner::ZeroWindow => {
                    (PSH | ACK, &b"give"[..])
                }
                _ => (0, &b""[..]),
            };
            if flags != 0 {
                (answer.flags, answer.payload) = (flags, words.to_vec());
                hand.next = answer.next();
                self.wire.send(&answer);
            }
            if matches!(
                hand.manner,
                Manner::ResetAfterHandshake | Manner::ResetAfterSaying | Manner::ResetAfterFin
            ) {
                let mut reset = Segment::new(segment.to, segment.from, RST | ACK);
                (reset.sequence, reset.acknowledgement) = (hand.next, hand.heard);
                self.wire.send(&reset);
                hand.over = true;
            }
            return;
        }
        let is_next = segment.sequence == hand.heard;
        let is_news = is_next && segment.next() != segment.sequence;
        match hand.manner {
            Manner::ZeroWindow => answer.window = 0,
            // It takes what the tick acknowledges.
            Manner::SlowReader if is_news => return,
            Manner::ResetAfterHearing if is_news => {
                answer.flags = RST | ACK;
                hand.over = true;
            }
            _ if is_news => hand.heard = segment.next(),
            _ if segment.payload.is_empty() => return,
            _ => {}
        }
        (answer.sequence, answer.acknowledgement) = (hand.next, hand.heard);
        self.wire.send(&answer);
    }

    fn tick(&mut self) {
        for ((from, to), hand) in &mut self.hands {
            if hand.over || !hand.open {
                continue;
            }
            let mut segment = Segment::new(*from, *to, PSH | ACK);
            match hand.manner {
                Manner::SlowWriter => segment.payload = b"x".to_vec(),
                Manner::SmallSegments => segment.payload = b"y".to_vec(),
                Manner::SlowReader => {
                    // As much as was allowed has come, or will.
                    hand.heard = hand.heard.wrapping_add(100);
                    (segment.flags, segment.window) = (ACK, 1000);
                }
                _ => continue,
            }
            let pieces = if hand.manner == Manner::SmallSegments { 20 } else { 1 };
            for _ in 0..pieces {
                (segment.sequence, segment.acknowledgement) = (hand.next, hand.heard);
                hand.next = segment.next();
                self.wire.send(&segment);
            }
        }
    }
}

/// The servers that the hostile client connects to: they take all connections, say much, and hear
/// nothing.
struct Accomplice {
    /// By IP version.
    addresses: [SocketAddr; 2],
    /// Connections taken in this round.
    seen: std::sync::Arc<AtomicU64>,
}

impl Accomplice {
    fn new(world: &World) -> Accomplice {
        let seen = std::sync::Arc::<AtomicU64>::default();
        let addresses = SERVER.map(|server| {
            let (listener, address) = world.listen(server);
            rustix::net::listen(&listener, 10_000).unwrap();
            let seen = seen.clone();
            thread::spawn(move || Accomplice::serve(&listener, &seen));
            address
        });
        Accomplice { addresses, seen }
    }

    fn serve(listener: &TcpListener, seen: &AtomicU64) {
        let much = vec![b'z'; 100_000];
        let mut streams: Vec<TcpStream> = Vec::new();
        listener.set_nonblocking(true).unwrap();
        loop {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    seen.fetch_add(1, Ordering::Relaxed);
                    stream.set_nonblocking(true).unwrap();
                    let _ = stream.write(&much);
                    streams.push(stream);
                }
                // A new round.
                Err(_) if seen.load(Ordering::Relaxed) == 0 && !streams.is_empty() => {
                    streams.clear()
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// Downloads of clients who mean well, at a rate that leaves the machine time for the others.
struct Good {
    received: std::sync::Arc<AtomicU64>,
    stop: std::sync::Arc<AtomicBool>,
    clients: Vec<thread::JoinHandle<()>>,
}

const RATE: u64 = 2_000_000;
const WINDOW: Duration = Duration::from_secs(2);

impl Good {
    fn new(world: &World) -> Good {
        let received = std::sync::Arc::<AtomicU64>::default();
        let stop = std::sync::Arc::<AtomicBool>::default();
        let clients = SERVER.into_iter().cycle().take(8).map(|server| {
            let (mut near, mut far) = world.pair(server);
            set_max_pacing_rate(&far, RATE).unwrap();
            thread::spawn(move || {
                let chunk = vec![1; 16_384];
                while far.write_all(&chunk).is_ok() {}
            });
            let (received, stop) = (received.clone(), stop.clone());
            thread::spawn(move || {
                let mut buffer = vec![0; 65_536];
                while !stop.load(Ordering::Relaxed) {
                    let bytes = near.read(&mut buffer).unwrap();
                    assert!(bytes > 0);
                    received.fetch_add(bytes as u64, Ordering::Relaxed);
                }
            })
        });
        Good { clients: clients.collect(), received, stop }
    }

    /// Bytes per second, from now on for a while.
    fn measure(&self) -> f64 {
        let (start, before) = (Instant::now(), self.received.load(Ordering::Relaxed));
        thread::sleep(WINDOW);
        let bytes = self.received.load(Ordering::Relaxed) - before;
        bytes as f64 / start.elapsed().as_secs_f64()
    }
}

impl Drop for Good {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.drain(..).for_each(|client| drop(client.join()));
    }
}
