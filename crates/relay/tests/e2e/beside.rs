//! The relay on a box that has rules of its own: NAT towards the wide area, a firewall that goes by connection states.
//! What works without the relay works with it.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use midspan_sys::netns::Netns;

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

/// Without a relay, and with one by each way of steering that this machine has.
pub(crate) fn settings() -> Vec<Option<&'static str>> {
    let bpf = steer::is_possible().then_some("interception = \"bpf\"\n");
    std::iter::once(None).chain(bpf.map(Some)).chain([Some(NFTABLES)]).collect()
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
    let (address, server) = serve(&world, 0, 5);
    for _ in 0..5 {
        exchange(world.connect(address).unwrap());
    }
    assert_eq!(server.join().unwrap(), [ip(BOX_WIDE[0]); 5]);
    // Without rules the kernel is not asked to track anything.
    load(&world.relay, "delete table inet nat\ndelete table inet firewall\n");
    until(&|tables| !tables.contains("midspan"));
    steer::exchange(&mut near, &mut far);
    let (address, server) = serve(&world, 0, 5);
    for _ in 0..5 {
        exchange(world.connect(address).unwrap());
    }
    server.join().unwrap();
    assert_eq!(relay.counts()["accepted"], 11);
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
