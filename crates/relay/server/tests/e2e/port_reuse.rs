//! Clients that use a port again for another connection to the same server, as soon as they may.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{NFTABLES, RelayProcess};
use crate::steer::start;
use crate::world::{CLIENT, PATIENCE, SERVER, World, abort, ip};

const CLIENTS: u16 = 400;
/// Clients at a time.
const THREADS: u16 = 8;

/// How a connection ends, so that its port is the client's to use at once.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The server ends first.
    Server,
    /// The client resets it.
    Reset,
}

/// Has each client exchange a word twice from the same port, and counts who could.
fn served(world: &World, listener: &TcpListener, to: SocketAddr, end: End) -> u16 {
    let echoes = |mut far: TcpStream| {
        let mut word = [0; 4];
        if far.read_exact(&mut word).is_ok() && far.write_all(&word).is_ok() {
            match end {
                End::Server => drop(far),
                // Until the client ends it.
                End::Reset => drop(far.read(&mut word)),
            }
        }
    };
    let exchange = |from| {
        let mut near = loop {
            match world.connect_from(from, to) {
                // Its own host has not heard yet that the last FIN has arrived.
                Err(error) if error.kind() == ErrorKind::AddrInUse => thread::yield_now(),
                opened => break opened?,
            }
        };
        near.write_all(b"ping")?;
        let mut word = [0; 4];
        near.read_exact(&mut word)?;
        match end {
            End::Server => near.read(&mut word).map(drop),
            End::Reset => {
                abort(near);
                Ok(())
            }
        }
    };
    let own = ip(if to.is_ipv4() { CLIENT[0] } else { CLIENT[1] });
    let several = |first: u16| {
        let (mut count, start) = (0, Instant::now());
        for port in (0..CLIENTS / THREADS).map(|index| first + index) {
            let from = SocketAddr::new(own, port);
            match exchange(from).and_then(|()| exchange(from)) {
                Ok(()) => count += 1,
                Err(error) => eprintln!("{end:?}: {from}: {error}"),
            }
            if start.elapsed() > PATIENCE {
                break;
            }
        }
        count
    };
    let over = AtomicBool::new(false);
    listener.set_nonblocking(true).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((far, _)) => {
                        far.set_nonblocking(false).unwrap();
                        far.set_read_timeout(Some(PATIENCE)).unwrap();
                        scope.spawn(move || echoes(far));
                    }
                    Err(_) => thread::sleep(Duration::from_micros(100)),
                }
            }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|one| {
                scope.spawn({
                    let several = &several;
                    move || several(20_000 + 1000 * one)
                })
            })
            .collect();
        let count = threads.into_iter().map(|one| one.join().unwrap()).sum();
        over.store(true, Ordering::Release);
        count
    })
}

fn all_are_served(world: &World) {
    for (server, end) in
        [(SERVER[0], End::Server), (SERVER[0], End::Reset), (SERVER[1], End::Server)]
    {
        let (listener, address) = world.listen(server);
        assert_eq!(served(world, &listener, address, end), CLIENTS, "{server}, {end:?}");
    }
}

#[test]
fn a_port_is_used_again_at_once_as_steered_by_bpf() {
    let Some(world) = World::new() else { return };
    all_are_served(&world);
    for settings in ["", "handshake = \"confirmed\"\n"] {
        let Some(_relay) = start(&world, settings) else { return };
        all_are_served(&world);
    }
}

#[test]
fn a_port_is_used_again_at_once_as_steered_by_nftables() {
    let Some(world) = World::new() else { return };
    let _relay = RelayProcess::start(&world.relay, NFTABLES);
    all_are_served(&world);
}
