//! What the relay does not take, and how much it takes at most.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::process::{NFTABLES, RelayProcess};
use crate::world::{BOX, CLIENT, FOREIGN, SERVER, World, assert_reset, ip};

#[test]
fn a_connection_to_the_relay_itself_is_refused() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, NFTABLES);
    for own in BOX {
        assert_reset(world.connect(SocketAddr::new(ip(own), 8742)));
    }
    let counts = relay.counts();
    assert_eq!((counts["refused_direct"], counts["accepted"]), (2, 0));
}

#[test]
fn connections_to_the_relays_port_elsewhere_pass_unsplit() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, NFTABLES);
    for (server, client) in SERVER.into_iter().zip(CLIENT) {
        let listen = || TcpListener::bind((ip(server), 8742));
        let listener = world.server.run(listen).unwrap().unwrap();
        assert_passes(&world, &listener, client);
    }
    let counts = relay.counts();
    assert_eq!((counts["refused_direct"], counts["accepted"]), (0, 0));
}

#[test]
fn a_client_outside_the_prefixes_passes_unsplit() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, "");
    let (listener, _) = world.listen(SERVER[0]);
    assert_passes(&world, &listener, FOREIGN);
    assert_eq!(relay.counts()["accepted"], 0);
}

/// The same client is refused if somebody else's rules bring it, as its address must not be bound.
#[test]
fn a_client_outside_the_prefixes_is_refused_if_brought() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, "interception = \"none\"\n");
    let mut wide = midspan_relay::Config::new(vec!["0.0.0.0/0".parse().unwrap()]);
    wide.interception = midspan_relay::InterceptionKind::Nftables;
    let (listener, address) = world.listen(SERVER[0]);
    world
        .relay
        .run(|| {
            let rules = midspan_relay::Interception::install(&wide).unwrap();
            for (from, accepted) in [(FOREIGN, 0), (CLIENT[0], 1)] {
                let opened = world.connect_from(SocketAddr::new(ip(from), 0), address);
                match accepted {
                    0 => assert_reset(opened),
                    _ => drop(listener.accept().unwrap()),
                }
                let counts = relay.counts();
                assert_eq!((counts["refused_client"], counts["accepted"]), (1, accepted));
            }
            drop(rules);
        })
        .unwrap();
    assert_passes(&world, &listener, FOREIGN);
}

#[test]
fn at_a_limit_new_flows_are_reset_and_old_ones_go_on() {
    let Some(world) = World::new() else { return };
    for (limit, count) in
        [("flows = 2", "refused_flows"), ("flows_per_client = 2", "refused_flows_per_client")]
    {
        let mut relay =
            RelayProcess::start(&world.relay, &format!("{NFTABLES}[limits]\n{limit}\n"));
        let (listener, address) = world.listen(SERVER[0]);
        let mut near: Vec<_> = (0..2).map(|_| world.connect(address).unwrap()).collect();
        let _far: Vec<_> = (0..2).map(|_| listener.accept().unwrap()).collect();
        assert_reset(world.connect(address));
        assert_eq!(relay.counts()[count], 1);
        near.iter_mut().for_each(|stream| stream.write_all(b"still here").unwrap());
        drop(near);
        drop(_far);
        relay.until(|counts| counts["active"] == 0);
        drop(world.connect(address).unwrap());
        assert_eq!(relay.until(|counts| counts["accepted"] == 3)[count], 1);
    }
}

#[test]
fn without_descriptors_new_clients_are_reset_and_nothing_spins() {
    let Some(world) = World::new() else { return };
    let limits = format!("{NFTABLES}[limits]\nflows = 1000\n");
    let mut relay = RelayProcess::start_limited(&world.relay, &limits, 128);
    let (listener, address) = world.listen(SERVER[0]);
    listener.set_nonblocking(true).unwrap();
    let clients: Vec<_> = (0..60).map(|_| world.connect(address)).collect();
    let counts = relay.until(|counts| counts["refused_flows"] + counts["accepted"] >= 60);
    assert!(counts["refused_flows"] > 20 && counts["accepted"] > 5, "{counts:?}");
    assert!(relay.descriptors() < 128);
    let busy = relay.busy();
    thread::sleep(Duration::from_millis(500));
    assert!(relay.busy() - busy < Duration::from_millis(100), "it spins");
    // Those that were taken work; all others were reset.
    let servers = std::iter::from_fn(|| listener.accept().ok()).map(|(mut far, from)| {
        far.write_all(b"x").unwrap();
        from.port()
    });
    let taken: Vec<u16> = servers.collect();
    assert_eq!(taken.len() as u64, counts["accepted"]);
    for client in clients {
        match client {
            Ok(mut near) if taken.contains(&near.local_addr().unwrap().port()) => {
                near.read_exact(&mut [0]).unwrap();
            }
            refused => assert_reset(refused),
        }
    }
    relay.until(|counts| counts["active"] == 0);
    drop(world.connect(address).unwrap());
    relay.until(|now| now["accepted"] > counts["accepted"]);
}

