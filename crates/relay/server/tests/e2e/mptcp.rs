//! Clients that speak MPTCP, to servers that need not.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Instant;

use midspan_sys::netns::Netns;
use socket2::{Domain, Protocol, Socket, Type};

use crate::process::{NFTABLES, RelayProcess};
use crate::world::{BOX, CLIENT, FOREIGN, PATIENCE, SERVER, World, abort, ip};

const PORT: u16 = 8080;

/// Where nothing is intercepted, and where nftables steers.
fn modes(server: SocketAddr) -> [(String, SocketAddr); 2] {
    let version = usize::from(server.is_ipv6());
    let at = SocketAddr::new(ip(BOX[version]), PORT);
    let forward = format!(
        "interception = \"none\"\nmptcp = true\n[[forward]]\nlisten = \"{at}\"\nto = \"{server}\"\n"
    );
    [(forward, at), (format!("{NFTABLES}mptcp = true\n"), server)]
}

/// A client's MPTCP socket; `None`, and says so, where the kernel has none.
fn socket(world: &World, to: SocketAddr) -> Option<Socket> {
    let open = || Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::MPTCP));
    match world.client.run(open).unwrap() {
        Ok(socket) => Some(socket),
        Err(error) => {
            eprintln!("skipped: no MPTCP here: {error}");
            None
        }
    }
}

fn connect(world: &World, to: SocketAddr) -> Option<TcpStream> {
    let socket = socket(world, to)?;
    let own = SocketAddr::new(ip(CLIENT[usize::from(to.is_ipv6())]), 0);
    socket.bind(&own.into()).unwrap();
    socket.connect_timeout(&to.into(), PATIENCE).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Some(stream)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    far
}

/// Sends much and then the end, while the other end reads.
fn pour(mut from: &TcpStream, mut to: &TcpStream) {
    const MUCH: usize = 8_000_000;
    thread::scope(|scope| {
        scope.spawn(move || {
            let all: Vec<u8> = (0..MUCH).map(|index| (index / 251) as u8).collect();
            from.write_all(&all).unwrap();
            from.shutdown(Shutdown::Write).unwrap();
        });
        let mut all = Vec::new();
        to.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), MUCH);
        assert!(all.iter().enumerate().all(|(index, &byte)| byte == (index / 251) as u8));
    });
}

#[test]
fn mptcp_clients_reach_tcp_servers() {
    let Some(world) = World::new() else { return };
    for server in SERVER {
        let (listener, address) = world.listen(server);
        for (settings, to) in modes(address) {
            let mut relay = RelayProcess::start(&world.relay, &settings);
            // Both directions, one after the other, by splicing too.
            for client_first in [true, false] {
                let Some(near) = connect(&world, to) else { return };
                let far = accept(&listener);
                let (first, second) = if client_first { (&near, &far) } else { (&far, &near) };
                pour(first, second);
                pour(second, first);
            }
            let counts = relay.until(|counts| counts["active"] == 0);
            assert_eq!((counts["mptcp"], counts["closed"]), (2, 2), "{counts:?}");
            assert!(counts["splice_promotions"] >= 4, "{counts:?}");
        }
    }
}

#[test]
fn a_reset_crosses_to_and_from_mptcp() {
    let Some(world) = World::new() else { return };
    for server in SERVER {
        let (listener, address) = world.listen(server);
        for (settings, to) in modes(address) {
            let mut relay = RelayProcess::start(&world.relay, &settings);
            for client_resets in [true, false] {
                let Some(mut near) = connect(&world, to) else { return };
                let mut far = accept(&listener);
                near.write_all(b"before").unwrap();
                far.read_exact(&mut [0; 6]).unwrap();
                far.write_all(b"after").unwrap();
                near.read_exact(&mut [0; 5]).unwrap();
                let (resets, mut other) = if client_resets { (near, far) } else { (far, near) };
                abort(resets);
                let error = other.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{to} {client_resets}");
            }
            let counts = relay.until(|counts| counts["active"] == 0);
            assert_eq!(
                (counts["reset_by_client"], counts["reset_by_server"]),
                (1, 1),
                "{counts:?}"
            );
        }
    }
}

