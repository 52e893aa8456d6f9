//! One relay at a time takes the connections of a network namespace, and another may take its place
//! while it drains.
//!
//! The one in office listens at an abstract socket, which belongs to the namespace and goes with its
//! process. Its successor, once new connections come to it, says `retire MARK` there; the old one leaves
//! everything that they share, drains, and answers `retired`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

const NAME: &str = "midspan-relay";
/// How long a predecessor may take to answer, and its name to become free.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a successor may take to say what it wants, which it sends with its connection.
const MANNERS: Duration = Duration::from_millis(100);
/// More than any request has.
const REQUEST: u64 = 64;

/// Being the relay of a network namespace.
#[derive(Debug)]
pub(crate) struct Office {
    listener: UnixListener,
}

impl Office {
    /// Takes the office; `AddrInUse` if another relay has it.
    pub(crate) fn take() -> io::Result<Office> {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(NAME)?)?;
        listener.set_nonblocking(true)?;
        Ok(Office { listener })
    }

    /// Takes it as soon as it is free.
    pub(crate) fn take_soon() -> io::Result<Office> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Office::take() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    if Instant::now() >= deadline {
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                taken => return taken,
            }
        }
    }

    /// Readable when somebody comes.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Who has come to succeed; none if nobody has, or nobody who may.
    pub(crate) fn successor(&self) -> Option<Successor> {
        let (stream, _) = self.listener.accept().ok()?;
        match Successor::hear(stream) {
            Ok(successor) => Some(successor),
            Err(error) => {
                tracing::warn!(%error, "a request to retire is refused");
                None
            }
        }
    }
}

/// A relay that has taken over from this one.
#[derive(Debug)]
pub(crate) struct Successor {
    stream: UnixStream,
    /// Its firewall mark.
    pub(crate) mark: u32,
}

impl Successor {
    fn hear(stream: UnixStream) -> io::Result<Successor> {
        let peer = socket_peercred(&stream)?.uid;
        if !peer.is_root() && peer != geteuid() {
            return Err(io::Error::other(format!("user {} is another", peer.as_raw())));
        }
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(MANNERS))?;
        let mut request = String::new();
        BufReader::new((&stream).take(REQUEST)).read_line(&mut request)?;
        let mark = request.trim_end().strip_prefix("retire ").and_then(|mark| mark.parse().ok());
        let mark = mark.ok_or_else(|| io::Error::other("it is none"))?;
        Ok(Successor { stream, mark })
    }

    /// Says that it has the office for itself.
    pub(crate) fn congratulate(mut self) {
        // One that does not listen any more has the office all the same.
        let _ = self.stream.write_all(b"retired\n");
    }
}

/// Has the relay in office retire, to which nothing comes any more.
///
/// # Errors
/// When it does not answer, as one that hangs.
pub(crate) fn retire_predecessor(mark: u32) -> io::Result<()> {
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(NAME)?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "retire {mark}")?;
    let mut answer = String::new();
    BufReader::new(stream.take(REQUEST)).read_line(&mut answer)?;
    match answer.trim_end() {
        "retired" => Ok(()),
        _ => Err(io::Error::other("it does not answer")),
    }
}
