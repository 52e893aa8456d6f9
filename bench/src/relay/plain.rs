//! A plain relay: a thread for each processor, which reads and writes at once what an event tells of, and
//! closes both connections as soon as one has ended. No limits, no accounts, no half-close, and what does not go into a
//! socket at once is lost. What it takes is nearly all the kernel's, for one read and one write a message; less is to be
//! had by who sends for several at a time. Where it is transparent it connects from the address and port of its client.
//!
//! For downloads there is one that splices: it has a thread and a pipe for each direction of each connection, and moves what
//! there is, whatever it is, from the one socket to the other until it ends. It loses nothing, and nothing is copied.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

#[derive(Args)]
pub(crate) struct Options {
    /// Where it listens and whom it connects to, an address a line, a line that says `transparent` or nothing, and one that says
    /// `splicing` or nothing.
    #[arg(long)]
    config: PathBuf,
}

/// Events taken from the kernel at a time.
const EVENTS: usize = 512;
/// What events of the listener bear.
const LISTENER: u64 = u64::MAX;

/// Runs until it is killed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Settings { at, to, transparent, splicing } = settings(&options.config)?;
    if splicing {
        return splicing::relay(&listen(at, transparent)?, to, transparent);
    }
    let allowed = sched_getaffinity(None)?;
    let mut threads = Vec::new();
    for number in (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)) {
        let listener = listen(at, transparent)?;
        threads.push(std::thread::spawn(move || -> Result<()> {
            let mut own = CpuSet::new();
            own.set(number);
            sched_setaffinity(None, &own)?;
            relay(&listener, to, transparent)
        }));
    }
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    }
    Ok(())
}

struct Settings {
    at: SocketAddr,
    to: SocketAddr,
    transparent: bool,
    splicing: bool,
}

fn settings(path: &Path) -> Result<Settings> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    match text.lines().collect::<Vec<_>>()[..] {
        [at, to, source @ ("" | "transparent"), how @ ("" | "splicing")] => Ok(Settings {
            at: at.parse()?,
            to: to.parse()?,
            transparent: !source.is_empty(),
            splicing: !how.is_empty(),
        }),
        _ => bail!("{}: two addresses, each on a line of its own, and two more", path.display()),
    }
}

/// The one that splices.
mod splicing {
    use std::io;
    use std::net::SocketAddr;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Arc;
    use std::thread;

    use anyhow::Result;
    use rustix::net::{Shutdown, shutdown};
    use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
    use socket2::Socket;

    /// As much as a pipe holds where nobody has raised the limit (fs.pipe-max-size).
    const PIPE: usize = 1 << 20;

    pub(super) fn relay(listener: &Socket, to: SocketAddr, transparent: bool) -> Result<()> {
        listener.set_nonblocking(false)?;
        loop {
            let (client, from) = listener.accept()?;
            let server = super::server(&to.into(), transparent.then_some(&from))?;
            server.set_nonblocking(false)?;
            server.connect(&to.into())?;
            for socket in [&client, &server] {
                socket.set_tcp_nodelay(true)?;
            }
            let pair = Arc::new([client, server]);
            for from in [0, 1] {
                let pair = pair.clone();
                // A connection that fails ends, and nothing else.
                thread::spawn(move || carry(pair[from].as_fd(), pair[1 - from].as_fd()));
            }
        }
    }

    /// Moves what comes until it ends, and then says so.
    fn carry(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setpipe_size(&into, PIPE)?;
        let flags = SpliceFlags::MOVE;
        loop {
            let mut held = splice(from, None, &into, None, PIPE, flags)?;
            if held == 0 {
                return Ok(shutdown(to, Shutdown::Write)?);
            }
            while held > 0 {
                held -= splice(&out, None, to, None, held, flags)?;
            }
        }
    }
}

fn listen(at: SocketAddr, transparent: bool) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::for_address(at), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_ip_transparent_v4(transparent)?;
    socket.bind(&at.into())?;
    socket.listen(4_096)?;
    Ok(socket)
}

/// One connection of two.
struct End {
    socket: TcpStream,
    is_connected: bool,
}

/// Both connections of a client: `[client, server]`.
type Pair = [End; 2];

fn relay(listener: &Socket, to: SocketAddr, transparent: bool) -> Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let to = SockAddr::from(to);
    let mut pairs: Vec<Option<Pair>> = Vec::new();
    let mut free = Vec::new();
    let mut ended = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        for epoll::Event { flags, data } in events.iter().copied() {
            if data.u64() == LISTENER {
                while let Ok((client, from)) = listener.accept() {
                    let place = free.pop().unwrap_or(pairs.len());
                    let from = transparent.then_some(&from);
                    let pair = begin(&epoll, client, from, &to, place)?;
                    match pairs.get_mut(place) {
                        Some(slot) => *slot = Some(pair),
                        None => pairs.push(Some(pair)),
                    }
                }
                continue;
            }
            let (place, side) = ((data.u64() >> 1) as usize, (data.u64() & 1) as usize);
            let Some(pair) = pairs[place].as_mut() else { continue };
            if happened(pair, side, flags, &mut buffer).is_err() {
                pairs[place] = None;
                // Events that were taken already may still be for this one.
                ended.push(place);
            }
        }
        free.append(&mut ended);
    }
}

/// A socket to connect to a server with, as `from` if that is given.
fn server(to: &SockAddr, from: Option<&SockAddr>) -> io::Result<Socket> {
    let server = Socket::new(to.domain(), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    server.set_tcp_nodelay(true)?;
    if let Some(from) = from {
        server.set_ip_transparent_v4(true)?;
        server.set_reuse_address(true)?;
        server.bind(from)?;
    }
    Ok(server)
}

/// Begins to connect for a client, as `from` if that is given.
fn begin(
    epoll: &OwnedFd,
    client: Socket,
    from: Option<&SockAddr>,
    to: &SockAddr,
    place: usize,
) -> Result<Pair> {
    client.set_nonblocking(true)?;
    client.set_tcp_nodelay(true)?;
    let server = server(to, from)?;
    match server.connect(to) {
        Err(error)
            if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
        {
            return Err(error.into());
        }
        _ => {}
    }
    let edges = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    for (side, socket, flags) in
        [(1, server.as_fd(), edges | EventFlags::OUT), (0, client.as_fd(), edges)]
    {
        epoll::add(epoll, socket, EventData::new_u64((place as u64) << 1 | side), flags)?;
    }
    Ok([
        End { socket: client.into(), is_connected: true },
        End { socket: server.into(), is_connected: false },
    ])
}

/// Carries on what an event tells of. An error ends the pair.
fn happened(pair: &mut Pair, side: usize, flags: EventFlags, buffer: &mut [u8]) -> io::Result<()> {
    if !pair[side].is_connected {
        if !flags.contains(EventFlags::OUT) || flags.contains(EventFlags::ERR) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        pair[side].is_connected = true;
        carry(pair, 1 - side, buffer)?;
    }
    if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
        carry(pair, side, buffer)?;
    }
    if flags.contains(EventFlags::RDHUP) {
        carry(pair, side, buffer)?;
    }
    Ok(())
}

/// Reads once from one side and writes it to the other.
fn carry(pair: &mut Pair, from: usize, buffer: &mut [u8]) -> io::Result<()> {
    if !pair[1 - from].is_connected {
        return Ok(());
    }
    match pair[from].socket.read(buffer) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(read) => pair[1 - from].socket.write_all(&buffer[..read]),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}
