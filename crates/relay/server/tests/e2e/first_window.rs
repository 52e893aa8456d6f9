//! What connections begin with: how many packets at once, and the least retransmission timeout of those to clients.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use midspan_sys::netns::Netns;
use midspan_sys::sockdiag::{TcpSocket, tcp_sockets};
use midspan_sys::sysctl;

use crate::process::{EARLY, RelayProcess};
use crate::replace::Pins;
use crate::steer::start;
use crate::world::{CLIENT, SERVER, World, ip, skip};

const RTO_MIN: &str = "net.ipv4.tcp_rto_min_us";
/// Long enough that nothing is sent again while a test looks.
const PATIENT: &str = "[client_leg]\nrto_min = \"20 s\"\n";
/// More than any window here.
const ANSWER: usize = 100_000;

/// The relay's socket of a client's connection from there: its server may have the same port.
fn client_leg(world: &World, client: SocketAddr) -> TcpSocket {
    let sockets = world.relay.run(tcp_sockets).unwrap().unwrap();
    sockets.into_iter().find(|socket| socket.remote == client).unwrap()
}

/// Has the end of a connection acknowledge nothing any more, as if the way there was long: what it sends with this port as
/// its own (`sport`) or as the other's (`dport`).
fn hush(end: &Netns, whose: &str, port: u16) {
    let rules = format!(
        "add table inet h; add chain inet h o {{ type filter hook output priority 0; }};
         add rule inet h o tcp {whose} {port} drop"
    );
    assert!(end.apply(Command::new("nft").arg(rules)).status().unwrap().success());
}

/// How many packets are on the way on a leg that has more to send and is not answered.
fn flight(leg: impl Fn() -> TcpSocket) -> u32 {
    loop {
        let info = leg().info;
        if info.unacked >= info.snd_cwnd {
            return info.snd_cwnd;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// With how many packets a new connection to a client begins: what is on the way when the answer is longer, and nothing
/// of it acknowledged.
fn first_flight(world: &World, listener: &TcpListener, address: SocketAddr) -> u32 {
    let near = world.connect(address).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let from = near.local_addr().unwrap();
    hush(&world.client, "sport", from.port());
    far.write_all(&[7; ANSWER]).unwrap();
    flight(|| client_leg(world, from))
}

/// The same of a connection to a server.
fn first_flight_up(world: &World, listener: &TcpListener, address: SocketAddr) -> u32 {
    let mut near = world.connect(address).unwrap();
    let (_far, from) = listener.accept().unwrap();
    hush(&world.server, "dport", from.port());
    near.write_all(&[7; ANSWER]).unwrap();
    flight(|| {
        let sockets = world.relay.run(tcp_sockets).unwrap().unwrap();
        let of = |socket: &TcpSocket| (socket.local, socket.remote) == (from, address);
        sockets.into_iter().find(of).unwrap()
    })
}

/// Keeps a connection of the client's busy meanwhile.
fn beside_a_busy_one<T>(world: &World, server: &str, what: impl FnOnce() -> T) -> T {
    let (mut near, mut far) = world.pair(server);
    far.write_all(b"busy").unwrap();
    near.read_exact(&mut [0; 4]).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                far.write_all(b"busy").unwrap();
                near.read_exact(&mut [0; 4]).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        let done = what();
        over.store(true, Ordering::Relaxed);
        done
    })
}

/// The same while the client's link carries 2 Mbit/s, and that connection's data wait there.
fn beside_a_queue<T>(world: &World, server: &str, what: impl FnOnce() -> T) -> T {
    tc(world, "replace dev access root tbf rate 2mbit burst 8kb limit 256kb");
    let (mut near, mut far) = world.pair(server);
    let (mut heard, stop) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    let done = thread::scope(|scope| {
        // They end when the connection is shut down.
        scope.spawn(move || while far.write_all(&[7; 8192]).is_ok() {});
        near.read_exact(&mut vec![0; 200_000]).unwrap();
        scope.spawn(move || while heard.read(&mut [0; 8192]).is_ok_and(|bytes| bytes > 0) {});
        let done = what();
        stop.shutdown(Shutdown::Both).unwrap();
        near.shutdown(Shutdown::Both).unwrap();
        done
    });
    tc(world, "del dev access root");
    done
}

fn tc(world: &World, arguments: &str) {
    let mut tc = Command::new("tc");
    let status = world.relay.apply(tc.arg("qdisc").args(arguments.split(' '))).status().unwrap();
    assert!(status.success(), "tc qdisc {arguments}");
}

/// Whether initial windows may be set here, and least timeouts are the host's to change; says so where not.
fn is_possible(world: &World) -> bool {
    if let Err(error) = midspan_steer::FirstWindow::attach() {
        skip(&error.to_string());
        return false;
    }
    let has = world.relay.run(|| sysctl::get(RTO_MIN).is_ok()).unwrap();
    if !has {
        eprintln!("skipped: {RTO_MIN} takes Linux 6.11");
    }
    has
}

#[test]
fn beside_busy_connections_on_a_slow_link_a_client_is_sent_less_at_once() {
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        let Some(world) = World::new() else { return };
        if !is_possible(&world) {
            return;
        }
        let (listener, address) = world.listen(server);
        let flight = || first_flight(&world, &listener, address);
        let settled = |settings: &str| {
            let relay = start(&world, &format!("{EARLY}{PATIENT}{settings}"))?;
            let flights = (flight(), beside_a_queue(&world, server, flight));
            drop(relay);
            Some(flights)
        };
        let Some((alone, smaller)) = settled("") else { return };
        assert!(smaller < alone, "{client}: {smaller} of {alone}");
        let other = settled("initial_window = 20\ninitial_window_beside = 5\n");
        assert_eq!(other, Some((20, 5)), "{client}");
        // Without the program.
        let as_alone = settled("initial_window_beside = 1000\n");
        assert_eq!(as_alone, Some((alone, alone)), "{client}");
    }
}

