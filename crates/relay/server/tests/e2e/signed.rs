//! Connections whose segments are signed for their ends (TCP-MD5, RFC 2385), as BGP's are.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use midspan_sys::netns::Netns;

use crate::process::{NFTABLES, RelayProcess};
use crate::steer;
use crate::world::{CLIENT, SERVER, World, skip};

/// `script.py PEER ADDRESS [PORT]`: signs what it exchanges with the peer; listens at the address, at a port which it
/// says, or connects to it.
const PEER: &str = r#"
import socket, struct, sys
peer, address = sys.argv[1:3]
v6 = ":" in peer
family = socket.AF_INET6 if v6 else socket.AF_INET
with socket.socket(family) as s:
    storage = struct.pack("=HH4x16s4x", family, 0, socket.inet_pton(family, peer)) if v6 else \
        struct.pack("=HH4s", family, 0, socket.inet_pton(family, peer))
    s.setsockopt(socket.IPPROTO_TCP, 14, struct.pack("=128sBBHI80s", storage, 0, 0, 6, 0, b"secret"))
    s.settimeout(10)
    if len(sys.argv) > 3:
        s.connect((address, int(sys.argv[3])))
        s.sendall(b"signed")
        print(s.recv(6, socket.MSG_WAITALL).decode())
    else:
        s.bind((address, 0))
        s.listen()
        print(s.getsockname()[1], flush=True)
        accepted, _ = s.accept()
        accepted.settimeout(10)
        accepted.sendall(accepted.recv(6, socket.MSG_WAITALL))
"#;

fn peer(netns: &Netns, arguments: &[&str]) -> Child {
    let mut python = Command::new("python3");
    python.args(["-c", PEER]).args(arguments).stdout(Stdio::piped());
    netns.apply(&mut python).spawn().unwrap()
}

fn signed_connections_work(world: &World) {
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        let mut listener = peer(&world.server, &[client, server]);
        let mut port = String::new();
        BufReader::new(listener.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let connected = peer(&world.client, &[server, server, port.trim()]);
        let said = connected.wait_with_output().unwrap().stdout;
        // It gives up by itself if nobody has come.
        listener.wait().unwrap();
        assert_eq!(String::from_utf8_lossy(&said).trim(), "signed", "{server}");
    }
}

fn is_possible() -> bool {
    let probe = "import socket; socket.socket().setsockopt(6, 14, bytes([2]) + bytes(129) + bytes([1]) + bytes(85))";
    let found = Command::new("python3").args(["-c", probe]).stderr(Stdio::null()).status();
    let is_possible = found.is_ok_and(|status| status.success());
    if !is_possible {
        skip("no python3, or a kernel without TCP-MD5");
    }
    is_possible
}

#[test]
fn signed_connections_are_passed_by_bpf() {
    let Some(world) = World::new() else { return };
    if !is_possible() {
        return;
    }
    let Some(mut relay) = steer::start(&world, "") else { return };
    signed_connections_work(&world);
    assert_eq!(relay.counts()["pass_signed"], 2);
}

#[test]
fn signed_connections_are_passed_by_nftables() {
    let Some(world) = World::new() else { return };
    if !is_possible() {
        return;
    }
    let mut relay = RelayProcess::start(&world.relay, NFTABLES);
    signed_connections_work(&world);
    assert_eq!(relay.counts()["accepted"], 0);
}
