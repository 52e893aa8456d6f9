//! What a client sees of servers that refuse, cannot be reached, are silent, reset or are slow: with
//! the relay, and without.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use midspan_sys::sysctl;
use rustix::io::Errno;
use socket2::{Domain, SockRef, Socket, Type};

use crate::process::EARLY;
use crate::steer::start;
use crate::world::{PATIENCE, SERVER, World, abort, ip};

/// How a server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    /// Nobody listens.
    Refuses,
    /// A router beyond the box says that there is no way to the host.
    Unreachable,
    /// A router beyond the box says that it may not be reached.
    Prohibited,
    /// Nothing comes back.
    Silent,
    /// Accepts, and resets.
    Resets,
    /// Misses the first SYN from a port, whoever sends it, accepts the next, says a word and ends.
    Slow,
    /// Accepts, says a word and ends.
    Works,
}

impl Server {
    const ALL: [Server; 7] = [
        Server::Refuses,
        Server::Unreachable,
        Server::Prohibited,
        Server::Silent,
        Server::Resets,
        Server::Slow,
        Server::Works,
    ];

    /// What a client sees without a relay, over IPv4 (0) or IPv6 (1).
    fn seen_without(self, version: usize) -> Seen {
        match self {
            Server::Refuses => Seen::NotConnected(Errno::CONNREFUSED),
            Server::Unreachable if version == 0 => Seen::NotConnected(Errno::HOSTUNREACH),
            Server::Unreachable => Seen::NotConnected(Errno::NETUNREACH),
            Server::Prohibited if version == 0 => Seen::NotConnected(Errno::HOSTUNREACH),
            Server::Prohibited => Seen::NotConnected(Errno::ACCESS),
            Server::Silent => Seen::NotConnected(Errno::TIMEDOUT),
            Server::Resets => Seen::Reset,
            Server::Slow | Server::Works => Seen::Word,
        }
    }

    /// What it sees with the early handshake: it is connected before the server was asked.
    fn seen_early(self, version: usize) -> Seen {
        match self.seen_without(version) {
            Seen::NotConnected(_) => Seen::Reset,
            same => same,
        }
    }
}

/// What a client sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// The handshake failed.
    NotConnected(Errno),
    /// Connected, then reset. A reset may also come so early that connect(2) reports it.
    Reset,
    /// Connected, and then there was an orderly end, after the word.
    Word,
    /// Anything else.
    Other(&'static str),
}

/// How one attempt went: what was seen, when the handshake had ended, and when all had.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    seen: Seen,
    answered: Duration,
    ended: Duration,
}

/// The same client's attempts to reach servers of all kinds.
struct Servers<'a> {
    world: &'a World,
    /// By IP version.
    listeners: Vec<TcpListener>,
}

const WORD: &[u8] = b"word";
/// The ports of silent and of slow servers, to nftables.
const SILENT: u16 = 5001;
const SLOW: u16 = 5002;

