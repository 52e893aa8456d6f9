//! Steering by BPF: what is split, what is not, and that it fails open.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use midspan_steer::{Options, Steering};
use midspan_sys::netlink::Netlink;
use midspan_sys::sysctl;
use midspan_sys::tun::Unit;
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};

use crate::hand::{Hand, accept};
use crate::load::Side;
use crate::observe::{lines, of_kind};
use crate::peer::{Wire, host};
use crate::process::{EARLY, RelayProcess};
use crate::replace::Pins;
use crate::world::{BOX, CLIENT, PATIENCE, SERVER, World, await_link, ip, route, skip, up};

/// Whether BPF may steer here; says so where it may not.
pub(crate) fn is_possible() -> bool {
    match Steering::load(Options { workers: 1, mark: 1, pin: false }) {
        Ok(_) => true,
        // EPERM: this user may not. A program that the verifier refuses is EACCES, and a fault.
        Err(midspan_steer::Error::Load(error)) if error.to_string().contains("os error 1)") => {
            skip("BPF programs may not be loaded here");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// A relay that BPF steers to; `None`, and says so, where that may not be.
pub(crate) fn start(world: &World, settings: &str) -> Option<RelayProcess> {
    let settings = format!("interception = \"bpf\"\n{settings}");
    is_possible().then(|| RelayProcess::start(&world.relay, &settings))
}

/// Data crosses, both ways.
pub(crate) fn exchange(near: &mut TcpStream, far: &mut TcpStream) {
    near.write_all(b"ping").unwrap();
    let mut word = [0; 4];
    far.read_exact(&mut word).unwrap();
    far.write_all(b"pong").unwrap();
    near.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"pong");
}

#[test]
fn connections_of_both_families_are_split_and_nothing_is_left() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "") else { return };
    // The proofs' connections are split too, and as many of them as it took.
    let proofs = relay.counts()["split"];
    for server in SERVER {
        let (mut near, mut far) = world.pair(server);
        exchange(&mut near, &mut far);
    }
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!((counts["accepted"], counts["closed"]), (2, 2));
    assert!(counts["probes"] >= 2, "{counts:?}");
    assert_eq!(counts["split"] - proofs, 2);
    assert!(counts["steered"] >= 12 && counts["not_steered"] == 0, "{counts:?}");
    relay.signal(Signal::KILL);
    relay.wait();
    let out = world.relay.apply(Command::new("ip").args(["link"])).output().unwrap();
    assert!(!String::from_utf8(out.stdout).unwrap().contains("proof"));
    for server in SERVER {
        let (mut near, mut far) = world.pair(server);
        exchange(&mut near, &mut far);
    }
}

/// The server answers its client straight, past the box.
fn bypass(world: &World) {
    use std::os::fd::AsFd;
    world
        .server
        .run(|| {
            let mut netlink = Netlink::open()?;
            netlink.add_veth("bypass", "back", world.client.as_fd())?;
            let link = up(&mut netlink, "bypass", &["10.9.0.1"])?;
            route(&mut netlink, "10.1.0.0", 24, link, Some("10.9.0.2"))
        })
        .unwrap()
        .and_then(|()| world.client.run(|| up(&mut Netlink::open()?, "back", &["10.9.0.2"]))?)
        .unwrap();
    for netns in [&world.client, &world.server] {
        netns
            .run(|| {
                sysctl::set("net.ipv4.conf.all.rp_filter", "0").unwrap();
                await_link(if netns.inode().unwrap() == world.client.inode().unwrap() {
                    "10.9.0.1"
                } else {
                    "10.9.0.2"
                });
            })
            .unwrap();
    }
}

