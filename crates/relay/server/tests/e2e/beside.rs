//! The relay on a box that has rules of its own: NAT towards the wide area, a firewall that goes by connection states.
//! What works without the relay works with it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use midspan_sys::netns::Netns;
use midspan_sys::sysctl;
use socket2::{Domain, Socket, Type};

use crate::process::{NFTABLES, RelayProcess};
use crate::steer;
use crate::world::{PATIENCE, SERVER, World, abort, ip, skip};

/// The box as the server sees it.
const BOX_WIDE: [&str; 2] = ["10.2.0.1", "fd02::1"];

const MASQUERADE: &str = r#"
table inet nat {
    chain after { type nat hook postrouting priority srcnat; oifname "wide" masquerade; }
}
"#;

/// What routers and firewalls have, by hand or by firewalld and ufw: what belongs to no connection is dropped.
pub(crate) const STATEFUL: &str = r#"
table inet firewall {
    chain in { type filter hook input priority filter; ct state invalid counter drop; }
    chain through { type filter hook forward priority filter; ct state invalid counter drop; }
    chain out { type filter hook output priority filter; ct state invalid counter drop; }
}
"#;

/// How many bytes go up and come down.
const UP: usize = 200_000;
const DOWN: usize = 200_000;

const BPF: &str = "interception = \"bpf\"\n";
const CONFIRMED: &str = "interception = \"bpf\"\nhandshake = \"confirmed\"\n";

/// Without a relay, and with one by each way of steering that this machine has.
pub(crate) fn settings() -> Vec<Option<&'static str>> {
    const BY_NFTABLES: &str = "interception = \"nftables\"\nforward_rules = \"ignore\"\n";
    asked().into_iter().chain([Some(BY_NFTABLES)]).collect()
}

/// The same, as far as it has this host's rules asked.
fn asked() -> Vec<Option<&'static str>> {
    match steer::is_possible() {
        true => vec![None, Some(BPF), Some(CONFIRMED)],
        false => vec![None],
    }
}

pub(crate) fn load(netns: &Netns, rules: &str) {
    let mut nft = Command::new("nft");
    let mut nft = netns.apply(nft.args(["-f", "-"]).stdin(Stdio::piped())).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success());
}

/// Packets that the rule with these words has met.
fn met(netns: &Netns, chain: &str) -> u64 {
    let mut nft = Command::new("nft");
    let said =
        netns.apply(nft.args(["list", "chain", "inet", "firewall", chain])).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let behind = said.split("counter packets ").nth(1).unwrap_or_else(|| panic!("{said}"));
    behind.split(' ').next().unwrap().parse().unwrap()
}

/// A server that takes so many bytes of each connection and answers with so many; gives whom it saw.
fn serve(
    world: &World,
    version: usize,
    connections: usize,
) -> (SocketAddr, thread::JoinHandle<Vec<IpAddr>>) {
    let (listener, address) = world.listen(SERVER[version]);
    let serve = move || {
        let one = |_| {
            let (mut far, from) = listener.accept().unwrap();
            far.set_read_timeout(Some(PATIENCE)).unwrap();
            far.read_exact(&mut vec![0; UP]).unwrap();
            far.write_all(&vec![7; DOWN]).unwrap();
            from.ip()
        };
        (0..connections).map(one).collect()
    };
    (address, thread::spawn(serve))
}

fn exchange(mut near: TcpStream) {
    near.write_all(&vec![1; UP]).unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    near.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), DOWN);
}

#[test]
fn the_servers_leg_is_translated_as_the_clients_own_packets_would_be() {
    for setting in settings() {
        let Some(world) = World::new() else { return };
        load(&world.relay, MASQUERADE);
        let relay = setting.map(|text| RelayProcess::start(&world.relay, text));
        for version in [0, 1] {
            let (address, server) = serve(&world, version, 20);
            for _ in 0..20 {
                exchange(world.connect(address).unwrap());
            }
            let seen = server.join().unwrap();
            assert!(seen.iter().all(|from| *from == ip(BOX_WIDE[version])), "{setting:?} {seen:?}");
        }
        if let Some(mut relay) = relay {
            let counts = relay.until(|counts| counts["active"] == 0);
            assert_eq!((counts["accepted"], counts["closed"]), (40, 40), "{setting:?}");
        }
    }
}

