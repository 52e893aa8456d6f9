//! What each end sees: addresses, bytes, FINs, resets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use midspan_ccload::{Algorithm, Controls, Options};
use midspan_sys::netlink::Netlink;
use midspan_sys::netns::Netns;
use midspan_sys::sockdiag::tcp_sockets;
use midspan_sys::sysctl;

use crate::process::{EARLY, NFTABLES, RelayProcess};
use crate::world::{
    CLIENT, PATIENCE, SERVER, World, abort, assert_reset, await_link, ip, route, up,
};

#[test]
fn the_server_sees_the_clients_own_address_and_port() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, "");
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        let (listener, address) = world.listen(server);
        let from = SocketAddr::new(ip(client), 40_123);
        let mut near = world.connect_from(from, address).unwrap();
        let (mut far, seen) = listener.accept().unwrap();
        assert_eq!((seen.ip(), seen.port()), (from.ip(), from.port()));
        assert_eq!(near.peer_addr().unwrap().ip(), ip(server));
        near.write_all(b"ping").unwrap();
        let mut word = [0; 4];
        far.read_exact(&mut word).unwrap();
        far.write_all(b"pong").unwrap();
        near.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"pong");
    }
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!((counts["accepted"], counts["closed"]), (2, 2));
    for direction in ["from_client", "to_server", "from_server", "to_client"] {
        assert_eq!(counts[&format!("bytes_{direction}")], 8);
    }
}

#[test]
fn a_client_may_use_the_relays_port_number_as_its_own() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, NFTABLES);
    let (listener, address) = world.listen(SERVER[0]);
    let near = world.connect_from(SocketAddr::new(ip(CLIENT[0]), 8742), address).unwrap();
    let (mut far, seen) = listener.accept().unwrap();
    assert_eq!(seen.port(), 8742);
    far.write_all(b"hello").unwrap();
    drop(far);
    let mut text = String::new();
    (&near).read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    assert_eq!(relay.counts()["accepted"], 1);
}

/// Midspan's own controls need not be loaded before, if this user may load them.
#[test]
fn a_leg_has_a_control_of_midspans_own_that_its_configuration_names() {
    let Some(world) = World::new() else { return };
    let westwood = Algorithm::named("westwood").unwrap();
    let Ok(held) = Controls::default().hold(westwood, &Options::default()) else { return };
    drop(held);
    let _relay =
        RelayProcess::start(&world.relay, "[client_leg]\ncongestion_control = \"ms_westwood\"\n");
    let (_near, _far) = world.pair(SERVER[0]);
    let sockets = world.relay.run(tcp_sockets).unwrap().unwrap();
    let control_to = |address| {
        let mut sockets = sockets.iter();
        &sockets.find(|socket| socket.remote.ip() == ip(address)).unwrap().congestion_control
    };
    assert_eq!(control_to(CLIENT[0]), "ms_westwood");
    assert_ne!(control_to(SERVER[0]), "ms_westwood");
}

/// Where nothing is named the client's leg has the control for a radio link, if this user may load it.
#[test]
fn a_clients_leg_has_the_control_for_a_radio_link() {
    let Some(world) = World::new() else { return };
    let radio = Algorithm::named("radio").unwrap();
    let brings = Controls::default().hold(radio, &Options::default());
    let of_kernel = sysctl::get("net.ipv4.tcp_congestion_control").unwrap();
    let expected = if brings.is_ok() { "ms_radio" } else { &*of_kernel };
    drop(brings);
    let _relay = RelayProcess::start(&world.relay, "");
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        let (_near, _far) = world.pair(server);
        let sockets = world.relay.run(tcp_sockets).unwrap().unwrap();
        let to = |address| {
            let mut sockets = sockets.iter();
            &sockets.find(|socket| socket.remote.ip() == ip(address)).unwrap().congestion_control
        };
        assert_eq!(to(client), expected);
        assert_eq!(to(server), &of_kernel);
    }
}

