//! Who answers and closes without having read all: its kernel sends what it has to say, and a reset right behind
//! it (RFC 9293, 3.10.4; RFC 2525, 2.17). The reset must not overtake the answer.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{NFTABLES, RelayProcess};
use crate::steer::start;
use crate::world::{BOX, PATIENCE, SERVER, World, ip, skip};

const ROUNDS: usize = 50;
/// More than one segment, and less than any window.
const ANSWER: [u8; 3000] = [b'4'; 3000];
/// What is not read, more than buffers on the way hold of a direction that is not read.
const UNREAD: usize = 200_000;
const PORT: u16 = 8080;
const CURL_SEND_ERROR: i32 = 55;

/// Answers what has begun to come, and closes without having read all of it.
fn answer(mut stream: TcpStream) {
    stream.read_exact(&mut [0; 10]).unwrap();
    stream.peek(&mut [0]).unwrap();
    stream.write_all(&ANSWER).unwrap();
}

/// What becomes of the answer to whom was sending at the time, and whether it is told of the reset.
fn asker(mut stream: TcpStream) -> (usize, bool) {
    let mut writes = stream.try_clone().unwrap();
    let writer = thread::spawn(move || writes.write_all(&[b'x'; UNREAD]));
    let mut heard = Vec::new();
    let read = stream.read_to_end(&mut heard);
    // It is told once, to whom asks first.
    let written = writer.join().unwrap();
    assert!(heard.iter().all(|&byte| byte == b'4'));
    (heard.len(), read.is_err() || written.is_err())
}

/// How many of so many answers come whole, and behind it the reset; of servers, or of clients.
fn come_whole(world: &World, listener: &TcpListener, to: SocketAddr, of_servers: bool) -> usize {
    let mut whole = 0;
    for _ in 0..ROUNDS {
        let near = world.connect(to).unwrap();
        // A server that is reached early has nothing to say before it is connected.
        let (far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let (answers, asks) = if of_servers { (far, near) } else { (near, far) };
        let other = thread::spawn(move || answer(answers));
        let heard = asker(asks);
        other.join().unwrap();
        whole += usize::from(heard == (ANSWER.len(), true));
    }
    whole
}

fn all_come_whole(world: &World, to: impl Fn(SocketAddr) -> SocketAddr) {
    for server in SERVER {
        let (listener, address) = world.listen(server);
        for of_servers in [true, false] {
            let whole = come_whole(world, &listener, to(address), of_servers);
            assert_eq!(whole, ROUNDS, "{server}, of_servers: {of_servers}");
        }
    }
}

#[test]
fn an_answer_comes_before_its_reset_without_a_relay() {
    let Some(world) = World::new() else { return };
    all_come_whole(&world, |address| address);
}

#[test]
fn an_answer_comes_before_its_reset_as_steered_by_bpf() {
    let Some(world) = World::new() else { return };
    for settings in ["", "handshake = \"confirmed\"\n", "handshake = \"learned\"\n"] {
        let Some(mut relay) = start(&world, settings) else { return };
        all_come_whole(&world, |address| address);
        let counts = relay.until(|counts| counts["active"] == 0);
        let (rounds, inconsistent) = (2 * ROUNDS as u64, counts["inconsistent"]);
        assert_eq!((counts["reset_by_server"], inconsistent), (rounds, 0), "{counts:#?}");
        assert_eq!(counts["reset_by_client"], rounds);
    }
}

#[test]
fn an_answer_comes_before_its_reset_as_steered_by_nftables() {
    let Some(world) = World::new() else { return };
    let _relay = RelayProcess::start(&world.relay, NFTABLES);
    all_come_whole(&world, |address| address);
}

#[test]
fn an_answer_comes_before_its_reset_where_the_relay_is_connected_to() {
    let Some(world) = World::new() else { return };
    for (server, own) in SERVER.into_iter().zip(BOX) {
        let (listener, address) = world.listen(server);
        let settings = format!(
            "interception = \"none\"\n[[forward]]\nlisten = \"{}\"\nto = [\"{address}\"]\n",
            SocketAddr::new(ip(own), PORT)
        );
        let _relay = RelayProcess::start(&world.relay, &settings);
        for of_servers in [true, false] {
            let to = SocketAddr::new(ip(own), PORT);
            assert_eq!(come_whole(&world, &listener, to, of_servers), ROUNDS);
        }
    }
}

/// A client that has sent and reset while its server is far: what it sent is for the server.
#[test]
fn what_was_sent_and_reset_before_the_server_was_there_is_delivered() {
    let Some(world) = World::new() else { return };
    let Some(_relay) = start(&world, "") else { return };
    for server in SERVER {
        let (listener, address) = world.listen(server);
        for _ in 0..ROUNDS {
            let mut near = world.connect(address).unwrap();
            near.write_all(b"for the record").unwrap();
            crate::world::abort(near);
            let (mut far, _) = listener.accept().unwrap();
            far.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut heard = Vec::new();
            let error = far.read_to_end(&mut heard).unwrap_err();
            assert_eq!(String::from_utf8_lossy(&heard), "for the record");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }
}

/// Who does not read does not keep the relay waiting for ever.
#[test]
fn who_does_not_take_the_rest_is_reset_in_the_end() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "") else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let near = world.connect(address).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    // More than its window takes.
    far.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    while far.write(&[0; 1 << 16]).is_ok() {}
    crate::world::abort(far);
    let start = Instant::now();
    relay.until(|counts| counts["active"] == 0);
    assert!(start.elapsed() > Duration::from_secs(5), "it has had no time");
    drop(near);
}

/// An upload to a server that says at once that it does not want it.
///
/// Where curl is kept from running between its look for an answer and its next write, that fails, and it gives up
/// with what has come unread ("send error", 55): so it goes without a relay, now and then. Through one it has the
/// time to look again.
#[test]
fn curl_sees_the_answer_to_what_it_still_uploads() {
    let Some(world) = World::new() else { return };
    if Command::new("curl").arg("--version").output().is_err() {
        return skip("curl is not installed");
    }
    let (listener, address) = world.listen(SERVER[0]);
    let served = thread::spawn(move || {
        for _ in 0..60 {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            stream.peek(&mut byte).unwrap();
            let no = b"HTTP/1.1 501 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nNo";
            stream.write_all(no).unwrap();
        }
    });
    let body = tempfile::NamedTempFile::new().unwrap();
    body.as_file().set_len(200_000).unwrap();
    let answered = || {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Expect:"]);
        curl.arg("--data-binary").arg(format!("@{}", body.path().display()));
        curl.arg(format!("http://{address}/"));
        let seen = || world.client.apply(&mut curl).output().unwrap();
        let seen: Vec<_> = std::iter::repeat_with(seen).take(30).collect();
        let (answered, other): (Vec<_>, Vec<_>) =
            seen.iter().partition(|seen| seen.stdout == b"501");
        assert!(other.iter().all(|seen| seen.status.code() == Some(CURL_SEND_ERROR)), "{other:?}");
        answered.len()
    };
    let without = answered();
    let Some(_relay) = start(&world, "") else { return };
    let with = answered();
    served.join().unwrap();
    assert!(without >= 27 && with == 30, "answered: {without} of 30, by the relay {with}");
}
