//! The confirmed handshake: what a client sees of its server is what it would see without the relay.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use midspan_sys::netlink::Netlink;
use midspan_sys::sysctl;
use midspan_sys::tun::Unit;
use rustix::process::Signal;

use crate::peer::{SYN, Segment, Wire, host};
use crate::process::EARLY;
use crate::steer::{exchange, start};
use crate::world::{CLIENT, PATIENCE, SERVER, World, abort, assert_reset, ip, route};

const CONFIRMED: &str = "handshake = \"confirmed\"\n";

#[test]
fn connections_that_the_server_takes_are_split() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, CONFIRMED) else { return };
    for round in 1..=3 {
        for server in SERVER {
            let (mut near, mut far) = world.pair(server);
            assert_eq!(far.peer_addr().unwrap(), near.local_addr().unwrap());
            exchange(&mut near, &mut far);
        }
        let counts = relay.counts();
        assert_eq!((counts["accepted"], counts["held"]), (2 * round, 2 * round), "{counts:#?}");
        assert_eq!(counts["pass_unconfirmed"] + counts["pass_again"], 0);
    }
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!(counts["closed"], 6);
    relay.signal(Signal::TERM);
    assert!(relay.wait().0.success());
}

/// What a client sees of one that it tries to connect to, and when.
fn attempt(world: &World, to: SocketAddr, patience: Duration) -> (Option<ErrorKind>, Duration) {
    let start = Instant::now();
    let connected = world.client.run(|| TcpStream::connect_timeout(&to, patience)).unwrap();
    (connected.err().map(|error| error.kind()), start.elapsed())
}

#[test]
fn refusals_are_the_servers_own() {
    let Some(world) = World::new() else { return };
    // Behind the server there is a network that it knows no way to, and one that swallows everything.
    world
        .server
        .run(|| {
            sysctl::set("net.ipv4.ip_forward", "1").unwrap();
            let nft = "add table inet t; add chain inet t c { type filter hook forward priority 0 ; }; \
                       add rule inet t c ip daddr 10.2.66.0/24 drop";
            assert!(Command::new("nft").arg(nft).status().unwrap().success());
            let mut netlink = Netlink::open().unwrap();
            let link = netlink.index("downlink").unwrap();
            route(&mut netlink, "10.2.66.0", 24, link, Some("10.2.0.1")).unwrap();
            let mut ip = Command::new("ip");
            let unreachable = ip.args(["route", "add", "unreachable", "10.2.77.0/24"]).status();
            assert!(unreachable.unwrap().success());
        })
        .unwrap();
    world
        .relay
        .run(|| {
            let mut netlink = Netlink::open().unwrap();
            let link = netlink.index("wide").unwrap();
            for network in ["10.2.66.0", "10.2.77.0"] {
                route(&mut netlink, network, 24, link, Some(SERVER[0])).unwrap();
            }
        })
        .unwrap();
    let targets = [
        (SocketAddr::new(ip(SERVER[0]), 9), ErrorKind::ConnectionRefused),
        (SocketAddr::new(ip(SERVER[1]), 9), ErrorKind::ConnectionRefused),
        (SocketAddr::new(ip("10.2.77.1"), 9), ErrorKind::HostUnreachable),
        (SocketAddr::new(ip("10.2.66.1"), 9), ErrorKind::TimedOut),
    ];
    let patience = Duration::from_secs(2);
    let look = || targets.map(|(to, _)| attempt(&world, to, patience));
    let without = look();
    let Some(mut relay) = start(&world, CONFIRMED) else { return };
    let with = look();
    for (((to, expected), (seen, _)), (seen_with, took)) in targets.iter().zip(without).zip(with) {
        assert_eq!(seen, Some(*expected), "{to} without the relay");
        assert_eq!(seen_with, Some(*expected), "{to} with the relay");
        // Nobody had to wait for a retransmission.
        assert!(*expected == ErrorKind::TimedOut || took < Duration::from_secs(1), "{to} {took:?}");
    }
    let counts = relay.counts();
    assert_eq!((counts["accepted"], counts["held"]), (0, 4), "{counts:#?}");
    assert_eq!(counts["pass_unconfirmed"], 4, "{counts:#?}");
    assert_eq!(counts["connect_failed"] + counts["connect_timed_out"], 0);
}

