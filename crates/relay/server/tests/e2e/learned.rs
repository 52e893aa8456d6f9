//! The learned handshake: clients of servers that answer are told at once, those of others what is so.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::steer::{exchange, start};
use crate::world::{SERVER, World, ip};

const LEARNED: &str = "handshake = \"learned\"\n";

/// The first client of a server waits for it, the others do not; until it refuses, and then again.
#[test]
fn a_server_is_asked_until_it_has_answered() {
    for server in SERVER {
        let Some(world) = World::new() else { return };
        let Some(mut relay) = start(&world, LEARNED) else { return };
        let (listener, address) = world.listen(server);
        let held = |relay: &mut crate::process::RelayProcess| relay.counts()["held"];
        let pair = |listener: &TcpListener| {
            let mut near = world.connect(address).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            exchange(&mut near, &mut far);
        };
        pair(&listener);
        assert_eq!(held(&mut relay), 1);
        for _ in 0..5 {
            pair(&listener);
        }
        assert_eq!(held(&mut relay), 1);
        // Whoever comes first after it has gone is told "connected", and reset; nobody else.
        drop(listener);
        assert!(refused(&world, address) <= 1);
        relay.until(|counts| counts["connect_failed"] == 1);
        for _ in 0..5 {
            let error = world.connect(address).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        }
        let before = held(&mut relay);
        assert!(before >= 6, "{before}");
        // It is back.
        let again = || TcpListener::bind(address);
        let listener = world.server.run(again).unwrap().unwrap();
        pair(&listener);
        pair(&listener);
        assert_eq!(held(&mut relay), before + 1);
    }
}

/// How many of one connect were told that they are connected.
fn refused(world: &World, to: SocketAddr) -> usize {
    match world.connect(to) {
        Ok(mut stream) => {
            let _ = stream.write_all(b"x");
            1
        }
        Err(_) => 0,
    }
}

/// A host of two addresses, of which one refuses, is reached by the other, as clients do who try both (RFC 8305).
#[test]
fn a_client_that_tries_the_next_address_gets_there() {
    let Some(world) = World::new() else { return };
    let Some(_relay) = start(&world, LEARNED) else { return };
    // Of IPv4 alone; IPv6, which is tried first, refuses.
    let (listener, address) = world.listen(SERVER[0]);
    let host = format!("host.test:{}:[{}],{}", address.port(), SERVER[1], SERVER[0]);
    for _ in 0..5 {
        let url = format!("http://host.test:{}/", address.port());
        let mut curl = Command::new("curl");
        curl.args(["-s", "-m", "5", "--noproxy", "*", "--resolve", &host, &url]);
        let asked =
            world.client.apply(&mut curl).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let (mut far, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), ip("10.1.0.2"));
        far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            .unwrap();
        let said = asked.wait_with_output().unwrap();
        assert_eq!(said.stdout, b"ok");
    }
}

/// A server that has gone silent is asked again, as one that refuses.
#[test]
fn a_server_that_does_not_answer_is_asked_again() {
    let Some(world) = World::new() else { return };
    let settings = format!("{LEARNED}connect_timeout = \"500 ms\"\n");
    let Some(mut relay) = start(&world, &settings) else { return };
    let (listener, address) = world.listen(SERVER[0]);
    drop((world.connect(address).unwrap(), listener.accept().unwrap()));
    relay.until(|counts| counts["active"] == 0);
    let drop_all =
        "add table inet t; add chain inet t c { type filter hook input priority 0 ; policy drop; }";
    let mut nft = Command::new("nft");
    assert!(world.server.apply(nft.arg(drop_all)).status().unwrap().success());
    let attempt = || {
        let start = Instant::now();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(900));
        (world.client.run(connect).unwrap().is_ok(), start.elapsed())
    };
    assert!(attempt().0, "it had answered");
    relay.until(|counts| counts["connect_timed_out"] == 1);
    assert!(!attempt().0);
}