/// What policy has passed is translated by the box as ever, beside connections that are split.
#[test]
fn what_passes_is_tracked_as_ever() {
    if !steer::is_possible() {
        return skip("BPF cannot steer here");
    }
    let Some(world) = World::new() else { return };
    load(&world.relay, MASQUERADE);
    let (passed, server) = serve(&world, 0, 5);
    let settings = format!("[policy]\npass_ports = [{}]\n", passed.port());
    let mut relay = RelayProcess::start(&world.relay, &settings);
    let (split, other) = serve(&world, 0, 5);
    for _ in 0..5 {
        exchange(world.connect(passed).unwrap());
        exchange(world.connect(split).unwrap());
    }
    for server in [server, other] {
        assert_eq!(server.join().unwrap(), [ip(BOX_WIDE[0]); 5]);
    }
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!((counts["accepted"], counts["pass_port"]), (5, 5), "{counts:?}");
}

/// Both legs have the same addresses and ports. Connection tracking must not take what the one acknowledges for the
/// other's: segments would be "invalid".
#[test]
fn a_firewall_that_drops_invalid_packets_finds_none() {
    for setting in settings() {
        let Some(world) = World::new() else { return };
        load(&world.relay, STATEFUL);
        let relay = setting.map(|text| RelayProcess::start(&world.relay, text));
        for version in [0, 1] {
            let (address, server) = serve(&world, version, 25);
            for _ in 0..25 {
                exchange(world.connect(address).unwrap());
            }
            server.join().unwrap();
            // Resets reach the other side, from either.
            for client_resets in [true, false] {
                for _ in 0..5 {
                    let (mut near, mut far) = world.pair(SERVER[version]);
                    near.write_all(b"x").unwrap();
                    far.read_exact(&mut [0]).unwrap();
                    let mut left =
                        if client_resets { (abort(near), far).1 } else { (abort(far), near).1 };
                    assert!(left.read(&mut [0]).is_err(), "{setting:?}: no reset");
                }
            }
        }
        // One may come behind a reset, as without a relay.
        for chain in ["in", "through", "out"] {
            let met = met(&world.relay, chain);
            assert!(met <= 20, "{setting:?}: {met} packets were dropped in `{chain}`");
        }
        if let Some(mut relay) = relay {
            let counts = relay.until(|counts| counts["active"] == 0);
            assert_eq!(counts["accepted"], 70, "{setting:?}");
        }
    }
}

/// Rules may come and go while the relay runs.
#[test]
fn rules_that_come_later_are_met_too() {
    if !steer::is_possible() {
        return skip("BPF cannot steer here");
    }
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, "");
    let (mut near, mut far) = world.pair(SERVER[0]);
    let tables = || {
        let mut nft = Command::new("nft");
        let said = world.relay.apply(nft.args(["list", "tables"])).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    let until = |wanted: &dyn Fn(&str) -> bool| {
        let start = std::time::Instant::now();
        while !wanted(&tables()) {
            assert!(start.elapsed() < PATIENCE, "still {}", tables());
            thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    assert!(!tables().contains("midspan"), "{}", tables());
    load(&world.relay, STATEFUL);
    until(&|tables| tables.contains("midspan_legs"));
    steer::exchange(&mut near, &mut far);
    load(&world.relay, MASQUERADE);
    let connect = |relay: &mut RelayProcess, connections: usize| {
        let before = relay.counts()["accepted"];
        let (address, server) = serve(&world, 0, connections);
        for _ in 0..connections {
            exchange(world.connect(address).unwrap());
        }
        (server.join().unwrap(), relay.counts()["accepted"] - before)
    };
    // Before the relay has heard of it some pass, and some are split.
    let start = std::time::Instant::now();
    loop {
        let (seen, split) = connect(&mut relay, 1);
        assert_eq!(seen, [ip(BOX_WIDE[0])]);
        if split == 1 && start.elapsed() > Duration::from_millis(500) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{:?}", relay.counts());
    }
    assert_eq!(connect(&mut relay, 5), (vec![ip(BOX_WIDE[0]); 5], 5));
    // Without rules the kernel is not asked to track anything.
    load(&world.relay, "delete table inet nat\ndelete table inet firewall\n");
    until(&|tables| !tables.contains("midspan"));
    steer::exchange(&mut near, &mut far);
    let (_, split) = connect(&mut relay, 5);
    assert_eq!(split, 5, "{:?}", relay.counts());
}

/// Clients of IPv4 alone, on a box where IPv6 is switched off.
#[test]
fn a_box_without_ipv6_serves_clients_of_ipv4() {
    let Some(world) = World::new() else { return };
    let off = || midspan_sys::sysctl::set("net.ipv6.conf.all.disable_ipv6", "1");
    world.relay.run(off).unwrap().unwrap();
    for (settings, clients) in [
        ("", "[\"10.0.0.0/8\"]"),
        (NFTABLES, "[\"10.0.0.0/8\"]"),
        ("", "[\"10.0.0.0/8\", \"fd00::/8\"]"),
    ] {
        let mut relay =
            RelayProcess::start(&world.relay, &format!("clients = {clients}\n{settings}"));
        let (address, server) = serve(&world, 0, 2);
        exchange(world.connect(address).unwrap());
        exchange(world.connect(address).unwrap());
        server.join().unwrap();
        assert_eq!(relay.counts()["accepted"], 2);
    }
}

/// How a connect ends, told quickly.
fn attempt(world: &World, to: SocketAddr) -> io::Result<()> {
    let connect = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.connect_timeout(&to.into(), Duration::from_millis(400))?;
        // With the early handshake the server has not been asked yet.
        socket.set_read_timeout(Some(Duration::from_millis(400)))?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])
    };
    world.client.run(connect).unwrap()
}