/// Those who speak TCP get all of it, urgent data included.
#[test]
fn tcp_clients_of_an_mptcp_listener_lose_nothing() {
    let Some(world) = World::new() else { return };
    let (listener, address) = world.listen(SERVER[0]);
    for (settings, to) in modes(address) {
        let mut relay = RelayProcess::start(&world.relay, &settings);
        let mut near = world.connect(to).unwrap();
        let mut far = accept(&listener);
        near.write_all(b"before").unwrap();
        socket2::SockRef::from(&near).send_out_of_band(b"X").unwrap();
        near.write_all(b"after").unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        far.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "beforeXafter");
        drop((near, far));
        let counts = relay.until(|counts| counts["active"] == 0);
        assert_eq!((counts["mptcp"], counts["urgent"], counts["closed"]), (0, 1, 1), "{counts:?}");
    }
}

fn run(netns: &Netns, program: &str, arguments: &[&str]) -> String {
    let out = netns.apply(Command::new(program).args(arguments)).output().unwrap();
    assert!(out.status.success(), "{program} {arguments:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// What MPTCP is for: a connection that outlives one of its paths.
#[test]
fn a_client_may_lose_a_path() {
    let Some(world) = World::new() else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let [(settings, to), _] = modes(address);
    let mut relay = RelayProcess::start(&world.relay, &settings);
    let endpoint = ["mptcp", "endpoint", "add", FOREIGN, "dev", "uplink", "subflow"];
    run(&world.client, "ip", &endpoint);
    let Some(mut near) = connect(&world, to) else { return };
    let mut far = accept(&listener);
    let start = Instant::now();
    let joined = || {
        let paths = run(&world.relay, "ss", &["-Htn", "state", "established"]);
        paths.lines().any(|line| line.contains(&format!("{FOREIGN}:")))
    };
    while !joined() {
        assert!(start.elapsed() < PATIENCE, "no second path");
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
    }
    let cut = format!(
        "add table ip c; add chain ip c i {{ type filter hook prerouting priority -400; }}; \
         add rule ip c i ip saddr {} drop",
        CLIENT[0]
    );
    run(&world.relay, "nft", &[&cut]);
    near.write_all(b"over the other path").unwrap();
    let mut heard = [0; 19];
    far.read_exact(&mut heard).unwrap();
    far.write_all(&heard).unwrap();
    near.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"over the other path");
    assert_eq!(relay.counts()["mptcp"], 1);
}

#[test]
fn bpf_and_mptcp_do_not_go_together() {
    for interception in ["bpf", "auto"] {
        let text =
            format!("{}interception = \"{interception}\"\nmptcp = true", crate::process::CLIENTS);
        let said = text.parse::<midspan_relay::Config>().unwrap_err().to_string();
        assert!(said.starts_with("line 3: `mptcp`") && said.contains("nftables"), "{said}");
    }
}

/// What MPTCP sockets cannot do is said before anything is taken.
#[test]
fn a_setting_that_mptcp_lacks_is_refused() {
    let Some(world) = World::new() else { return };
    if socket(&world, "10.2.0.2:1".parse().unwrap()).is_none() {
        return;
    }
    let settings = "mptcp = true\n[client_leg]\nmax_pacing_rate = \"1 Mbit/s\"\n";
    let config = format!("{}{NFTABLES}{settings}", crate::process::CLIENTS).parse().unwrap();
    let result = world.relay.run(|| midspan_relay::Relay::start(config).map(drop)).unwrap();
    let said = result.unwrap_err().to_string();
    assert!(said.contains("client_leg") && said.contains("`max_pacing_rate`"), "{said}");
    assert!(said.contains("`mptcp`"), "{said}");
}
