//! Real links between real namespaces. They need root, or root in a user namespace; without it
//! they say that they were skipped.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use midspan_emu::{Backend, Emulator, Error, LinkConfig, PortConfig, Report};
use midspan_path::{Link, LinkSpec, Traces};
use midspan_sys::netlink::{Netlink, Route, RouteTcp};
use midspan_sys::netns::Netns;
use midspan_sys::sysctl;
use midspan_units::Span;

const LEFT: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(10, 87, 0, 1), Ipv6Addr::new(0xfd87, 0, 0, 0, 0, 0, 0, 1));
const RIGHT: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(10, 87, 0, 2), Ipv6Addr::new(0xfd87, 0, 0, 0, 0, 0, 0, 2));
const INTERFACE: &str = "link";
const MTU: u32 = 1500;

/// Two namespaces and a link between them.
struct Pair {
    left: Netns,
    right: Netns,
    emulator: Emulator,
    /// One pair at a time: they share two cores with their traffic.
    _turn: MutexGuard<'static, ()>,
}

impl Pair {
    /// `None`, said aloud, where this user may not have it.
    fn new(backend: Backend, spec: &str) -> Option<Pair> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (Ok(left), Ok(right)) = (Netns::create(), Netns::create()) else {
            eprintln!("skipped: this user may not create network namespaces");
            return None;
        };
        if backend == Backend::Tun && Backend::available() != Backend::Tun {
            eprintln!("skipped: /dev/net/tun is closed to this user");
            return None;
        }
        let config = config(backend, &left, &right);
        let emulator = midspan_emu::start(config, elements(spec)).unwrap();
        for (netns, addresses) in [(&left, LEFT), (&right, RIGHT)] {
            netns
                .run(|| {
                    let mut netlink = Netlink::open().unwrap();
                    let index = netlink.index(INTERFACE).unwrap();
                    for (address, prefix) in [(addresses.0.into(), 30), (addresses.1.into(), 64)] {
                        netlink.add_address(index, address, prefix).unwrap();
                        netlink.add_route(&on_link(address, prefix, index)).unwrap();
                    }
                    sysctl::set("net.ipv4.tcp_ecn", "1").unwrap();
                    sysctl::set("net.ipv4.tcp_no_metrics_save", "1").unwrap();
                })
                .unwrap();
        }
        Some(Pair { left, right, emulator, _turn: turn })
    }

    /// Sends `bytes` bytes from left to right over TCP, checks every one, and answers the rate in
    /// bits per second.
    fn transfer(&self, to: IpAddr, bytes: usize) -> f64 {
        let listener = self.right.run(|| TcpListener::bind((to, 0)).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut sender = self.left.run(|| TcpStream::connect(address).unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let started = Instant::now();
        thread::scope(|scope| {
            scope.spawn(move || sender.write_all(&pattern(bytes)).unwrap());
            let mut received = Vec::with_capacity(bytes);
            receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            receiver.read_to_end(&mut received).unwrap();
            assert_eq!(received.len(), bytes);
            assert!(received == pattern(bytes), "what arrived is not what was sent");
        });
        bytes as f64 * 8.0 / started.elapsed().as_secs_f64()
    }

    /// Round-trip times of `count` datagrams of `bytes` bytes, one at a time, sorted.
    fn round_trips(&self, to: IpAddr, count: usize, bytes: usize) -> Vec<Duration> {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let echo = self.right.run(|| UdpSocket::bind((to, 0)).unwrap()).unwrap();
        let address: SocketAddr = echo.local_addr().unwrap();
        let client = self.left.run(|| UdpSocket::bind(any).unwrap()).unwrap();
        for socket in [&echo, &client] {
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        }
        let mut times = thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [0; 2048];
                for _ in 0..count {
                    let (read, from) = echo.recv_from(&mut buffer).unwrap();
                    echo.send_to(&buffer[..read], from).unwrap();
                }
            });
            let payload = pattern(bytes);
            let mut buffer = [0; 2048];
            let mut ping = || {
                let sent = Instant::now();
                client.send_to(&payload, address).unwrap();
                let read = client.recv(&mut buffer).unwrap();
                assert_eq!(&buffer[..read], &payload[..]);
                sent.elapsed()
            };
            (0..count).map(|_| ping()).collect::<Vec<_>>()
        });
        times.sort();
        times
    }
}

