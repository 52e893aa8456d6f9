//! A thousand connections of random sizes, chunkings, half-closes and resets, from either side,
//! over a lossy path.

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use socket2::{SockRef, TcpKeepalive};

use crate::process::{Counts, NFTABLES, RelayProcess};
use crate::world::{CLIENT, PATIENCE, SERVER, World, abort, connect, ip};

const CONNECTIONS: u16 = 1000;
const AT_A_TIME: usize = 100;
/// Connection n comes from this port plus n, which is how the server knows it.
const FIRST_PORT: u16 = 20_000;

#[test]
fn a_thousand_connections_over_a_lossy_path() {
    storm("");
}

#[test]
fn a_thousand_connections_over_a_lossy_path_by_nftables() {
    storm(NFTABLES);
}

fn storm(steering: &str) {
    let Some(world) = World::new() else { return };
    // Where a reset is lost on the way, only asking again finds out.
    let legs = "[client_leg]\nkeepalive = \"1 s\"\n[server_leg]\nkeepalive = \"1 s\"\n";
    let mut relay = RelayProcess::start(&world.relay, &format!("{steering}{legs}"));
    lose_one_in_a_hundred(&world);
    let (sockets, memory) = (sockets(relay.pid()), relay.memory());

    let faults = Faults::default();
    let reached = Mutex::new(HashMap::new());
    thread::scope(|scope| {
        for server in SERVER {
            let (listener, address) = world.listen(server);
            scope.spawn(|| serve(listener, &reached, &faults));
            let next = AtomicU16::new(0);
            thread::scope(|scope| {
                for _ in 0..AT_A_TIME {
                    scope.spawn(|| {
                        world.client.enter().unwrap();
                        run_clients(&next, address, &faults);
                    });
                }
            });
            // Port 1 ends the server.
            drop(world.connect_from(SocketAddr::new(ip(local(address)), LAST), address).unwrap());
        }
    });
    let counts = relay.until(|counts| counts["active"] == 0);
    faults.report(&counts);
    let plans = || (0..CONNECTIONS).map(Plan::of);
    let in_order = plans().filter(|plan| plan.resets.is_none()).count() as u64 * 2;
    // A client's reset may overtake its handshake: then there never was a connection.
    let accepted = counts["accepted"];
    assert!(accepted > in_order && accepted <= u64::from(CONNECTIONS + 1) * 2, "{counts:#?}");
    let reset = counts["reset_by_client"] + counts["reset_by_server"];
    // A client may have reset, and the server ended, while the SYN to the server was being sent again.
    let refused = counts["connect_failed"];
    assert_eq!(counts["closed"] + reset + refused, accepted, "{counts:#?}");
    let by_clients = plans().filter(|plan| plan.resets == Some(Side::Client)).count() as u64 * 2;
    assert!(refused <= by_clients, "{counts:#?}");
    // Where the SYN was lost behind the steering program, BPF passes the next.
    let passed = counts.get("pass_unreached").copied().unwrap_or(0);
    assert!(counts["closed"] + passed >= in_order, "{counts:#?}");
    assert!(counts["splice_promotions"] > 0 && counts["inconsistent"] == 0, "{counts:#?}");
    let reached = reached.into_inner().unwrap();
    let missing: Vec<_> = plans()
        .filter(|plan| plan.resets != Some(Side::Client) && reached.get(&plan.id) != Some(&2))
        .collect();
    assert!(missing.is_empty(), "the server has not seen all of {missing:#?}: {counts:#?}");

    // Nothing is left behind but what is kept for the next flow.
    assert_eq!(counts["buffered"], 0);
    // A leg that was left to deliver what it has is nobody's any more, and soon gone.
    let start = Instant::now();
    let (own, of_namespace) = loop {
        let now = self::sockets(relay.pid());
        if now.1 == sockets.1 || start.elapsed() > PATIENCE {
            break now;
        }
        thread::sleep(Duration::from_millis(10));
    };
    // While it starts it has a few more, to say so.
    assert!(own <= sockets.0 && of_namespace == sockets.1, "{sockets:?}: {own} {of_namespace:?}");
    let grown = relay.memory().saturating_sub(memory);
    assert!(grown < 32 << 20, "{grown} bytes of memory are left behind");
    assert!(relay.descriptors() < 200, "{} descriptors", relay.descriptors());
}