/// Answers each connection with what it has read, for as long as the test runs; counts them.
fn echo(world: &World, version: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let (listener, address) = world.listen(SERVER[version]);
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    thread::spawn(move || {
        for far in listener.incoming() {
            let mut far = far.unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
            let mut byte = [0];
            if far.read_exact(&mut byte).is_ok() {
                let _ = far.write_all(&byte);
            }
        }
    });
    (address, seen)
}

/// What a client could not reach without the relay it does not reach with it.
#[test]
fn what_rules_do_not_forward_is_not_reached() {
    for setting in asked() {
        let Some(world) = World::new() else { return };
        let ends = [0, 1].map(|version| echo(&world, version));
        let others = [0, 1].map(|version| echo(&world, version));
        let rejected = [0, 1].map(|version| echo(&world, version));
        let rules = |verdict: &str, ports: [u16; 2]| {
            let [four, six] = ports;
            format!("tcp dport {{ {four}, {six} }} {verdict};")
        };
        let ports = |of: &[(SocketAddr, Arc<AtomicUsize>); 2]| [of[0].0.port(), of[1].0.port()];
        load(
            &world.relay,
            &format!(
                "table inet firewall {{ chain through {{ type filter hook forward priority filter; {} {} }}; }}",
                rules("drop", ports(&ends)),
                rules("reject with tcp reset", ports(&rejected)),
            ),
        );
        let relay = setting.map(|text| RelayProcess::start(&world.relay, text));
        for version in [0, 1] {
            let (dropped, seen) = &ends[version];
            for _ in 0..3 {
                let error = attempt(&world, *dropped).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TimedOut, "{setting:?} {error}");
            }
            assert_eq!(seen.load(Ordering::Relaxed), 0, "{setting:?}");
            let (refused, seen) = &rejected[version];
            let error = attempt(&world, *refused).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{setting:?} {error}");
            assert_eq!(seen.load(Ordering::Relaxed), 0, "{setting:?}");
            for _ in 0..10 {
                attempt(&world, others[version].0).unwrap();
            }
        }
        if let Some(mut relay) = relay {
            let counts = relay.until(|counts| counts["active"] == 0);
            assert_eq!(counts["accepted"], 20, "{setting:?} {counts:?}");
            // What was found of one connection holds for the next.
            assert_eq!(counts["consulted"], 2 + 6 + 2, "{setting:?} {counts:?}");
        }
    }
}

/// Rules that come later hold for the next connection, and rules that go no longer.
#[test]
fn rules_for_what_is_forwarded_may_change() {
    for setting in asked().into_iter().flatten() {
        let Some(world) = World::new() else { return };
        let (address, seen) = echo(&world, 0);
        let mut relay = RelayProcess::start(&world.relay, setting);
        attempt(&world, address).unwrap();
        let rules = format!(
            "table inet firewall {{ chain through {{ type filter hook forward priority filter; tcp dport {} drop; }}; }}",
            address.port()
        );
        for round in 1..=2 {
            load(&world.relay, &rules);
            until_it(|| attempt(&world, address).is_err());
            let before = seen.load(Ordering::Relaxed);
            attempt(&world, address).unwrap_err();
            assert_eq!(seen.load(Ordering::Relaxed), before, "{setting}");
            load(&world.relay, "delete table inet firewall\n");
            until_it(|| attempt(&world, address).is_ok());
            let accepted = relay.counts()["accepted"];
            attempt(&world, address).unwrap();
            assert!(relay.counts()["accepted"] > accepted, "{setting} {round}");
        }
    }
}

fn until_it(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE);
    }
}

