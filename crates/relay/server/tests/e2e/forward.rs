//! Explicit mode: connections made to the relay itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use midspan_sys::netlink::Netlink;

use crate::process::RelayProcess;
use crate::world::{BOX, CLIENT, FOREIGN, PATIENCE, SERVER, World, assert_reset, ip};

const PORT: u16 = 8080;

/// A relay that is connected to, and passes on to these.
fn start(world: &World, to: &[String]) -> RelayProcess {
    let listen = ["0.0.0.0", "[::]"]
        .map(|any| format!("[[forward]]\nlisten = \"{any}:{PORT}\"\nto = {to:?}\n"));
    // The clients' prefixes of other tests come first in the file.
    RelayProcess::start(&world.relay, &format!("interception = \"none\"\n{}", listen.concat()))
}

#[test]
fn connections_to_the_relay_are_passed_on() {
    let Some(world) = World::new() else { return };
    for server in SERVER {
        let (listener, address) = world.listen(server);
        let mut relay = start(&world, &[address.to_string()]);
        for own in BOX {
            let mut near = world.connect(SocketAddr::new(ip(own), PORT)).unwrap();
            let (mut far, from) = listener.accept().unwrap();
            // The relay's own address, whatever the client's is.
            assert!(from.ip() == ip("10.2.0.1") || from.ip() == ip("fd02::1"), "{from}");
            near.write_all(b"ping").unwrap();
            let mut word = [0; 4];
            far.read_exact(&mut word).unwrap();
            far.write_all(b"pong").unwrap();
            near.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"pong");
            drop(near);
            assert_eq!(far.read(&mut word).unwrap(), 0);
        }
        let counts = relay.until(|counts| counts["active"] == 0);
        assert_eq!((counts["accepted"], counts["closed"]), (2, 2));
    }
}

#[test]
fn only_clients_that_may_are_taken() {
    let Some(world) = World::new() else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let settings = |prefixes: &str| {
        format!(
            "interception = \"none\"\n[[forward]]\nlisten = \"0.0.0.0:{PORT}\"\nto = \"{address}\"\n\
             {prefixes}"
        )
    };
    let mut relay = RelayProcess::start(&world.relay, &settings("allow = [\"192.168.0.0/16\"]\n"));
    let connect = |from: &str| {
        world.connect_from(SocketAddr::new(ip(from), 0), SocketAddr::new(ip(BOX[0]), PORT))
    };
    let taken = |from: &str| {
        let near = connect(from).unwrap();
        drop((listener.accept().unwrap(), near));
    };
    assert_reset(connect(CLIENT[0]));
    taken(FOREIGN);
    assert_eq!(relay.until(|counts| counts["active"] == 0)["refused_client"], 1);
    // Changed while it runs, and `deny` is stronger.
    let denied =
        format!("allow = [\"10.0.0.0/8\", \"192.168.0.0/16\"]\ndeny = [\"{FOREIGN}/32\"]\n");
    relay.rewrite(&settings(&denied));
    relay.signal(rustix::process::Signal::HUP);
    listener.set_nonblocking(true).unwrap();
    let start = Instant::now();
    let mut is_refused = false;
    while !is_refused {
        let near = connect(FOREIGN);
        // It is one or the other.
        while !is_refused && listener.accept().is_err() {
            assert!(start.elapsed() < PATIENCE);
            is_refused = relay.counts()["refused_client"] > 1;
        }
        drop(near);
    }
    listener.set_nonblocking(false).unwrap();
    taken(CLIENT[0]);
    drop(relay);
    let mut relay = RelayProcess::start(&world.relay, &settings("deny = [\"10.1.0.0/24\"]\n"));
    assert_reset(connect(CLIENT[0]));
    taken(FOREIGN);
    assert_eq!(relay.until(|counts| counts["active"] == 0)["refused_client"], 1);
}

