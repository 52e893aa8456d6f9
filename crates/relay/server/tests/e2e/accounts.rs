//! What passes is accounted for alike, split or not.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use socket2::{Domain, Socket, Type};

use crate::beside::load;
use crate::observe::{lines, of_kind};
use crate::process::Counts;
use crate::steer::start;
use crate::world::{PATIENCE, SERVER, World, abort, ip};

const UP: usize = 300_000;
const DOWN: usize = 500_000;

/// Sends what has been told from both ends at once, and ends in order.
fn transfer(near: TcpStream, far: TcpStream) {
    let run = |mut stream: TcpStream, send: usize, expect: usize| {
        let mut writer = stream.try_clone().unwrap();
        let sender = thread::spawn(move || {
            writer.write_all(&vec![7; send]).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), expect);
        sender.join().unwrap();
    };
    let there = thread::spawn(move || run(far, DOWN, UP));
    run(near, UP, DOWN);
    there.join().unwrap();
}

fn sums(counts: &Counts, treatment: &str) -> HashMap<&'static str, u64> {
    ["connections", "bytes_up", "bytes_down", "busy_up_ns", "busy_down_ns"]
        .map(|name| (name, counts[&format!("{treatment}_{name}")]))
        .into()
}

#[test]
fn split_and_passed_connections_are_accounted_for_alike() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "[policy]\npass_servers = [\"fd00::/8\"]\n") else {
        return;
    };
    let before = relay.counts();
    for server in SERVER {
        for _ in 0..3 {
            let (near, far) = world.pair(server);
            transfer(near, far);
        }
    }
    let ended = |counts: &Counts, of: &str| {
        counts[&format!("{of}_connections")] - before[&format!("{of}_connections")]
    };
    let counts = relay.until(|now| ended(now, "split") >= 3 && ended(now, "passed") >= 3);
    for treatment in ["split", "passed"] {
        let sums = sums(&counts, treatment);
        assert_eq!(sums["connections"], 3, "{treatment} {sums:?}");
        assert_eq!(sums["bytes_up"], 3 * UP as u64, "{treatment}");
        assert_eq!(sums["bytes_down"], 3 * DOWN as u64, "{treatment}");
        assert!(sums["busy_up_ns"] > 0 && sums["busy_down_ns"] > 0, "{treatment}");
    }
    assert_eq!((counts["record_lost"], counts["unaccounted"]), (0, 0));
}

#[test]
fn a_reset_ends_an_account_and_idleness_does() {
    let Some(world) = World::new() else { return };
    let settings = "account_idle = \"1 s\"\n[policy]\npass_servers = [\"fd00::/8\"]\n";
    let Some(mut relay) = start(&world, settings) else { return };
    let mut idle = Vec::new();
    for server in SERVER {
        let (mut near, mut far) = world.pair(server);
        near.write_all(b"to be reset").unwrap();
        far.read_exact(&mut [0; 11]).unwrap();
        abort(near);
        let mut pair = world.pair(server);
        pair.0.write_all(b"idle").unwrap();
        pair.1.read_exact(&mut [0; 4]).unwrap();
        idle.push(pair);
    }
    let counts = relay.until(|now| now["split_connections"] == 2 && now["passed_connections"] == 2);
    for treatment in ["split", "passed"] {
        assert_eq!(sums(&counts, treatment)["bytes_up"], 15, "{treatment}");
    }
}

/// A relay takes bytes long before their client has them: what counts is when the client has acknowledged them, which is what
/// its own clock says, split or not.
#[test]
fn accounts_go_by_what_the_client_has() {
    const LATE: Duration = Duration::from_millis(700);
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows.jsonl");
    let settings =
        format!("[policy]\npass_servers = [\"fd00::/8\"]\n[flow_log]\npath = {path:?}\n");
    let Some(mut relay) = start(&world, &settings) else { return };
    let mut own = HashMap::new();
    for (server, verdict) in SERVER.into_iter().zip(["split", "pass_server"]) {
        let (listener, address) = world.listen(server);
        let serve = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&vec![7; 3_000_000]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        });
        let began = Instant::now();
        let mut stream = world.connect(address).unwrap();
        thread::sleep(LATE);
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        own.insert(verdict, began.elapsed());
        assert_eq!(got.len(), 3_000_000);
        drop(stream);
        serve.join().unwrap();
    }
    relay.until(|now| now["split_connections"] > 0 && now["passed_connections"] > 0);
    let waited = Instant::now();
    while !own.is_empty() {
        assert!(waited.elapsed() < PATIENCE, "{own:?}");
        thread::sleep(Duration::from_millis(20));
        for line in of_kind(lines(&path), "path") {
            let Some(own) = own.remove(line["verdict"].as_str().unwrap()) else { continue };
            let told = line["down"]["last_acknowledged_us"].as_u64().unwrap();
            let told = Duration::from_micros(told);
            // Beside what a busy machine takes.
            assert!(told >= LATE / 8 * 7 && told.abs_diff(own) < LATE / 4, "{own:?} {line:#}");
        }
    }
}