const LAST: u16 = 19_999;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// How what a side heard ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// In order, after all there was.
    All,
    /// In order, but early.
    Part(u64),
    Reset,
}

/// What happens on one connection, known to both ends from its number alone.
#[derive(Debug)]
struct Plan {
    id: u16,
    /// Bytes that the client and the server send.
    bytes: [u64; 2],
    /// Who says nothing until the other has finished.
    listens_first: Option<Side>,
    /// Who resets the connection, instead of ending in order.
    resets: Option<Side>,
    /// Whether that happens before its FIN, after so many bytes, or right after it.
    reset_after: Option<u64>,
}

impl Plan {
    fn of(id: u16) -> Plan {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(u64::from(id));
        let mut below = |limit: u64| random.next_u64() % limit;
        // Sizes of every order of magnitude.
        let mut size = || match below(20) {
            0 => 0,
            1 => 4_000_000,
            _ => 1 << below(20) | below(1 << 10),
        };
        let bytes = [size(), size()];
        let side = |draw| if draw == 0 { Side::Client } else { Side::Server };
        let resets = (below(10) < 3).then(|| side(below(2)));
        let listens_first = (below(2) == 0).then(|| side(below(2)));
        let reset_after = match resets {
            Some(side) if below(3) > 0 => Some(below(bytes[side as usize] + 1)),
            _ => None,
        };
        Plan { id, bytes, listens_first, resets, reset_after }
    }

    /// Plays one side.
    fn play(&self, side: Side, stream: TcpStream) -> Result<(), String> {
        prepare(&stream).map_err(|error| format!("{error}"))?;
        if self.resets == Some(side) {
            self.play_resetting(side, stream);
            return Ok(());
        }
        let other = if side == Side::Client { Side::Server } else { Side::Client };
        let (heard, told) = if self.listens_first == Some(side) {
            (self.hear(other, &stream), self.tell(side, &stream))
        } else {
            thread::scope(|scope| {
                let heard = scope.spawn(|| self.hear(other, &stream));
                let told = self.tell(side, &stream);
                (heard.join().unwrap(), told)
            })
        };
        // The kernel tells of a reset once: to who reads or to who writes.
        match (heard?, told) {
            (Heard::Reset, _) | (_, Err(ErrorKind::ConnectionReset)) if self.resets.is_some() => {
                Ok(())
            }
            // Reset right after the FIN: the one was heard, the other stopped what was to be told.
            (Heard::All, Err(ErrorKind::BrokenPipe | ErrorKind::NotConnected))
                if self.resets.is_some() =>
            {
                Ok(())
            }
            (Heard::All, Ok(())) if self.reset_after.is_none() => Ok(()),
            unplanned => Err(format!("{unplanned:?}")),
        }
    }

    /// Sends what there is to send, and the FIN.
    fn tell(&self, side: Side, stream: &TcpStream) -> Result<(), ErrorKind> {
        self.write(side, self.bytes[side as usize], stream)
            .and_then(|()| stream.shutdown(Shutdown::Write))
            .map_err(|error| error.kind())
    }

    /// Receives what the other side sends, every byte of it checked, up to its end.
    fn hear(&self, from: Side, mut stream: &TcpStream) -> Result<Heard, String> {
        let (mut received, mut buffer, mut expected) = (0, vec![0; 65_536], vec![0; 65_536]);
        let length = self.bytes[from as usize];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) if received < length => return Ok(Heard::Part(received)),
                Ok(0) => return Ok(Heard::All),
                Ok(bytes) => {
                    self.fill(from, received, &mut expected[..bytes]);
                    if buffer[..bytes] != expected[..bytes] {
                        let end = received + bytes as u64;
                        return Err(format!("wrong bytes between {received} and {end}"));
                    }
                    received += bytes as u64;
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Ok(Heard::Reset);
                }
                Err(error) => return Err(format!("after {received} of {length} bytes: {error}")),
            }
        }
    }

    fn play_resetting(&self, side: Side, stream: TcpStream) {
        let before_fin = self.reset_after;
        let sent = self.write(side, before_fin.unwrap_or(self.bytes[side as usize]), &stream);
        if sent.is_ok() && before_fin.is_none() {
            let _ = stream.shutdown(Shutdown::Write);
        }
        abort(stream);
    }

    /// Sends the first `length` bytes in pieces of random size.
    fn write(&self, side: Side, length: u64, mut stream: &TcpStream) -> io::Result<()> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(u64::from(self.id) << 1 | side as u64);
        let (mut sent, mut buffer) = (0, vec![0; 1 << 17]);
        while sent < length {
            let piece =
                (1 + random.next_u64() % (1 << (random.next_u64() % 18))).min(length - sent);
            let piece = &mut buffer[..piece as usize];
            self.fill(side, sent, piece);
            stream.write_all(piece)?;
            sent += piece.len() as u64;
        }
        Ok(())
    }

    /// What the bytes from `offset` on are: every one follows from connection, side and place.
    fn fill(&self, side: Side, offset: u64, buffer: &mut [u8]) {
        let seed = (u64::from(self.id) << 1 | side as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for (place, byte) in (offset..).zip(buffer) {
            let word = (place >> 3).wrapping_add(seed).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            *byte = ((word ^ word >> 32) >> (8 * (place & 7))) as u8;
        }
    }
}