/// Rules that give connections another destination (DNAT), or keep them on the box, as captive portals do.
#[test]
fn what_rules_send_elsewhere_gets_there() {
    for setting in asked() {
        let Some(world) = World::new() else { return };
        let (address, seen) = echo(&world, 0);
        let mut ip = Command::new("ip");
        let ip = ip.args(["route", "add", "default", "via", SERVER[0]]);
        assert!(world.relay.apply(ip).status().unwrap().success());
        let portal = world.relay.run(|| TcpListener::bind("0.0.0.0:8888")).unwrap().unwrap();
        thread::spawn(move || {
            for mut far in portal.incoming().flatten() {
                let _ = far.read_exact(&mut [0]).and_then(|()| far.write_all(b"p"));
            }
        });
        load(
            &world.relay,
            &format!(
                "table ip nat {{ chain before {{ type nat hook prerouting priority dstnat; \
                 ip daddr 203.0.113.7 tcp dport 80 dnat to {address}; \
                 ip daddr 203.0.113.8 tcp dport 80 redirect to :8888; }}; \
                 chain after {{ type nat hook postrouting priority srcnat; oifname \"wide\" masquerade; }}; }}"
            ),
        );
        let relay = setting.map(|text| RelayProcess::start(&world.relay, text));
        for _ in 0..4 {
            attempt(&world, "203.0.113.7:80".parse().unwrap())
                .unwrap_or_else(|error| panic!("{setting:?} {error}"));
            attempt(&world, "203.0.113.8:80".parse().unwrap())
                .unwrap_or_else(|error| panic!("{setting:?} {error}"));
            attempt(&world, address).unwrap();
        }
        assert_eq!(seen.load(Ordering::Relaxed), 8, "{setting:?}");
        if let Some(mut relay) = relay {
            let counts = relay.until(|counts| counts["active"] == 0);
            assert_eq!(
                (counts["accepted"], counts["pass_translated"]),
                (4, 4),
                "{setting:?} {counts:?}"
            );
        }
    }
}

/// Where the box takes no packet that comes in by another link than it would send to its source.
#[test]
fn strict_reverse_path_filters_let_held_connections_in() {
    for setting in asked() {
        let Some(world) = World::new() else { return };
        let strict = || {
            for name in ["all", "default", "access", "wide"] {
                sysctl::set(&format!("net.ipv4.conf.{name}.rp_filter"), "1")?;
            }
            Ok::<_, io::Error>(())
        };
        world.relay.run(strict).unwrap().unwrap();
        load(
            &world.relay,
            "table inet firewall { chain through { type filter hook forward priority filter; accept; }; }",
        );
        let relay = setting.map(|text| RelayProcess::start(&world.relay, text));
        for version in [0, 1] {
            let (address, _) = echo(&world, version);
            for _ in 0..5 {
                attempt(&world, address).unwrap_or_else(|error| panic!("{setting:?} {error}"));
            }
        }
        if let Some(mut relay) = relay {
            let counts = relay.until(|counts| counts["active"] == 0);
            assert_eq!(
                (counts["accepted"], counts["pass_again"]),
                (10, 0),
                "{setting:?} {counts:?}"
            );
        }
    }
}

/// Rules for what comes in for the box, as firewalls have them: the loopback, what is established, and hardly more; and
/// firewalld's filter of reverse paths.
#[test]
fn a_box_that_lets_in_nothing_splits_what_it_forwards() {
    const CLOSED: &str = r#"
table inet firewall {
    chain before { type filter hook prerouting priority filter + 10; icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept;
        fib saddr . mark . iif oif missing drop; }
    chain in { type filter hook input priority filter; policy drop;
        ct state established,related accept; iifname "lo" accept; meta l4proto 58 accept; counter drop; }
    chain through { type filter hook forward priority filter; policy drop;
        ct state established,related accept; iifname "access" oifname "wide" accept; }
}
"#;
    for setting in asked() {
        let Some(world) = World::new() else { return };
        load(&world.relay, CLOSED);
        let relay = setting.map(|text| RelayProcess::start(&world.relay, text));
        for version in [0, 1] {
            let (address, server) = serve(&world, version, 10);
            for _ in 0..10 {
                exchange(world.connect(address).unwrap());
            }
            server.join().unwrap();
        }
        assert_eq!(met(&world.relay, "in"), 0, "{setting:?}");
        if let Some(mut relay) = relay {
            let counts = relay.until(|counts| counts["active"] == 0);
            assert_eq!(counts["accepted"], 20, "{setting:?} {counts:?}");
        }
    }
}

/// Rules that nftables cannot ask are not bypassed by it.
#[test]
fn nftables_interception_refuses_to_bypass_rules() {
    let Some(world) = World::new() else { return };
    load(&world.relay, STATEFUL);
    let config = "clients = [\"10.0.0.0/8\"]\ninterception = \"nftables\"\n";
    let start = |text: &str| {
        let config = text.parse().unwrap();
        world.relay.run(|| midspan_relay::Relay::start(config).map(drop)).unwrap()
    };
    let said = start(config).unwrap_err().to_string();
    assert!(said.contains("`firewall`") && said.contains("forward_rules"), "{said}");
    start(&format!("{config}forward_rules = \"ignore\"\n")).unwrap();
}