#[test]
fn a_server_that_answers_by_another_way_is_split_no_more() {
    let Some(world) = World::new() else { return };
    let settings = format!("{EARLY}connect_timeout = \"4 s\"\n");
    let Some(mut relay) = start(&world, &settings) else { return };
    bypass(&world);
    let (listener, address) = world.listen(SERVER[0]);
    // The relay never sees an answer, so this one is lost.
    let mut lost = world.connect(address).unwrap();
    assert_eq!(lost.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(relay.counts()["doubts"], 1);
    for round in 1..4 {
        let mut near = world.connect(address).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        exchange(&mut near, &mut far);
        let counts = relay.counts();
        assert_eq!((counts["pass_asymmetric"], counts["asymmetric"]), (round, 1));
    }
    // Where answers do come by here, connections are split.
    let (mut near, mut far) = world.pair(SERVER[1]);
    exchange(&mut near, &mut far);
    assert_eq!(relay.counts()["accepted"], 2);
}

#[test]
fn a_silent_server_is_split_again_once_it_answers() {
    let Some(world) = World::new() else { return };
    let settings = format!("{EARLY}connect_timeout = \"4 s\"\n");
    let Some(mut relay) = start(&world, &settings) else { return };
    let drop_all = [
        "add table inet t; add chain inet t c { type filter hook input priority 0 ; policy drop ; }",
    ];
    let nft = |arguments: &[&str]| {
        let mut command = Command::new("nft");
        assert!(world.server.apply(command.args(arguments)).status().unwrap().success());
    };
    nft(&drop_all);
    let (listener, address) = world.listen(SERVER[0]);
    let mut lost = world.connect(address).unwrap();
    assert_eq!(lost.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    nft(&["flush", "ruleset"]);
    // The first passes, and shows that its answer comes by here.
    for (accepted, passed) in [(1, 1), (2, 1)] {
        let mut near = world.connect(address).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        exchange(&mut near, &mut far);
        let counts = relay.counts();
        assert_eq!((counts["accepted"], counts["pass_asymmetric"]), (accepted, passed));
        assert_eq!(counts["asymmetric"], 0);
    }
}

#[test]
fn a_killed_relay_resets_its_flows_and_new_ones_pass() {
    let Some(world) = World::new() else { return };
    for _ in 0..2 {
        let Some(relay) = start(&world, "") else { return };
        let (mut near, mut far) = world.pair(SERVER[0]);
        exchange(&mut near, &mut far);
        relay.signal(Signal::KILL);
        for end in [&mut near, &mut far] {
            assert_eq!(end.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
        relay.wait();
        let (mut near, mut far) = world.pair(SERVER[0]);
        exchange(&mut near, &mut far);
    }
}

#[test]
fn past_a_relay_that_hangs_new_connections_pass() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "") else { return };
    let (mut near, mut far) = world.pair(SERVER[0]);
    exchange(&mut near, &mut far);
    relay.signal(Signal::STOP);
    // It counts as dead from half a second on.
    thread::sleep(Duration::from_millis(600));
    for server in SERVER {
        let (mut near, mut far) = world.pair(server);
        exchange(&mut near, &mut far);
    }
    relay.signal(Signal::CONT);
    let counts = relay.until(|counts| counts["pass_no_relay"] == 2);
    assert_eq!(counts["accepted"], 1);
    exchange(&mut near, &mut far);
    let (mut near, mut far) = world.pair(SERVER[0]);
    exchange(&mut near, &mut far);
    assert_eq!(relay.counts()["accepted"], 2);
    // Accounts are kept as before, too.
    drop((near, far));
    relay.until(|counts| counts["split_connections"] > 0);
}

#[test]
fn a_draining_relay_lets_new_connections_pass() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "") else { return };
    let (mut near, mut far) = world.pair(SERVER[0]);
    relay.signal(Signal::TERM);
    // The workers are told, and say so, before long.
    let start = Instant::now();
    let mut new = world.pair(SERVER[0]);
    while relay.counts()["pass_no_relay"] == 0 {
        assert!(start.elapsed() < PATIENCE);
        new = world.pair(SERVER[0]);
    }
    exchange(&mut near, &mut far);
    drop((near, far));
    let (status, counts) = relay.wait();
    assert!(status.success());
    assert_eq!(counts.unwrap()["stopped"], 0);
    exchange(&mut new.0, &mut new.1);
}