impl<'a> Servers<'a> {
    fn new(world: &'a World) -> Servers<'a> {
        for netns in [&world.client, &world.relay] {
            // One retransmission: a silent server is given up after three seconds.
            netns.run(|| sysctl::set("net.ipv4.tcp_syn_retries", "1")).unwrap().unwrap();
        }
        let rules = format!(
            "add table inet t; add chain inet t i {{ type filter hook input priority 0; }}; \
             add set inet t seen {{ typeof th sport; flags dynamic,timeout; }}; \
             add rule inet t i tcp dport {SILENT} drop; \
             add rule inet t i tcp dport {SLOW} tcp flags syn th sport != @seen \
             add @seen {{ th sport timeout 60s }} drop"
        );
        assert!(world.server.apply(Command::new("nft").arg(rules)).status().unwrap().success());
        // The server's host is a router, to networks that are not there, and says so at any rate.
        world
            .server
            .run(|| {
                for (name, value) in [
                    ("net.ipv4.ip_forward", "1"),
                    ("net.ipv6.conf.all.forwarding", "1"),
                    ("net.ipv4.icmp_ratelimit", "0"),
                    ("net.ipv6.icmp.ratelimit", "0"),
                ] {
                    sysctl::set(name, value).unwrap();
                }
            })
            .unwrap();
        for arguments in [
            "route add unreachable 10.3.0.0/24",
            "route add prohibit 10.4.0.0/24",
            "-6 route add unreachable fd03::/64",
            "-6 route add prohibit fd04::/64",
        ] {
            run_ip(&world.server, arguments);
        }
        for arguments in [
            "route add 10.3.0.0/24 via 10.2.0.2",
            "route add 10.4.0.0/24 via 10.2.0.2",
            "-6 route add fd03::/64 via fd02::2",
            "-6 route add fd04::/64 via fd02::2",
        ] {
            run_ip(&world.relay, arguments);
        }
        let listen = |address: &str, port| {
            let bind = || TcpListener::bind((ip(address), port));
            let listener = world.server.run(bind).unwrap().unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        };
        let listeners =
            SERVER.into_iter().flat_map(|server| [listen(server, 0), listen(server, SLOW)]);
        Servers { world, listeners: listeners.collect() }
    }

    /// One attempt, with an IP version.
    fn attempt(&self, server: Server, version: usize) -> Attempt {
        let [plain, slow] = [&self.listeners[2 * version], &self.listeners[2 * version + 1]];
        let at = |host: &str, port| SocketAddr::new(ip(host), port);
        let here = |port| at(SERVER[version], port);
        match server {
            // Never a listener: one just closed may live on in a child that another test is forking.
            Server::Refuses => self.connect(here(9)),
            Server::Unreachable => self.connect(at(["10.3.0.9", "fd03::9"][version], 80)),
            Server::Prohibited => self.connect(at(["10.4.0.9", "fd04::9"][version], 80)),
            Server::Silent => self.connect(here(SILENT)),
            Server::Resets => self.connect_to(plain, abort),
            Server::Slow => self.connect_to(slow, say),
            Server::Works => self.connect_to(plain, say),
        }
    }

    fn connect_to(&self, listener: &TcpListener, then: fn(TcpStream)) -> Attempt {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| serve(listener, then, &done));
            let attempt = self.connect(listener.local_addr().unwrap());
            done.store(true, Ordering::Release);
            attempt
        })
    }

    fn connect(&self, to: SocketAddr) -> Attempt {
        self.world.client.run(|| attempt(to)).unwrap()
    }
}

/// Treats all who come alike, until the attempt is `done`: a relay that has asked and was not answered in
/// time leaves a connection behind, and its client comes itself.
fn serve(listener: &TcpListener, then: fn(TcpStream), done: &AtomicBool) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => then(stream),
            Err(_) if done.load(Ordering::Acquire) => return,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn say(mut stream: TcpStream) {
    use std::io::Write;
    // Who is gone need not hear it.
    let _ = stream.write_all(WORD);
}

fn run_ip(netns: &midspan_sys::netns::Netns, arguments: &str) {
    let status = netns.apply(Command::new("ip").args(arguments.split(' '))).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Connects, as long as the kernel tries, and reads to the end.
fn attempt(to: SocketAddr) -> Attempt {
    let start = Instant::now();
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    SockRef::from(&socket).set_read_timeout(Some(PATIENCE)).unwrap();
    let connected = socket.connect(&to.into());
    let answered = start.elapsed();
    let seen = match connected {
        Ok(()) => {
            let mut heard = Vec::new();
            match TcpStream::from(socket).read_to_end(&mut heard) {
                Ok(_) if heard == WORD => Seen::Word,
                Ok(_) => Seen::Other("an orderly end without the word"),
                Err(error) if Errno::from_io_error(&error) == Some(Errno::CONNRESET) => Seen::Reset,
                Err(_) => Seen::Other("neither an end nor a reset"),
            }
        }
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::CONNRESET) => Seen::Reset,
            Some(errno) => Seen::NotConnected(errno),
            None => Seen::Other("no error of the system's"),
        },
    };
    Attempt { seen, answered, ended: start.elapsed() }
}