/// The bound, for one direction: what the reader's socket holds, the send buffer of the leg
/// towards it, the relay's own buffer, the receive buffer of the leg towards the writer, and what
/// the writer's socket holds. The kernel keeps twice the configured size of a socket's buffer.
#[test]
fn a_slow_reader_bounds_what_is_buffered() {
    const SIZE: u64 = 256 * 1024;
    let Some(world) = World::new() else { return };
    let leg = "receive_buffer = \"256 KiB\"\nsend_buffer = \"256 KiB\"\n";
    let settings = format!("buffer = \"256 KiB\"\n[client_leg]\n{leg}[server_leg]\n{leg}");
    let mut relay = RelayProcess::start(&world.relay, &settings);
    let pairs = 4;
    let mut ends = Vec::new();
    let mut written = 0;
    for index in 0..pairs {
        let (client, server) = world.pair(SERVER[0]);
        let (reader, writer) = if index % 2 == 0 { (client, server) } else { (server, client) };
        for end in [&reader, &writer] {
            let end = socket2::SockRef::from(end);
            end.set_send_buffer_size(SIZE as usize).unwrap();
            end.set_recv_buffer_size(SIZE as usize).unwrap();
        }
        written += fill(&writer);
        ends.push((reader, writer));
    }
    let counts = relay.counts();
    let taken = counts["bytes_from_client"] + counts["bytes_from_server"];
    let given = counts["bytes_to_client"] + counts["bytes_to_server"];
    assert!(taken - given <= pairs * SIZE, "{} held", taken - given);
    assert!(counts["buffered"] <= pairs * SIZE, "{}", counts["buffered"]);
    let per_flow = written / pairs;
    assert!(per_flow <= 2 * SIZE + 2 * SIZE + SIZE + 2 * SIZE + 2 * SIZE, "{per_flow}");
    // And nothing of it is lost when the reader wakes up.
    for (mut reader, writer) in ends {
        drop(writer);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        written -= all.len() as u64;
    }
    assert_eq!(written, 0);
    relay.until(|counts| counts["active"] == 0 && counts["buffered"] == 0);
}

/// A reader that takes 64 KiB every 10 ms has its limit, some 64 KiB for a turn of the relay of 10 ms,
/// ahead of it in the relay and once more in the socket towards it, and what its own socket holds. Up
/// to twice the limit is for acknowledgements of two readings that come in one round. A buffer that is
/// always filled holds as many segments as its pipe has places: how many bytes these are is chance.
#[test]
fn a_slow_reader_is_read_ahead_of_as_far_as_it_needs() {
    let Some(world) = World::new() else { return };
    let ahead = |read_ahead: &str| {
        let settings = format!("{NFTABLES}buffer = \"4 MiB\"\nread_ahead = \"{read_ahead}\"\n");
        let mut relay = RelayProcess::start(&world.relay, &settings);
        let (mut reader, mut writer) = world.pair(SERVER[0]);
        socket2::SockRef::from(&reader).set_recv_buffer_size(64 * 1024).unwrap();
        let enough = AtomicBool::new(false);
        thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut written = 0;
                while !enough.load(Ordering::Relaxed) {
                    writer.write_all(&[7; 64 * 1024]).unwrap();
                    written += 64 * 1024;
                }
                writer.shutdown(Shutdown::Write).unwrap();
                written
            });
            let mut read = 0;
            for _ in 0..250 {
                read += reader.read(&mut [0; 64 * 1024]).unwrap() as u64;
                thread::sleep(Duration::from_millis(10));
            }
            let ahead = relay.counts()["bytes_from_server"] - read;
            enough.store(true, Ordering::Relaxed);
            read += io::copy(&mut reader, &mut io::sink()).unwrap();
            assert_eq!(writing.join().unwrap(), read);
            ahead
        })
    };
    let (fixed, auto) = (ahead("fixed"), ahead("auto"));
    assert!(auto < 512 * 1024 && auto < fixed, "{auto} ahead of it in place of {fixed}");
}

#[test]
fn when_buffers_are_short_flows_wait_and_lose_nothing() {
    const FLOWS: usize = 30;
    let Some(world) = World::new() else { return };
    let leg = "receive_buffer = \"64 KiB\"\nsend_buffer = \"64 KiB\"\n";
    let settings = format!(
        "{NFTABLES}workers = 1\n[limits]\nbuffered = \"1 MiB\"\n[client_leg]\n{leg}[server_leg]\n{leg}"
    );
    let mut relay = RelayProcess::start(&world.relay, &settings);
    let pairs: Vec<_> = (0..FLOWS).map(|_| world.pair(SERVER[0])).collect();
    let written: u64 = thread::scope(|scope| {
        let writers: Vec<_> =
            pairs.iter().map(|(_, server)| scope.spawn(|| fill(server))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    let counts = relay.counts();
    assert!(counts["buffer_waits"] > 0 && counts["buffered"] <= 1 << 20, "{counts:?}");
    // There is nothing for another flow.
    assert_reset(world.connect(pairs[0].1.local_addr().unwrap()));
    assert_eq!(relay.counts()["refused_buffered"], 1);
    let read: u64 = thread::scope(|scope| {
        let readers: Vec<_> = pairs
            .into_iter()
            .map(|(mut client, server)| {
                drop(server);
                scope.spawn(move || std::io::copy(&mut client, &mut std::io::sink()).unwrap())
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    assert_eq!(read, written);
    let counts = relay.until(|counts| counts["active"] == 0 && counts["buffered"] == 0);
    assert_eq!(counts["closed"], FLOWS as u64);
}

/// Writes until nothing moves any more.
fn fill(mut writer: &TcpStream) -> u64 {
    writer.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let (chunk, mut written) = (vec![1; 65_536], 0);
    while let Ok(bytes) = writer.write(&chunk) {
        written += bytes as u64;
    }
    written
}

/// A connection from `client` reaches the listener, and data crosses it.
fn assert_passes(world: &World, listener: &TcpListener, client: &str) {
    let address = listener.local_addr().unwrap();
    let (mut near, mut far) = thread::scope(|scope| {
        let far = scope.spawn(|| listener.accept().unwrap());
        let near = world.connect_from(SocketAddr::new(ip(client), 0), address).unwrap();
        (near, far.join().unwrap().0)
    });
    far.write_all(b"hello").unwrap();
    drop(far);
    let mut text = String::new();
    near.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
}