#[test]
fn what_the_policy_leaves_alone_passes() {
    let Some(world) = World::new() else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let port = address.port();
    for (policy, verdict) in [
        (format!("pass_ports = [{port}]"), "pass_port"),
        (format!("split_ports = [\"1-{}\"]", port - 1), "pass_port"),
        ("pass_servers = [\"10.2.0.0/16\"]".into(), "pass_server"),
        ("split_servers = [\"10.3.0.0/16\"]".into(), "pass_server"),
        ("pass_clients = [\"10.1.0.0/24\"]".into(), "pass_client"),
        ("holdout = 1000".into(), "pass_holdout"),
        ("pass_dscp = [46]".into(), "pass_dscp"),
    ] {
        let Some(mut relay) = start(&world, &format!("[policy]\n{policy}\n")) else { return };
        let mut near = world.client.run(|| connect_marked(address, 46)).unwrap().unwrap();
        let (mut far, _) = listener.accept().unwrap();
        exchange(&mut near, &mut far);
        let counts = relay.counts();
        assert_eq!((counts[verdict], counts["accepted"]), (1, 0), "{policy}: {counts:?}");
    }
}

/// Connects with a code point.
fn connect_marked(to: SocketAddr, dscp: u32) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_tos_v4(dscp << 2)?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

#[test]
fn a_holdout_is_a_share_of_connections() {
    const CONNECTIONS: u64 = 400;
    let Some(world) = World::new() else { return };
    let settings = "[policy]\nholdout = 250\nholdout_slot = \"0 s\"\n";
    let Some(mut relay) = start(&world, settings) else { return };
    let (listener, address) = world.listen(SERVER[0]);
    for _ in 0..CONNECTIONS {
        drop(world.connect(address).unwrap());
        drop(listener.accept().unwrap());
    }
    let counts = relay.counts();
    assert_eq!(counts["accepted"] + counts["pass_holdout"], CONNECTIONS);
    // Six standard deviations around a quarter.
    assert!((48..=152).contains(&counts["pass_holdout"]), "{counts:?}");
}

/// What a subscriber does in a slot is of one kind, so that its connections do not slow down those that they are compared
/// with.
#[test]
fn a_holdout_is_a_share_of_subscribers() {
    const SUBSCRIBERS: u16 = 200;
    const EACH: u64 = 3;
    let Some(world) = World::new() else { return };
    let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows.jsonl");
    let settings = format!(
        "account_idle = \"1 s\"\n[policy]\nholdout = 250\nholdout_slot = \"24 h\"\n[flow_log]\npath = {path:?}\n"
    );
    let Some(mut relay) = start(&world, &format!("{EARLY}{settings}")) else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let mut out = 0;
    for subscriber in 2..2 + SUBSCRIBERS {
        let before = relay.counts()["pass_holdout"];
        for port in 0..EACH as u16 {
            let from = SocketAddr::new(host(4, subscriber), 40_000 + port);
            Hand::open(&wire, from, address, 7);
            drop(accept(&listener));
        }
        let held_out = relay.counts()["pass_holdout"] - before;
        assert!(held_out == 0 || held_out == EACH, "{held_out}");
        out += held_out / EACH;
    }
    // Six standard deviations around a quarter.
    assert!((13..=87).contains(&out), "{out}");
    relay.until(|now| now["split_connections"] > 0 && now["holdout_connections"] > 0);
    let waited = Instant::now();
    loop {
        assert!(waited.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(50));
        let told = of_kind(lines(&path), "path");
        let Some(line) = told.iter().find(|line| line["verdict"] == "pass_holdout") else {
            continue;
        };
        assert_eq!(line["holdout"], 0.25);
        let slot: Vec<_> = told.iter().map(|line| &line["slot"]).collect();
        assert!(slot.iter().all(|slot| slot.is_string()), "{slot:?}");
        assert!(slot.iter().all(|one| *one == slot[0]), "{slot:?}");

        return;
    }
}

#[test]
fn past_a_limit_new_connections_pass_and_old_ones_go_on() {
    let Some(world) = World::new() else { return };
    for (limit, verdict) in
        [("flows = 2", "pass_full"), ("flows_per_client = 2", "pass_client_full")]
    {
        let Some(mut relay) = start(&world, &format!("workers = 1\n[limits]\n{limit}\n")) else {
            return;
        };
        let mut pairs: Vec<_> = (0..2).map(|_| world.pair(SERVER[0])).collect();
        // The limit is known once the worker has said so.
        relay.until(|counts| counts["accepted"] == 2);
        thread::sleep(Duration::from_millis(250));
        // Not by what the proof's attempts have met with.
        let before = relay.counts()[verdict];
        pairs.push(world.pair(SERVER[0]));
        let counts = relay.counts();
        assert_eq!((counts["accepted"], counts[verdict] - before), (2, 1), "{counts:?}");
        pairs.iter_mut().for_each(|(near, far)| exchange(near, far));
        drop(pairs);
        relay.until(|counts| counts["active"] == 0);
        // Nor does anybody know at once that there is room.
        relay.until(|counts| {
            drop(world.pair(SERVER[0]));
            counts["accepted"] >= 3
        });
    }
}