#[test]
fn a_prefix_may_be_confirmed_alone() {
    let Some(world) = World::new() else { return };
    let settings = format!("{EARLY}[policy]\nconfirm_servers = [\"{}/32\"]\n", SERVER[0]);
    let Some(mut relay) = start(&world, &settings) else { return };
    for server in SERVER {
        let (mut near, mut far) = world.pair(server);
        exchange(&mut near, &mut far);
    }
    let counts = relay.counts();
    assert_eq!((counts["accepted"], counts["held"]), (2, 1));
    // Early: the client is told "connected", and then reset.
    assert_reset(world.connect(SocketAddr::new(ip(SERVER[1]), 9)));
    let refused = world.connect(SocketAddr::new(ip(SERVER[0]), 9)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_relay_that_hangs_or_dies_holds_nobody() {
    let Some(world) = World::new() else { return };
    for signal in [Signal::STOP, Signal::KILL] {
        let Some(relay) = start(&world, CONFIRMED) else { return };
        let (listener, address) = world.listen(SERVER[0]);
        relay.signal(signal);
        // Held by a relay that is not known to be gone yet, the SYN goes on when it is sent again.
        let mut near = world.connect(address).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        exchange(&mut near, &mut far);
        relay.signal(Signal::KILL);
        relay.wait();
    }
}

/// Stops one thread of a process, as no signal does, until its input ends.
const STOP_THREAD: &str = "import ctypes, sys
SEIZE, INTERRUPT = 0x4206, 0x4207
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
thread = int(sys.argv[1])
for request in SEIZE, INTERRUPT:
    if ptrace(request, thread, None, None):
        sys.exit(ctypes.get_errno())
print('stopped', flush=True)
sys.stdin.read()";

/// The thread of a process that bears a name. A thread names itself once it runs: on a busy machine after its process
/// has said that it is ready.
fn thread_of(process: u32, name: &str) -> String {
    let bears_it = |task: &PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        if let Some(task) = tasks.map(|task| task.unwrap().path()).find(bears_it) {
            return task.file_name().unwrap().to_string_lossy().into_owned();
        }
        assert!(Instant::now() < deadline, "no thread {name}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The workers live, but nobody takes SYNs: what is held for longer than it takes to ask again passes.
#[test]
fn a_syn_that_is_forgotten_while_it_is_held_passes() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, CONFIRMED) else { return };
    let held = thread_of(relay.pid(), "held");
    let mut stop = Command::new("python3");
    stop.args(["-c", STOP_THREAD, &held]);
    let Ok(mut stop) = stop.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        return eprintln!("skipped: no python3");
    };
    if stop.stdout.as_mut().unwrap().read(&mut [0; 16]).unwrap() == 0 {
        return eprintln!("skipped: threads may not be traced here: {:?}", stop.wait());
    }
    let (mut near, mut far) = world.pair(SERVER[0]);
    exchange(&mut near, &mut far);
    let counts = relay.counts();
    assert_eq!((counts["accepted"], counts["pass_unconfirmed"]), (0, 1), "{counts:?}");
    drop(stop.stdin.take());
    assert!(stop.wait().unwrap().success());
}

#[test]
fn a_client_that_comes_again_finds_a_new_connection() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, CONFIRMED) else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let from = SocketAddr::new(ip(CLIENT[0]), 45_678);
    for round in 1..=3 {
        let mut near = world.connect_from(from, address).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        exchange(&mut near, &mut far);
        // The server ends first, so that the client's side is free at once.
        drop(far);
        assert_eq!(near.read(&mut [0]).unwrap(), 0);
        drop(near);
        relay.until(|counts| counts["active"] == 0);
        assert!(relay.counts()["held"] >= round);
    }
}

#[test]
fn many_at_once_are_confirmed() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, CONFIRMED) else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let start = Instant::now();
    let mut pairs = Vec::new();
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let connect = |_| {
                let mut near = world.connect(address).unwrap();
                near.write_all(b"hello").unwrap();
                near
            };
            (0..300).map(connect).collect::<Vec<_>>()
        });
        for _ in 0..300 {
            let (mut far, _) = listener.accept().unwrap();
            far.read_exact(&mut [0; 5]).unwrap();
            pairs.push(far);
        }
        drop(clients.join().unwrap());
    });
    assert!(start.elapsed() < PATIENCE);
    drop(pairs);
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!((counts["accepted"], counts["pass_unconfirmed"]), (300, 0), "{counts:#?}");
}

#[test]
fn a_server_that_accepts_and_resets_resets_its_client() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, CONFIRMED) else { return };
    for server in SERVER {
        let (listener, address) = world.listen(server);
        let resets = std::thread::spawn(move || {
            for _ in 0..150 {
                abort(listener.accept().unwrap().0);
            }
        });
        for round in 0..150 {
            let start = Instant::now();
            assert_reset(world.connect(address));
            assert!(start.elapsed() < PATIENCE / 2, "{round}");
        }
        resets.join().unwrap();
    }
    relay.until(|counts| counts["active"] == 0);
}

/// SYNs of clients that do not exist leave nothing at servers but what they would leave without the relay.
#[test]
fn who_does_not_exist_has_no_connection_at_a_server() {
    let Some(world) = World::new() else { return };
    let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
    let Some(mut relay) = start(&world, CONFIRMED) else { return };
    for (version, server) in [4, 6].into_iter().zip(SERVER) {
        let (listener, address) = world.listen(server);
        for port in 0..50 {
            let from = SocketAddr::new(host(version, 202), 40_000 + port);
            wire.send(&Segment::new(from, address, SYN));
        }
        relay.until(|counts| counts["held"] >= 50 && counts["split"] >= 50);
        std::thread::sleep(Duration::from_millis(600));
        listener.set_nonblocking(true).unwrap();
        let accepted = listener.accept().map(|(_, from)| from);
        assert!(accepted.is_err(), "{accepted:?} is connected: {:?}", relay.counts());
        listener.set_nonblocking(false).unwrap();
        // Who exists is, and so soon as if nothing were kept back: servers may speak first.
        let mut times = Vec::new();
        for _ in 0..5 {
            let start = Instant::now();
            let mut near = world.connect(address).unwrap();
            let (mut far, from) = listener.accept().unwrap();
            assert_eq!(from, near.local_addr().unwrap());
            far.write_all(b"220 ready").unwrap();
            near.read_exact(&mut [0; 9]).unwrap();
            times.push(start.elapsed());
            exchange(&mut near, &mut far);
        }
        times.sort_unstable();
        assert!(times[2] < Duration::from_millis(150), "{times:?}");
    }
}