fn config(backend: Backend, left: &Netns, right: &Netns) -> LinkConfig {
    let port =
        |netns: &Netns| PortConfig { netns: netns.clone(), interface: INTERFACE.into(), mtu: MTU };
    let shortest_rtt = Span::from_millis(1);
    LinkConfig {
        name: "test".into(),
        backend,
        left: port(left),
        right: port(right),
        shortest_rtt,
        tap: None,
    }
}

/// The way to the network that `address` is in.
fn on_link(address: IpAddr, prefix: u8, index: u32) -> Route<'static> {
    let destination = match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & !3).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    };
    Route { destination, prefix, index, gateway: None, tcp: RouteTcp::default() }
}

fn elements(spec: &str) -> Link<midspan_emu::WirePacket> {
    let spec: LinkSpec = serde_json::from_str(spec).unwrap();
    Link::new(&spec, &Traces::new(), 1).unwrap()
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

fn assert_nothing_went_astray(report: &Report) {
    assert_eq!((report.drops.total(), &report.failure), (0, &None), "{report:?}");
}

fn a_round_trip_takes_as_long_as_the_path_says(backend: Backend) {
    let spec = r#"{ "up": [{ "delay": "12 ms" }], "down": [{ "delay": "8 ms" }] }"#;
    let Some(pair) = Pair::new(backend, spec) else { return };
    // How late the slower ones are is the machine's doing.
    let path = Duration::from_millis(20);
    let mut fastest = Duration::MAX;
    for to in [RIGHT.0.into(), RIGHT.1.into()] {
        // Odd sizes too; 1452 is the largest over IPv6.
        for bytes in [1, 333, 1452] {
            let times = pair.round_trips(to, 10, bytes);
            // A thread that wakes sooner than it has been seen to takes an arrival for a little older.
            assert!(times[0] + Duration::from_micros(100) >= path, "{to}: {times:?}");
            fastest = fastest.min(times[0]);
        }
    }
    assert!(fastest < path * 3 / 2, "{fastest:?}");
    let report = pair.emulator.report();
    assert_eq!((report.up.packets_out, report.down.packets_out), (60, 60), "{report:?}");
    assert_eq!(report.lateness.count, 120);
    assert_nothing_went_astray(&report);
}

#[test]
fn a_round_trip_over_tun() {
    a_round_trip_takes_as_long_as_the_path_says(Backend::Tun);
}

#[test]
fn a_round_trip_over_packet_sockets() {
    a_round_trip_takes_as_long_as_the_path_says(Backend::Packet);
}

fn every_byte_arrives_and_the_rate_holds(backend: Backend) {
    let spec = r#"{ "up": [{ "rate": { "rate": "200 Mbit/s", "queue": { "packets": 300 } } },
                           { "delay": "2 ms" }],
                    "down": [{ "delay": "2 ms" }] }"#;
    let Some(pair) = Pair::new(backend, spec) else { return };
    for to in [RIGHT.0.into(), RIGHT.1.into()] {
        let rate = pair.transfer(to, 25_000_000);
        assert!(rate < 201e6 && rate > 100e6, "{to}: {rate}");
    }
    let report = pair.emulator.report();
    assert!(report.up.bytes_in <= report.up.packets_in * u64::from(MTU), "{report:?}");
    assert!(report.up_reads * 3 < report.up.packets_in, "super-packets come whole: {report:?}");
    assert_nothing_went_astray(&report);
}

#[test]
fn bytes_and_rate_over_tun() {
    every_byte_arrives_and_the_rate_holds(Backend::Tun);
}

#[test]
fn bytes_and_rate_over_packet_sockets() {
    every_byte_arrives_and_the_rate_holds(Backend::Packet);
}

fn what_elements_drop_and_mark_is_seen(backend: Backend) {
    let spec = r#"{ "up": [{ "loss": { "share": "2 %" } },
                           { "rate": { "rate": "100 Mbit/s",
                                       "aqm": { "ecn-threshold": { "threshold": "3 KB" } } } },
                           { "delay": "0.5 ms" }],
                    "down": [{ "delay": "0.5 ms" }] }"#;
    let Some(pair) = Pair::new(backend, spec) else { return };
    // Warm-up is forgotten when asked.
    pair.round_trips(RIGHT.0.into(), 5, 100);
    pair.emulator.restart_statistics();
    assert_eq!(pair.emulator.report().up.packets_in, 0);
    pair.transfer(RIGHT.0.into(), 10_000_000);
    let report = pair.emulator.report();
    let lost = report.up.dropped["loss"] as f64 / report.up.packets_in as f64;
    assert!((0.01..0.04).contains(&lost), "{report:?}");
    // The receiving kernel discards packets whose IP checksum a mark made wrong.
    assert!(report.up.marked > 0, "{report:?}");
    assert_nothing_went_astray(&report);
}