fn run_clients(next: &AtomicU16, server: SocketAddr, faults: &Faults) {
    loop {
        let id = next.fetch_add(1, Ordering::Relaxed);
        if id >= CONNECTIONS {
            return;
        }
        let plan = Plan::of(id);
        let from = SocketAddr::new(ip(local(server)), FIRST_PORT + id);
        match connect(from, server) {
            Ok(stream) => faults.note("client", &plan, plan.play(Side::Client, stream)),
            // The server's reset may come before the handshake is seen to have ended.
            Err(_) if plan.resets == Some(Side::Server) => {}
            Err(error) => faults.note("client", &plan, Err(format!("connecting: {error}"))),
        }
    }
}

fn serve(listener: TcpListener, reached: &Mutex<HashMap<u16, u32>>, faults: &Faults) {
    thread::scope(|scope| {
        loop {
            let (stream, from) = listener.accept().unwrap();
            if from.port() == LAST {
                return;
            }
            let plan = Plan::of(from.port() - FIRST_PORT);
            *reached.lock().unwrap().entry(plan.id).or_default() += 1;
            scope.spawn(move || faults.note("server", &plan, plan.play(Side::Server, stream)));
        }
    });
}

/// Time limits, and probes as the relay sends them.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let probes =
        TcpKeepalive::new().with_time(Duration::from_secs(1)).with_interval(Duration::from_secs(1));
    SockRef::from(stream).set_tcp_keepalive(&probes)
}

fn local(server: SocketAddr) -> &'static str {
    if server.is_ipv4() { CLIENT[0] } else { CLIENT[1] }
}

/// Every packet is lost with a chance of 1 % on each of the two links, where it comes in: the
/// kernel would tell its sender of what is dropped on the way out, and a sender must not know.
fn lose_one_in_a_hundred(world: &World) {
    let rule = "add table inet loss { chain in { type filter hook prerouting priority raw; \
        meta l4proto tcp numgen random mod 100 < 1 drop; }; }";
    for netns in [&world.client, &world.relay, &world.server] {
        assert!(netns.apply(Command::new("nft").arg(rule)).status().unwrap().success());
    }
}

/// Sockets that the process has, and that its namespace has.
fn sockets(pid: u32) -> (usize, Vec<String>) {
    let own = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|fd| fs::read_link(fd.unwrap().path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count();
    let of_namespace = ["sockstat", "sockstat6"].map(|file| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap();
        let tcp = text.lines().find(|line| line.starts_with("TCP")).unwrap();
        tcp.split(' ').take(3).collect::<Vec<_>>().join(" ")
    });
    (own, of_namespace.into())
}

/// What went wrong on which connection.
#[derive(Default)]
struct Faults(Mutex<Vec<String>>);

impl Faults {
    fn note(&self, end: &str, plan: &Plan, result: Result<(), String>) {
        if let Err(fault) = result {
            self.0.lock().unwrap().push(format!("{end}: {fault}: {plan:?}"));
        }
    }

    fn report(&self, counts: &Counts) {
        let faults = self.0.lock().unwrap();
        let first: Vec<_> = faults.iter().take(10).collect();
        assert!(faults.is_empty(), "{} faults: {first:#?}; {counts:#?}", faults.len());
    }
}