/// For each server and IP version an attempt without a relay, and one with a relay of these
/// settings. None, and says so, where that cannot be had.
fn compare(settings: &str) -> Option<Vec<(Server, usize, Attempt, Attempt)>> {
    let world = World::new()?;
    let servers = Servers::new(&world);
    let all = || Server::ALL.into_iter().flat_map(|server| [(server, 0), (server, 1)]);
    let servers = &servers;
    // One after the other, but for those that only wait.
    let attempts = || -> Vec<Attempt> {
        thread::scope(|scope| {
            let begin = |(server, version)| match server {
                Server::Silent => Err(scope.spawn(move || servers.attempt(server, version))),
                server => Ok(servers.attempt(server, version)),
            };
            let begun: Vec<_> = all().map(begin).collect();
            let end = |begun: Result<Attempt, thread::ScopedJoinHandle<'_, _>>| {
                begun.unwrap_or_else(|waiting| waiting.join().unwrap())
            };
            begun.into_iter().map(end).collect()
        })
    };
    let without = attempts();
    let mut relay = start(&world, settings)?;
    let with = attempts();
    let counts = relay.until(|counts| counts["active"] == 0);
    let met = counts["split"] + counts["pass_unconfirmed"];
    assert!(met as usize > all().count(), "they were not split: {counts:?}");
    let pairs = without.into_iter().zip(with);
    Some(all().zip(pairs).map(|((server, version), (a, b))| (server, version, a, b)).collect())
}

/// Waiting `longer` is of the same order of time as `shorter`, or less: no more than three times that, but
/// for what a busy machine needs anyway.
fn is_no_longer(longer: Duration, shorter: Duration) -> bool {
    let noise = Duration::from_millis(150);
    longer + noise < 3 * (shorter + noise)
}

#[test]
fn the_early_handshake_says_connected_before_the_server_was_asked() {
    let Some(compared) = compare(&format!("{EARLY}connect_timeout = \"3 s\"\n")) else { return };
    for (server, version, without, with) in compared {
        let case = format!("{server:?} over version {version}: {without:?}, {with:?}");
        assert_eq!(without.seen, server.seen_without(version), "{case}");
        assert_eq!(with.seen, server.seen_early(version), "{case}");
        assert!(with.seen != without.seen || is_no_longer(with.ended, without.ended), "{case}");
    }
}

#[test]
fn the_confirmed_handshake_shows_what_would_be_seen_without_the_relay() {
    const CONFIRMED: &str = "handshake = \"confirmed\"\n";
    let Some(compared) = compare(CONFIRMED) else { return };
    for (server, version, without, with) in compared {
        let case = format!("{server:?} over version {version}: {without:?}, {with:?}");
        assert_eq!(without.seen, server.seen_without(version), "{case}");
        assert_eq!(with.seen, without.seen, "{case}");
        assert!(is_no_longer(with.answered, without.answered), "{case}");
        assert!(is_no_longer(with.ended, without.ended), "{case}");
    }
}

/// A next hop of the box's that does not answer: the box says so in the name of a router, about a segment that it has sent
/// itself in the client's name.
#[test]
fn what_the_box_finds_unreachable_it_says_to_the_relay() {
    let Some(world) = World::new() else { return };
    for masquerades in [false, true] {
        if masquerades {
            let rules = "table inet nat { chain after { type nat hook postrouting priority srcnat; masquerade; }; }";
            crate::beside::load(&world.relay, rules);
        }
        for nobody in ["10.2.0.77", "fd02::77"] {
            let to = SocketAddr::new(ip(nobody), 80);
            let without = world.client.run(|| attempt(to)).unwrap();
            let unreachable = Seen::NotConnected(Errno::HOSTUNREACH);
            assert_eq!(without.seen, unreachable, "{without:?}");
            for (settings, seen, failed) in [(EARLY, Seen::Reset, 1), ("", unreachable, 0)] {
                let Some(mut relay) = start(&world, settings) else { return };
                let with = world.client.run(|| attempt(to)).unwrap();
                let counts = relay.counts();
                eprintln!("{nobody}: {:?} without, {:?} with the relay", without.ended, with.ended);
                assert_eq!(with.seen, seen, "{with:?}");
                let failures = (counts["connect_failed"], counts["connect_timed_out"]);
                assert_eq!(failures, (failed, 0), "{counts:?}");
                assert!(is_no_longer(with.ended, without.ended), "{without:?} {with:?}");
            }
        }
    }
}