#[test]
fn beside_busy_connections_on_a_fast_link_a_client_is_sent_as_much() {
    let Some(world) = World::new() else { return };
    if !is_possible(&world) {
        return;
    }
    let (listener, address) = world.listen(SERVER[0]);
    let flight = || first_flight(&world, &listener, address);
    // Where the machine itself was slow for once it looks like the link.
    let seen = (0..3).map(|_| {
        let _relay = start(&world, &format!("{EARLY}{PATIENT}"))?;
        Some((flight(), beside_a_busy_one(&world, SERVER[0], flight)))
    });
    let seen: Vec<_> = seen.collect();
    let even = |seen: &Option<(u32, u32)>| seen.is_none_or(|(alone, beside)| alone == beside);
    assert!(seen.iter().any(even), "{seen:?}");
}

#[test]
fn a_server_is_sent_as_much_at_once_as_is_set() {
    for server in SERVER {
        let Some(world) = World::new() else { return };
        if !is_possible(&world) {
            return;
        }
        let (listener, address) = world.listen(server);
        for handshake in [EARLY, "handshake = \"confirmed\"\n"] {
            let flight = |settings: &str| {
                let _relay = start(&world, &format!("{handshake}{settings}"))?;
                Some(first_flight_up(&world, &listener, address))
            };
            let Some(kernels) = flight("") else { return };
            assert_eq!(kernels, 10, "{server} {handshake}");
            let set = flight("[server_leg]\ninitial_window = 20\n");
            assert_eq!(set, Some(20), "{server} {handshake}");
        }
    }
}

#[test]
fn two_relays_set_windows_beside_each_other() {
    let Some(world) = World::new() else { return };
    if !is_possible(&world) {
        return;
    }
    let Some(_pins) = Pins::of(&world.relay) else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let flight = || first_flight(&world, &listener, address);
    // Beside those of before, too, whose clients do not say that they are gone.
    let with = |window: u32| {
        let windows = format!("initial_window = {window}\ninitial_window_beside = {window}\n");
        format!("interception = \"bpf\"\npin = true\n{EARLY}{PATIENT}{windows}")
    };
    let first = RelayProcess::start(&world.relay, &with(7));
    assert_eq!(flight(), 7);
    let second = RelayProcess::replace(&world.relay, &with(8));
    assert_eq!(flight(), 8);
    drop(first);
    assert_eq!(flight(), 8);
    drop(second);
}

#[test]
fn the_least_timeout_is_that_of_the_client_leg_alone() {
    let Some(world) = World::new() else { return };
    if !is_possible(&world) {
        return;
    }
    let host = || world.relay.run(|| sysctl::get(RTO_MIN)).unwrap().unwrap();
    let before = host();
    for (settings, least_ms) in [("", 1000), ("[client_leg]\nrto_min = \"500 ms\"\n", 500)] {
        let Some(_relay) = start(&world, settings) else { return };
        assert_eq!(host(), before);
        let (_near, _far) = world.pair(SERVER[0]);
        let legs = world.relay.run(tcp_sockets).unwrap().unwrap();
        let rto = |end: &str| {
            let leg = legs.iter().find(|leg| leg.remote.ip() == ip(end)).unwrap();
            u64::from(leg.info.rto)
        };
        let (client, server) = (rto(CLIENT[0]), rto(SERVER[0]));
        assert!(client >= least_ms * 1000 && server < client, "{client} {server}");
    }
    // What somebody has set for the host holds for the relay too.
    world.relay.run(|| sysctl::set(RTO_MIN, "300000")).unwrap().unwrap();
    let Some(_relay) = start(&world, "") else { return };
    let (near, _far) = world.pair(SERVER[0]);
    let rto = client_leg(&world, near.local_addr().unwrap()).info.rto;
    assert!((300_000..1_000_000).contains(&rto), "{rto}");
}