#[test]
fn a_listener_that_would_be_connected_to_itself_is_refused() {
    let Some(world) = World::new() else { return };
    // An address of the box, which is not said in the file to be one.
    for (listen, to) in [("0.0.0.0", BOX[0]), ("[::]", BOX[1]), ("10.1.0.1", BOX[0])] {
        let to = SocketAddr::new(ip(to), PORT);
        let text = format!("[[forward]]\nlisten = \"{listen}:{PORT}\"\nto = \"{to}\"\n");
        let start = || {
            let config: midspan_relay::Config = text.parse()?;
            midspan_relay::Relay::start(config).map(drop)
        };
        match world.relay.run(start).unwrap() {
            Err(midspan_relay::Error::Config(error)) => {
                let said = error.to_string();
                assert!(said.contains(&to.to_string()) && said.contains("itself"), "{said}");
            }
            other => panic!("{other:?} for {text}"),
        }
    }
    let elsewhere =
        format!("[[forward]]\nlisten = \"0.0.0.0:{PORT}\"\nto = \"{}:{PORT}\"\n", SERVER[0]);
    let config = elsewhere.parse().unwrap();
    assert!(world.relay.run(|| midspan_relay::Relay::start(config).map(drop)).unwrap().is_ok());
}

#[test]
fn servers_are_tried_in_order() {
    let Some(world) = World::new() else { return };
    let (listener, address) = world.listen(SERVER[0]);
    // One refuses, one is not there at all, one works.
    let refuses = format!("{}:9", SERVER[0]);
    let nowhere = "10.2.0.77:9".to_owned();
    let mut relay = start(&world, &[refuses.clone(), nowhere, address.to_string()]);
    let mut near = world.connect(SocketAddr::new(ip(BOX[0]), PORT)).unwrap();
    near.write_all(b"sent before there was a server").unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let mut heard = [0; 30];
    far.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"sent before there was a server");
    drop((near, far));
    assert_eq!(relay.until(|counts| counts["active"] == 0)["connect_failed"], 0);
    drop(relay);
    let mut relay = start(&world, &[refuses.clone(), refuses]);
    assert_reset(world.connect(SocketAddr::new(ip(BOX[0]), PORT)));
    assert_eq!(relay.until(|counts| counts["active"] == 0)["connect_failed"], 1);
}

#[test]
fn a_server_that_cannot_be_connected_to_is_left_alone_for_a_while() {
    let Some(world) = World::new() else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let silent = SocketAddr::new(ip("10.2.0.77"), 9);
    let settings = format!(
        "interception = \"none\"\nconnect_timeout = \"1 s\"\nworkers = 2\n\
         [[forward]]\nlisten = \"0.0.0.0:{PORT}\"\nto = [\"{silent}\", \"{address}\"]\n"
    );
    let mut relay = RelayProcess::start(&world.relay, &settings);
    let arrive = || {
        let start = Instant::now();
        let near = world.connect(SocketAddr::new(ip(BOX[0]), PORT)).unwrap();
        drop((near, listener.accept().unwrap()));
        start.elapsed()
    };
    let first = arrive();
    let others: Duration = (0..5).map(|_| arrive()).sum();
    assert!(others < first, "{others:?} for five after {first:?} for one");
    // It is tried again, and used once it is there.
    let late = world.server.run(|| {
        let mut netlink = Netlink::open()?;
        let link = netlink.index("downlink")?;
        netlink.add_address(link, silent.ip(), 24)?;
        TcpListener::bind(silent)
    });
    let late = late.unwrap().unwrap();
    late.set_nonblocking(true).unwrap();
    listener.set_nonblocking(true).unwrap();
    let start = Instant::now();
    let mut pairs = Vec::new();
    let mut round = || {
        assert!(start.elapsed() < PATIENCE, "it is not tried again");
        pairs.push(world.connect(SocketAddr::new(ip(BOX[0]), PORT)).unwrap());
        thread::sleep(Duration::from_millis(50));
        let _ = listener.accept();
        late.accept().is_ok()
    };
    while !round() {}
    // By all, from then on.
    assert!((0..5).all(|_| round()));
    drop(pairs);
    assert_eq!(relay.until(|counts| counts["active"] == 0)["connect_failed"], 0);
}