/// However long it was held while the server was asked: its client has waited so long.
#[test]
fn a_connection_begins_with_its_first_syn() {
    const DEAF: Duration = Duration::from_millis(300);
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows.jsonl");
    let settings = format!("handshake = \"confirmed\"\n[flow_log]\npath = {path:?}\n");
    let Some(mut relay) = start(&world, &settings) else { return };
    let (listener, address) = world.listen(SERVER[0]);
    // The server answers when a SYN is sent again.
    let rule = format!("tcp dport {} drop", address.port());
    load(
        &world.server,
        &format!("table ip deaf {{ chain in {{ type filter hook input priority 0; {rule}; }}; }}"),
    );
    let before = relay.counts()["held"];
    thread::scope(|scope| {
        let near = scope.spawn(|| world.connect(address).unwrap());
        relay.until(|now| now["held"] > before);
        thread::sleep(DEAF);
        load(&world.server, "delete table ip deaf");
        let mut far = listener.accept().unwrap().0;
        let mut near = near.join().unwrap();
        far.write_all(b"at last").unwrap();
        drop(far);
        near.read_to_end(&mut Vec::new()).unwrap();
    });
    // A machine that is slow has it passed in the end.
    relay.until(|now| now["split_connections"] + now["passed_connections"] > 0);
    let waited = Instant::now();
    loop {
        assert!(waited.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(20));
        let Some(line) = of_kind(lines(&path), "path").pop() else { continue };
        let told = Duration::from_micros(line["down"]["first_payload_us"].as_u64().unwrap());
        assert!(told >= DEAF, "{line:#}");
        return;
    }
}

/// From the handshake on: what its opening was is not known for ever.
#[test]
fn a_connection_in_which_nothing_is_said_is_accounted_for() {
    let Some(world) = World::new() else { return };
    let settings = "account_idle = \"1 s\"\n[policy]\npass_servers = [\"fd00::/8\"]\n";
    let Some(mut relay) = start(&world, settings) else { return };
    let _silent: Vec<_> = SERVER.into_iter().map(|server| world.pair(server)).collect();
    let counts = relay.until(|now| now["split_connections"] > 0 && now["passed_connections"] > 0);
    for treatment in ["split", "passed"] {
        let sums = sums(&counts, treatment);
        assert_eq!((sums["connections"], sums["bytes_up"]), (1, 0), "{treatment} {sums:?}");
    }
}

/// The end of a client's handshake may come with its first bytes, or behind them where a network card brings them by two
/// processors: they count, though nothing else may ever come.
#[test]
fn bytes_that_come_with_the_end_of_the_handshake_count() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "[policy]\npass_servers = [\"fd00::/8\"]\n") else {
        return;
    };
    for server in SERVER {
        let (listener, address) = world.listen(server);
        let serve = thread::spawn(move || {
            let mut heard = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut heard).unwrap();
            assert_eq!(heard, b"good evening");
        });
        let client = world.client.clone();
        let call = thread::spawn(move || {
            client.enter().unwrap();
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
            sockopt::set_tcp_quickack(&socket, false).unwrap();
            socket.connect(&address.into()).unwrap();
            let mut stream = TcpStream::from(socket);
            stream.write_all(b"good evening").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        });
        call.join().unwrap();
        serve.join().unwrap();
    }
    let counts = relay.until(|now| now["split_connections"] > 0 && now["passed_connections"] > 0);
    for treatment in ["split", "passed"] {
        let sums = sums(&counts, treatment);
        assert_eq!((sums["connections"], sums["bytes_up"]), (1, 12), "{treatment} {sums:?}");
    }
}

#[test]
fn what_was_never_answered_is_no_connection() {
    let Some(world) = World::new() else { return };
    let settings = "account_idle = \"1 s\"\n[policy]\nsplit_ports = [1]\n";
    let Some(mut relay) = start(&world, settings) else { return };
    // Nobody listens, and nobody is there.
    for port in 2..20 {
        let refused = world.connect((ip(SERVER[0]), port).into());
        assert!(refused.is_err());
    }
    let (near, far) = world.pair(SERVER[0]);
    transfer(near, far);
    let counts = relay.until(|now| now["passed_connections"] > 0);
    assert_eq!(counts["passed_connections"], 1);
    assert!(counts["pass_port"] >= 19, "{counts:?}");
}

/// A client's first data and its server's answer to the relay may come in on two processors at the same
/// time, and either begins the account: it is begun once, and no byte is left out.
#[test]
fn both_ends_may_begin_an_account_at_once() {
    const CONNECTIONS: u64 = 12_000;
    const PAIRS: usize = 2;
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "") else { return };
    let before = relay.counts();
    let (servers, addresses): (Vec<_>, Vec<_>) = (0..PAIRS)
        .map(|number| {
            let (listener, address) = world.listen(SERVER[number % SERVER.len()]);
            let serve = move || {
                for _ in 0..CONNECTIONS / PAIRS as u64 {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.write_all(b"hello").unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    let mut heard = Vec::new();
                    stream.read_to_end(&mut heard).unwrap();
                    assert_eq!(heard, b"good evening");
                }
            };
            (thread::spawn(serve), address)
        })
        .unzip();
    let clients: Vec<_> = addresses
        .into_iter()
        .map(|server| {
            let client = world.client.clone();
            thread::spawn(move || {
                client.enter().unwrap();
                for turn in 0..CONNECTIONS / PAIRS as u64 {
                    let mut stream = TcpStream::connect(server).unwrap();
                    let waited = Instant::now();
                    while waited.elapsed() < Duration::from_micros(turn % 100) {}
                    stream.write_all(b"good evening").unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    let mut heard = Vec::new();
                    stream.read_to_end(&mut heard).unwrap();
                    assert_eq!(heard, b"hello");
                }
            })
        })
        .collect();
    clients.into_iter().chain(servers).for_each(|end| end.join().unwrap());
    let new = |counts: &Counts, of: &str| counts[of] - before[of];
    let counts = relay
        .until(|counts| counts["active"] == 0 && new(counts, "split_connections") >= CONNECTIONS);
    assert_eq!(new(&counts, "split_bytes_up"), new(&counts, "bytes_from_client"), "{counts:?}");
    assert_eq!(new(&counts, "split_bytes_down"), new(&counts, "bytes_from_server"), "{counts:?}");
    assert_eq!((counts["record_lost"], counts["unaccounted"]), (0, 0));
}
