//! Connections without end from client to server, of all sizes, every byte of them checked at both
//! ends. What makes a transfer whole is the orderly end alone, as in HTTP/1.0: who sees one before
//! the last byte has been fooled.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::world::{CLIENT, SERVER, World, connect, ip};

/// Connections opened at a steady pace, IPv4 and IPv6 in turn, until it is stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    opener: JoinHandle<()>,
    outcomes: Receiver<Outcome>,
    servers: Vec<JoinHandle<()>>,
    /// No client is left.
    served: Arc<AtomicBool>,
}

/// What became of one connection, as one end saw it.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) by: Side,
    pub(crate) size: Size,
    /// Before the client asked for the connection, or after the server had it.
    pub(crate) opened: Instant,
    pub(crate) ended: Instant,
    pub(crate) end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// All bytes, and an orderly end.
    Whole,
    /// Reset, before or after the handshake.
    Reset,
    /// Nothing moved for long.
    Stalled,
    /// An orderly end too early, or bytes that nobody sent: what must never be.
    Wrong(String),
    /// Any other error.
    Failed(ErrorKind),
}

/// What is asked for, by the connection's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// A small request, a small answer.
    Small,
    Download,
    Upload,
    /// A download whose server takes its time.
    Drip,
}

impl Size {
    fn of(id: u32) -> Size {
        match id / 2 % 8 {
            0 => Size::Download,
            1 => Size::Upload,
            2 => Size::Drip,
            _ => Size::Small,
        }
    }

    /// Bytes from the client, and from the server.
    pub(crate) fn bytes(self) -> (usize, usize) {
        match self {
            Size::Small => (100, 3_000),
            Size::Download => (100, 1_000_000),
            Size::Upload => (1_000_000, 100),
            Size::Drip => (100, 40_000),
        }
    }
}

/// Both ends give up when nothing has moved for so long.
const STALL: Duration = Duration::from_secs(15);

impl Load {
    /// A connection every `pause`.
    pub(crate) fn start(world: &World, pause: Duration) -> Load {
        let (report, outcomes) = mpsc::channel();
        let (stop, served) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (listeners, addresses): (Vec<_>, Vec<_>) =
            SERVER.into_iter().map(|server| world.listen(server)).unzip();
        let servers = listeners.into_iter().map(|listener| {
            let (report, served) = (report.clone(), served.clone());
            thread::spawn(move || serve(&listener, &served, &report))
        });
        let servers = servers.collect();
        let (stopped, client) = (stop.clone(), world.client.clone());
        let opener = thread::spawn(move || {
            client.enter().unwrap();
            let mut clients = Vec::new();
            for id in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let (server, report) = (addresses[id as usize % 2], report.clone());
                clients.push(thread::spawn(move || ask(id, server, &report)));
                clients.retain(|client| !client.is_finished());
                thread::sleep(pause);
            }
            clients.into_iter().for_each(|client| client.join().unwrap());
        });
        Load { stop, opener, outcomes, servers, served }
    }

    /// Opens no more, and waits for those that are open.
    pub(crate) fn stop(self) -> Vec<Outcome> {
        self.stop.store(true, Ordering::Relaxed);
        self.opener.join().unwrap();
        self.served.store(true, Ordering::Relaxed);
        self.servers.into_iter().for_each(|server| server.join().unwrap());
        self.outcomes.iter().collect()
    }
}

fn ask(id: u32, server: SocketAddr, report: &Sender<Outcome>) {
    let opened = Instant::now();
    let end = match connect(local(server), server) {
        Ok(stream) => ask_on(id, &stream).unwrap_or_else(End::of),
        Err(error) => End::of(error),
    };
    let ended = Instant::now();
    let _ = report.send(Outcome { by: Side::Client, size: Size::of(id), opened, ended, end });
}

fn ask_on(id: u32, mut stream: &TcpStream) -> io::Result<End> {
    limit(stream)?;
    let (up, down) = Size::of(id).bytes();
    stream.write_all(&id.to_be_bytes())?;
    stream.write_all(&content(id, up))?;
    stream.shutdown(Shutdown::Write)?;
    let mut heard = Vec::with_capacity(down);
    stream.read_to_end(&mut heard)?;
    Ok(End::of_content(&heard, &content(!id, down)))
}

/// Until it is to stop and nobody waits to be accepted.
fn serve(listener: &TcpListener, stop: &AtomicBool, report: &Sender<Outcome>) {
    listener.set_nonblocking(true).unwrap();
    thread::scope(|scope| {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(_) if stop.load(Ordering::Relaxed) => return,
                Err(_) => {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            let opened = Instant::now();
            scope.spawn(move || {
                let mut size = Size::Small;
                let end = answer(&stream, &mut size).unwrap_or_else(End::of);
                let ended = Instant::now();
                let _ = report.send(Outcome { by: Side::Server, size, opened, ended, end });
            });
        }
    });
}

fn answer(mut stream: &TcpStream, size: &mut Size) -> io::Result<End> {
    limit(stream)?;
    let mut id = [0; 4];
    match stream.read_exact(&mut id) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            return Ok(End::Wrong("nothing but an orderly end".into()));
        }
        result => result?,
    }
    let id = u32::from_be_bytes(id);
    *size = Size::of(id);
    let (up, down) = size.bytes();
    let mut heard = Vec::with_capacity(up);
    stream.read_to_end(&mut heard)?;
    let end = End::of_content(&heard, &content(id, up));
    if end == End::Whole {
        let content = content(!id, down);
        if *size == Size::Drip {
            for piece in content.chunks(1_000) {
                stream.write_all(piece)?;
                thread::sleep(Duration::from_millis(10));
            }
        } else {
            stream.write_all(&content)?;
        }
        stream.shutdown(Shutdown::Write)?;
    }
    Ok(end)
}

fn limit(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))
}

impl End {
    fn of(error: io::Error) -> End {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionRefused => {
                End::Reset
            }
            // Of shutdown(2), on what was reset.
            ErrorKind::NotConnected => End::Reset,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => End::Stalled,
            kind => End::Failed(kind),
        }
    }

    fn of_content(heard: &[u8], said: &[u8]) -> End {
        if heard == said {
            End::Whole
        } else if said.starts_with(heard) {
            End::Wrong(format!("an orderly end after {} of {} bytes", heard.len(), said.len()))
        } else {
            let place = heard.iter().zip(said).take_while(|(heard, said)| heard == said).count();
            End::Wrong(format!("wrong from byte {place} on, of {}", heard.len()))
        }
    }
}

/// Every byte follows from the connection's number and its place.
fn content(id: u32, bytes: usize) -> Vec<u8> {
    let word = |place: u64| {
        let word = (u64::from(id) << 32 | place).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word ^ word >> 29
    };
    let words = (0..bytes as u64).step_by(8).flat_map(|place| word(place).to_be_bytes());
    words.take(bytes).collect()
}

fn local(server: SocketAddr) -> SocketAddr {
    SocketAddr::new(ip(if server.is_ipv4() { CLIENT[0] } else { CLIENT[1] }), 0)
}