#[test]
fn drops_and_marks_over_tun() {
    what_elements_drop_and_mark_is_seen(Backend::Tun);
}

#[test]
fn drops_and_marks_over_packet_sockets() {
    what_elements_drop_and_mark_is_seen(Backend::Packet);
}

fn interfaces_go_with_the_emulator(backend: Backend) {
    let Some(pair) = Pair::new(backend, "{}") else { return };
    let Pair { left, right, emulator, .. } = pair;
    let taken = midspan_emu::start(config(backend, &left, &right), elements("{}"));
    let Err(error @ Error::Port { .. }) = taken else { panic!("the name was taken") };
    assert!(error.to_string().contains("link test: cannot make interface link"), "{error}");
    emulator.stop();
    let exists =
        |netns: &Netns| netns.run(|| Netlink::open().unwrap().index(INTERFACE).is_ok()).unwrap();
    // The kernel takes namespaces, and veth pairs with them, down in the background.
    let deadline = Instant::now() + Duration::from_secs(10);
    while exists(&left) || exists(&right) {
        assert!(Instant::now() < deadline, "an interface is left behind");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_stays_behind_over_tun() {
    interfaces_go_with_the_emulator(Backend::Tun);
}

#[test]
fn nothing_stays_behind_over_packet_sockets() {
    interfaces_go_with_the_emulator(Backend::Packet);
}

fn a_lost_interface_is_reported(backend: Backend) {
    let Some(pair) = Pair::new(backend, "{}") else { return };
    let delete = &mut Command::new("ip");
    let Ok(status) = pair.left.apply(delete.args(["link", "delete", "dev", INTERFACE])).status()
    else {
        eprintln!("skipped: there is no `ip` command");
        return;
    };
    assert!(status.success());
    thread::sleep(Duration::from_millis(200));
    let report = pair.emulator.report();
    let reason = report.distrust(Span::from_secs(1)).expect("a dead link is not to be believed");
    assert!(reason.to_string().starts_with("emulator failed: left port"), "{reason}");
    assert!(report.cpu_share() < 0.5, "a dead port must not be read in a loop: {report:?}");
}

#[test]
fn a_lost_interface_over_tun() {
    a_lost_interface_is_reported(Backend::Tun);
}

#[test]
fn a_lost_interface_over_packet_sockets() {
    a_lost_interface_is_reported(Backend::Packet);
}

#[test]
fn names_that_are_none_are_refused() {
    let Some(pair) = Pair::new(Backend::available(), "{}") else { return };
    for backend in [Backend::available(), Backend::Packet] {
        for name in ["", "a-name-of-more-than-15", "x%d", "a/b"] {
            let mut config = config(backend, &pair.left, &pair.right);
            config.left.interface = name.into();
            let error = midspan_emu::start(config, elements("{}")).unwrap_err().to_string();
            assert!(error.contains("1 to 15 bytes"), "{error}");
        }
    }
}

/// Runs a test of this file again as a user without any privilege, in a user namespace.
#[test]
fn packet_sockets_serve_an_ordinary_user() {
    if !midspan_sys::userns::is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let root_in_userns = ["unshare", "--user", "--map-root-user", "--net"];
    let as_user = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(nobody).args(root_in_userns).arg(program).args(arguments).output()
    };
    if !as_user("true", &[]).is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: an ordinary user may not have user namespaces here");
        return;
    }
    let this = std::env::current_exe().unwrap();
    let test = "bytes_and_rate_over_packet_sockets";
    match as_user(this.to_str().unwrap(), &[test, "--exact", "--nocapture"]) {
        Ok(output) if output.status.code() == Some(126) => {
            eprintln!("skipped: an ordinary user may not read {}", this.display());
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
            assert!(!text.contains("skipped"), "{text}");
        }
        Err(error) => panic!("{error}"),
    }
}
