//! What each leg's packets and segments are like.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use midspan_sys::netns::Netns;
use midspan_sys::sockdiag::{TcpSocket, tcp_sockets};
use socket2::{Domain, Protocol, Socket, Type};

use crate::process::{EARLY, RelayProcess};
use crate::steer;
use crate::world::{CLIENT, PATIENCE, SERVER, World, ip};

/// Counts the TCP packets that a namespace receives, and those of them with a code point.
struct Marked<'a>(&'a Netns);

impl Marked<'_> {
    fn count(netns: &Netns, dscp: u8) -> Marked<'_> {
        let rules = format!(
            "add table inet m; flush table inet m; add counter inet m every; add counter inet m marked;
             add chain inet m i {{ type filter hook input priority 0; }};
             add rule inet m i meta l4proto tcp counter name every;
             add rule inet m i meta l4proto tcp ip dscp {dscp} counter name marked;
             add rule inet m i meta l4proto tcp ip6 dscp {dscp} counter name marked"
        );
        assert!(netns.apply(Command::new("nft").arg(rules)).status().unwrap().success());
        Marked(netns)
    }

    /// All of them, and those with the code point.
    fn read(self) -> (u64, u64) {
        let packets = |name: &str| {
            let mut nft = Command::new("nft");
            let out = self.0.apply(nft.args(["list", "counter", "inet", "m", name])).output();
            let text = String::from_utf8(out.unwrap().stdout).unwrap();
            let number = text.split("packets ").nth(1).unwrap().split(' ').next().unwrap();
            number.parse().unwrap()
        };
        let counts = (packets("every"), packets("marked"));
        let remove = ["delete", "table", "inet", "m"];
        assert!(self.0.apply(Command::new("nft").args(remove)).status().unwrap().success());
        counts
    }
}

/// Connects a client's socket that `prepare` has set up.
fn connect(world: &World, to: SocketAddr, prepare: impl FnOnce(&Socket)) -> TcpStream {
    connect_by(world, Protocol::TCP, to, prepare)
}

fn connect_by(
    world: &World,
    protocol: Protocol,
    to: SocketAddr,
    prepare: impl FnOnce(&Socket),
) -> TcpStream {
    let open = || Socket::new(Domain::for_address(to), Type::STREAM, Some(protocol));
    let socket = world.client.run(open).unwrap().unwrap();
    prepare(&socket);
    socket.connect_timeout(&to.into(), PATIENCE).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn mark(socket: &Socket, dscp: u8) {
    match socket.domain().unwrap() {
        Domain::IPV4 => socket.set_tos_v4(u32::from(dscp) << 2).unwrap(),
        _ => socket.set_tclass_v6(u32::from(dscp) << 2).unwrap(),
    }
}

/// Sends from both ends, and ends in order.
fn talk(mut near: TcpStream, mut far: TcpStream) {
    for (from, to) in [(0, 1), (1, 0)] {
        let ends = [&mut near, &mut far];
        ends[from].write_all(&[7; 20_000]).unwrap();
        ends[to].read_exact(&mut [0; 20_000]).unwrap();
    }
    drop(near);
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
}

/// The relay's socket of each leg: of the client's, and of the server's.
fn legs(world: &World, client: &str, server: &str) -> [TcpSocket; 2] {
    let sockets = world.relay.run(tcp_sockets).unwrap().unwrap();
    [client, server].map(|end| {
        let of = |socket: &&TcpSocket| socket.remote.ip() == ip(end);
        sockets.iter().find(of).unwrap().clone()
    })
}

#[test]
fn the_clients_marking_survives_the_split() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, "");
    for server in SERVER {
        let (listener, address) = world.listen(server);
        for dscp in [46, 0, 63] {
            let marked = Marked::count(&world.server, dscp);
            let near = connect(&world, address, |socket| mark(socket, dscp));
            talk(near, listener.accept().unwrap().0);
            relay.until(|counts| counts["active"] == 0);
            let (all, marked) = marked.read();
            assert!(all > 5 && all == marked, "{server} {dscp}: {marked} of {all}");
        }
    }
}

/// What the client receives before the server has answered is not marked; all else is, as the server's
/// answer was. The server is `late` by a second.
fn the_servers_marking_survives(settings: &str, late: bool) {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = steer::start(&world, settings) else { return };
    for server in SERVER {
        for dscp in [46, 63] {
            let (listener, address) = world.listen(server);
            mark(&socket2::SockRef::from(&listener), dscp);
            if late {
                slow_and_counting(&world, address.port());
            }
            let mut near = connect(&world, address, |_| {});
            near.write_all(b"first").unwrap();
            let (mut far, _) = listener.accept().unwrap();
            far.read_exact(&mut [0; 5]).unwrap();
            steer::exchange(&mut near, &mut far);
            let marked = Marked::count(&world.client, dscp);
            talk(near, far);
            relay.until(|counts| counts["active"] == 0);
            let (all, marked) = marked.read();
            assert!(all > 3 && all == marked, "{server} {dscp}: {marked} of {all}");
        }
    }
}

#[test]
fn the_servers_marking_survives_the_split() {
    the_servers_marking_survives("", false);
}

/// By then the connection is accounted for.
#[test]
fn the_servers_marking_survives_though_the_client_has_spoken_before() {
    the_servers_marking_survives(EARLY, true);
}

#[test]
fn a_leg_may_have_a_marking_of_its_own() {
    let Some(world) = World::new() else { return };
    let settings = "[client_leg]\ndscp = 10\n[server_leg]\ndscp = 12\n";
    let mut relay = RelayProcess::start(&world.relay, settings);
    for server in SERVER {
        let (listener, address) = world.listen(server);
        let marked = [(&world.client, 10), (&world.server, 12)]
            .map(|(netns, dscp)| Marked::count(netns, dscp));
        let near = connect(&world, address, |socket| mark(socket, 46));
        talk(near, listener.accept().unwrap().0);
        relay.until(|counts| counts["active"] == 0);
        for marked in marked {
            let (all, marked) = marked.read();
            assert!(all > 5 && all == marked, "{server}: {marked} of {all}");
        }
    }
}