#[test]
fn each_leg_has_its_own_congestion_control_and_buffers() {
    let Some(world) = World::new() else { return };
    let settings = "[client_leg]\ncongestion_control = \"reno\"\nreceive_buffer = \"64 KiB\"\n\
        [server_leg]\ncongestion_control = \"cubic\"\nreceive_buffer = \"4 MiB\"\n";
    let _relay = RelayProcess::start(&world.relay, settings);
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        let (_near, _far) = world.pair(server);
        let sockets = world.relay.run(tcp_sockets).unwrap().unwrap();
        let to = |address| {
            let address = ip(address);
            sockets.iter().find(move |socket| socket.remote.ip() == address).unwrap()
        };
        assert_eq!(to(client).congestion_control, "reno");
        assert_eq!(to(server).congestion_control, "cubic");
        // The handshake's window scale fits the buffer.
        let window_scale = |address| to(address).info.wscale >> 4;
        assert!(window_scale(client) <= 1, "{}", window_scale(client));
        assert!(window_scale(server) >= 6, "{}", window_scale(server));
    }
}

/// Nobody answers there.
const SILENT: u16 = 9;

/// What a client has been told was received while its server is silent, of which the relay has read nothing.
fn received_unread(world: &World, settings: &str) -> u64 {
    let _relay = RelayProcess::start(&world.relay, &format!("{EARLY}{settings}"));
    let mut near = world.connect(SocketAddr::new(ip(SERVER[0]), SILENT)).unwrap();
    near.set_nonblocking(true).unwrap();
    let (start, chunk, mut written) = (Instant::now(), [0; 1 << 14], 0);
    while start.elapsed() < Duration::from_secs(1) {
        match near.write(&chunk) {
            Ok(bytes) => written += bytes as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
    written - u64::from(midspan_sys::socket::unacknowledged(&near).unwrap())
}

#[test]
fn the_window_of_an_upload_opens_before_its_server_is_there() {
    let Some(world) = World::new() else { return };
    let rules = format!(
        "add table inet t; add chain inet t i {{ type filter hook input priority 0; }}; \
         add rule inet t i tcp dport {SILENT} drop"
    );
    assert!(world.server.apply(Command::new("nft").arg(rules)).status().unwrap().success());
    let received = received_unread(&world, "");
    assert!((1 << 19..=1 << 21).contains(&received), "{received}");
    let received = received_unread(&world, "[client_leg]\nreceive_buffer = \"64 KiB\"\n");
    assert!(received < 1 << 18, "{received}");
}

#[test]
fn either_end_may_close_while_the_other_goes_on() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, "");
    for server in SERVER {
        for client_first in [true, false] {
            let (client, server) = world.pair(server);
            let (mut first, mut second) =
                if client_first { (client, server) } else { (server, client) };
            first.write_all(b"all I have to say").unwrap();
            first.shutdown(Shutdown::Write).unwrap();
            let mut heard = String::new();
            second.read_to_string(&mut heard).unwrap();
            assert_eq!(heard, "all I have to say");
            // Much more than all buffers on the way hold.
            let long = vec![7; 20_000_000];
            let writer = thread::spawn(move || {
                second.write_all(&long).unwrap();
                second.shutdown(Shutdown::Write).unwrap();
                second
            });
            let mut answer = Vec::new();
            first.read_to_end(&mut answer).unwrap();
            assert_eq!(answer.len(), 20_000_000);
            assert!(answer.iter().all(|&byte| byte == 7));
            drop(writer.join().unwrap());
        }
    }
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!(counts["closed"], 4);
    assert!(counts["splice_promotions"] >= 4, "{counts:?}");
}

#[test]
fn a_reset_on_one_side_is_a_reset_on_the_other() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, "");
    for server in SERVER {
        for client_resets in [true, false] {
            let (client, server) = world.pair(server);
            let (resets, mut other) =
                if client_resets { (client, server) } else { (server, client) };
            (&resets).write_all(b"before").unwrap();
            let mut word = [0; 6];
            other.read_exact(&mut word).unwrap();
            abort(resets);
            let error = other.read(&mut word).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!((counts["reset_by_client"], counts["reset_by_server"]), (2, 2));
}

#[test]
fn a_server_that_refuses_resets_the_client() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, EARLY);
    for server in SERVER {
        // Never a listener: one just closed may live on in a child that another test is forking.
        assert_reset(world.connect(SocketAddr::new(ip(server), 9)));
    }
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!(counts["connect_failed"], 2, "{counts:#?}");
}