#[test]
fn a_client_that_opens_too_many_is_passed() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "[limits]\nsyn_rate = 5\n") else { return };
    let _open: Vec<_> = (0..40).map(|_| world.pair(SERVER[0])).collect();
    let counts = relay.counts();
    // Ten at once, and five for each second since.
    assert!(counts["accepted"] >= 10 && counts["pass_rate"] > 0, "{counts:?}");
    assert_eq!(counts["accepted"] + counts["pass_rate"], 40);
}

#[test]
fn connections_to_the_box_itself_are_its_own() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "") else { return };
    for own in BOX {
        let listener = world.relay.run(|| TcpListener::bind((ip(own), 0))).unwrap().unwrap();
        let mut near = world.connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        exchange(&mut near, &mut far);
    }
    let counts = relay.counts();
    assert_eq!((counts["accepted"], counts["pass_local"]), (0, 2));
}

/// The addresses of a split connection that the relay has in TIME-WAIT are used again: by one that
/// is split, and, with no relay, by one that is not.
#[test]
fn addresses_in_time_wait_may_be_used_again() {
    let Some(world) = World::new() else { return };
    let Some(_pins) = Pins::of(&world.relay) else { return };
    // The client remembers none of its connections, or it could not open the same again.
    world.client.run(|| sysctl::set("net.ipv4.tcp_max_tw_buckets", "0")).unwrap().unwrap();
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        for (ends_first, port) in [(Side::Server, 41_000), (Side::Client, 41_001)] {
            let Some(mut relay) = start(&world, "pin = true\n") else { return };
            let (listener, address) = world.listen(server);
            let from = SocketAddr::new(ip(client), port);
            let before = relay.counts()["reopened"];
            for round in 0..3 {
                let mut near = world.connect_from(from, address).unwrap();
                let (mut far, _) = listener.accept().unwrap();
                exchange(&mut near, &mut far);
                // The relay ends first towards the other side, and has that leg in TIME-WAIT.
                let (first, second) = match ends_first {
                    Side::Client => (&near, &mut far),
                    Side::Server => (&far, &mut near),
                };
                first.shutdown(Shutdown::Write).unwrap();
                assert_eq!(second.read(&mut [0]).unwrap(), 0);
                drop((near, far));
                let counts = relay.until(|counts| counts["active"] == 0);
                let reopened = if ends_first == Side::Server { round } else { 0 };
                assert_eq!(counts["accepted"], round + 1, "{counts:?}");
                assert_eq!(counts["reopened"] - before, reopened, "{counts:?}");
            }
            relay.signal(Signal::KILL);
            relay.wait();
            let mut near = world.connect_from(from, address).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            exchange(&mut near, &mut far);
        }
    }
}

const NO_INPUT: &str = "add table inet t; add chain inet t i { type filter hook input priority 0; }; \
     add rule inet t i meta mark 0x4d53 drop";

#[test]
fn a_firewall_that_eats_what_is_steered_is_noticed() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "") else { return };
    let eat = || Command::new("nft").arg(NO_INPUT).status().unwrap().success();
    assert!(world.relay.run(eat).unwrap());
    // A running relay: the SYN that is sent again passes.
    let (mut near, mut far) = world.pair(SERVER[0]);
    exchange(&mut near, &mut far);
    // Unless the relay has noticed before.
    let counts = relay.counts();
    assert_eq!(counts["pass_unreached"] + counts["pass_unproven"], 1, "{counts:?}");
    drop(relay);
    // A new one does not even begin.
    let config = format!("{}interception = \"bpf\"\n", crate::process::CLIENTS).parse().unwrap();
    let new = world.relay.run(|| midspan_relay::Relay::start(config).map(drop)).unwrap();
    let said = new.unwrap_err().to_string();
    assert!(said.contains("over IPv4 does not arrive") && said.contains("firewall"), "{said}");
}