#[test]
fn segments_and_rate_are_as_configured() {
    let Some(world) = World::new() else { return };
    let settings = "[client_leg]\nmax_segment = 700\nmax_pacing_rate = \"80 Mbit/s\"\n\
        [server_leg]\nmax_segment = 900\nmax_pacing_rate = \"160 Mbit/s\"\n";
    let _relay = RelayProcess::start(&world.relay, settings);
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        let (_near, _far) = world.pair(server);
        let [client_leg, server_leg] = legs(&world, client, server);
        assert_eq!(client_leg.info.max_pacing_rate, 10_000_000);
        assert_eq!(server_leg.info.max_pacing_rate, 20_000_000);
        // Timestamps take twelve bytes of each.
        assert_eq!((client_leg.info.snd_mss, server_leg.info.snd_mss), (688, 888));
        for (netns, most) in [(&world.client, 688), (&world.server, 888)] {
            let sockets = netns.run(tcp_sockets).unwrap().unwrap();
            let ours = [ip(client), ip(server)];
            let is_ours = |socket: &&TcpSocket| ours.contains(&socket.remote.ip());
            let end = sockets.iter().find(is_ours).unwrap();
            assert_eq!(end.info.snd_mss, most);
        }
    }
}

/// An end that vanishes is given up after `user_timeout`, which the kernel does after a quarter of an
/// hour by itself.
#[test]
fn a_peer_that_acknowledges_nothing_is_given_up() {
    let Some(world) = World::new() else { return };
    for (leg, count) in [("client_leg", "reset_by_client"), ("server_leg", "reset_by_server")] {
        let mut relay =
            RelayProcess::start(&world.relay, &format!("[{leg}]\nuser_timeout = \"1 s\"\n"));
        let (mut near, mut far) = world.pair(SERVER[0]);
        talk_once(&mut near, &mut far);
        let (gone, mut stays) = if leg == "client_leg" { (near, far) } else { (far, near) };
        let netns = if leg == "client_leg" { &world.client } else { &world.server };
        let deaf = "add table inet d; add chain inet d i { type filter hook input priority 0; policy drop; }";
        assert!(netns.apply(Command::new("nft").arg(deaf)).status().unwrap().success());
        stays.write_all(b"nobody hears").unwrap();
        let error = stays.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(relay.until(|counts| counts["active"] == 0)[count], 1);
        let hear = ["delete", "table", "inet", "d"];
        assert!(netns.apply(Command::new("nft").args(hear)).status().unwrap().success());
        drop(gone);
    }
}

fn talk_once(near: &mut TcpStream, far: &mut TcpStream) {
    near.write_all(b"ping").unwrap();
    far.read_exact(&mut [0; 4]).unwrap();
}

#[test]
fn options_that_the_relay_does_not_carry_are_counted() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, "");
    for server in SERVER {
        let (listener, address) = world.listen(server);
        // The first such connection asks for a cookie.
        let near = world.fast_open(address, b"early");
        let (mut far, _) = listener.accept().unwrap();
        far.read_exact(&mut [0; 5]).unwrap();
        talk(near, far);
        match Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)) {
            Ok(_) => {
                let near = connect_by(&world, Protocol::MPTCP, address, |_| {});
                talk(near, listener.accept().unwrap().0);
            }
            Err(error) => eprintln!("without MPTCP: {error}"),
        }
    }
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!(counts["declined_fast_open"], 2, "{counts:?}");
    assert_eq!(counts["declined_mptcp"], counts["accepted"] - 2);
    assert_eq!((counts["declined_options"], counts["closed"]), (0, counts["accepted"]));
}

/// Has a server miss the first SYN from each port, and count what it is sent on this port without payload, SYNs not.
fn slow_and_counting(world: &World, port: u16) {
    let rules = format!(
        "add table inet s; add chain inet s i {{ type filter hook input priority 0; }}; \
         add set inet s seen {{ typeof th sport; flags dynamic,timeout; }}; \
         add rule inet s i tcp dport {port} tcp flags syn th sport != @seen \
         add @seen {{ th sport timeout 60s }} drop; \
         add rule inet s i tcp dport {port} tcp flags == ack meta length 52 counter"
    );
    assert!(world.server.apply(Command::new("nft").arg(rules)).status().unwrap().success());
}

/// How many it was sent.
fn acknowledgements(world: &World) -> u64 {
    let mut command = Command::new("nft");
    command.args(["list", "table", "inet", "s"]);
    let output = world.server.apply(&mut command).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let after = table.split("packets ").nth(1).unwrap();
    after.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_servers_handshake_ends_with_the_clients_first_bytes_or_at_once() {
    let Some(world) = World::new() else { return };
    let Some(_relay) = steer::start(&world, EARLY) else { return };
    let bind = || TcpListener::bind((ip(SERVER[0]), 0));
    let listener = world.server.run(bind).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    slow_and_counting(&world, address.port());

    let mut near = world.connect(address).unwrap();
    near.write_all(b"word").unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let mut heard = [0; 4];
    far.read_exact(&mut heard).unwrap();
    assert_eq!(acknowledgements(&world), 0, "the handshake had a packet more");

    // Who says nothing is there all the same, and a server that speaks first does not wait.
    let mut silent = world.connect(address).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    assert_eq!(acknowledgements(&world), 1);
    far.write_all(b"word").unwrap();
    silent.read_exact(&mut heard).unwrap();
}