#[test]
fn a_server_that_does_not_answer_resets_the_client_in_time() {
    let Some(world) = World::new() else { return };
    let settings = format!("{EARLY}connect_timeout = \"200 ms\"\n");
    let mut relay = RelayProcess::start(&world.relay, &settings);
    world.server.run(|| {
        let drop_all = "add table ip t; add chain ip t i { type filter hook input priority 0; policy drop; }";
        assert!(std::process::Command::new("nft").arg(drop_all).status().unwrap().success());
    }).unwrap();
    assert_reset(world.connect("10.2.0.2:5".parse().unwrap()));
    assert_eq!(relay.counts()["connect_timed_out"], 1);
}

/// TCP's urgent data is in the stream, with a mark; the relay keeps the bytes and drops the mark.
#[test]
fn urgent_bytes_stay_in_the_stream() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, "");
    // Before and after the promotion to splicing, which cannot pass the mark.
    for before in [3, 4_000_000] {
        for client_sends in [true, false] {
            let (client, server) = world.pair(SERVER[0]);
            let (mut sender, mut reader) =
                if client_sends { (client, server) } else { (server, client) };
            let heard = thread::scope(|scope| {
                let heard = scope.spawn(|| {
                    let mut all = Vec::new();
                    reader.read_to_end(&mut all).map(|_| all)
                });
                sender.write_all(&vec![b'a'; before]).unwrap();
                socket2::SockRef::from(&sender).send_out_of_band(b"X").unwrap();
                sender.write_all(b"after").unwrap();
                sender.shutdown(Shutdown::Write).unwrap();
                heard.join().unwrap().unwrap()
            });
            assert_eq!(heard.len(), before + 6);
            assert!(heard.ends_with(b"aXafter"), "{:?}", &heard[before - 1..]);
        }
    }
    assert_eq!(relay.until(|counts| counts["active"] == 0)["urgent"], 4);
}

/// A hop beyond the box that takes smaller packets only says so to the client, in whose name the
/// relay has sent; the relay must hear of it.
#[test]
fn a_path_with_a_smaller_mtu_carries_all() {
    let Some(world) = World::new() else { return };
    let beyond = Netns::create().unwrap();
    beyond.run(|| sysctl::set("net.ipv6.conf.default.accept_dad", "0")).unwrap().unwrap();
    world
        .server
        .run(|| -> io::Result<()> {
            for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
                sysctl::set(name, "1")?;
            }
            let mut netlink = Netlink::open()?;
            netlink.add_veth("narrow", "inner", beyond.as_fd())?;
            let narrow = up(&mut netlink, "narrow", &["10.3.0.1", "fd03::1"])?;
            netlink.set_mtu(narrow, 1400)
        })
        .unwrap()
        .unwrap();
    beyond
        .run(|| -> io::Result<()> {
            let mut netlink = Netlink::open()?;
            let inner = up(&mut netlink, "inner", &["10.3.0.2", "fd03::2"])?;
            route(&mut netlink, "0.0.0.0", 0, inner, Some("10.3.0.1"))?;
            route(&mut netlink, "::", 0, inner, Some("fd03::1"))
        })
        .unwrap()
        .unwrap();
    world
        .relay
        .run(|| -> io::Result<()> {
            let mut netlink = Netlink::open()?;
            let wide = netlink.index("wide")?;
            route(&mut netlink, "10.3.0.0", 24, wide, Some("10.2.0.2"))?;
            route(&mut netlink, "fd03::", 64, wide, Some("fd02::2"))
        })
        .unwrap()
        .unwrap();
    let hosts = ["10.3.0.2", "fd03::2"];
    world.relay.run(|| hosts.into_iter().for_each(await_link)).unwrap();
    for steering in [NFTABLES, ""] {
        let mut relay = RelayProcess::start(&world.relay, steering);
        for host in hosts {
            // What was learnt of the path is forgotten.
            let flush = ["route", "flush", "cache"];
            for family in ["-4", "-6"] {
                let mut ip = Command::new("ip");
                world.relay.apply(ip.arg(family).args(flush)).status().unwrap();
            }
            let listener = beyond.run(|| TcpListener::bind((ip(host), 0))).unwrap().unwrap();
            let mut near = world.connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            far.set_read_timeout(Some(PATIENCE)).unwrap();
            let writer = thread::spawn(move || near.write_all(&vec![1; 1_000_000]));
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), 1_000_000);
            writer.join().unwrap().unwrap();
        }
        assert_eq!(relay.counts()["accepted"], 2);
    }
}
