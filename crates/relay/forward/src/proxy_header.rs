//! Connections that begin with a PROXY protocol header, until it is there.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_split::proxy_protocol::{self, Ends, Header};
use midspan_split::{Key, Waits};
use midspan_units::{Span, Time};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::forward::Forward;
use crate::frontend::Accepted;

/// How long a header may take. "At least 3 seconds to cover a TCP retransmit", says the protocol.
const TIMEOUT: Span = Span::from_secs(5);
/// Events taken from the kernel at a time.
const EVENTS: usize = 64;

/// A connection whose header is awaited, and where it is to be passed on.
type Awaited = (Accepted, Arc<Forward>);

/// The connections of one worker whose headers are awaited. They are watched by an epoll of their own,
/// so that flows need not be told from them at every event.
#[derive(Debug)]
pub struct ProxyHeaderWait {
    epoll: OwnedFd,
    waiting: Waits<Awaited>,
}

/// What came of waiting.
#[expect(clippy::large_enum_variant, reason = "it is moved once")]
#[derive(Debug)]
pub enum HeaderOutcome {
    /// The header is there, and taken from what the connection sends. If it tells whose connection
    /// this is, these are its ends.
    Whole(Accepted, Arc<Forward>, Option<Ends>),
    /// There is none, or it took too long.
    Refused,
}

/// What was read of one so far.
enum HeaderRead {
    Part,
    Whole(Option<Ends>),
    Malformed,
}

impl ProxyHeaderWait {
    /// Awaits none yet.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<ProxyHeaderWait> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(ProxyHeaderWait { epoll, waiting: Waits::new(TIMEOUT) })
    }

    /// Readable when there is something to [handle](ProxyHeaderWait::handle).
    pub fn fd(&self) -> &OwnedFd {
        &self.epoll
    }

    /// How many are awaited.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// When the next is to [expire](ProxyHeaderWait::expire).
    pub fn poll_timeout(&mut self) -> Option<Time> {
        self.waiting.poll_timeout()
    }

    /// Takes a connection in, unless its header is there already, or cannot be awaited.
    pub fn begin(
        &mut self,
        accepted: Accepted,
        forward: Arc<Forward>,
        now: Time,
    ) -> Option<HeaderOutcome> {
        match read_header(&accepted.socket) {
            HeaderRead::Whole(ends) => return Some(HeaderOutcome::Whole(accepted, forward, ends)),
            HeaderRead::Malformed => return Some(HeaderOutcome::Refused),
            HeaderRead::Part => {}
        }
        let data = EventData::new_u64(self.waiting.next_key().to_bits());
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        if epoll::add(&self.epoll, &accepted.socket, data, flags).is_err() {
            return Some(HeaderOutcome::Refused);
        }
        self.waiting.insert((accepted, forward), now);
        None
    }

    /// Gives what came of those that something came from.
    pub fn handle(&mut self) -> Vec<HeaderOutcome> {
        let mut events = Vec::with_capacity(EVENTS);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spare = rustix::buffer::spare_capacity(&mut events);
        // Nothing is lost if it fails: the kernel tells again.
        let _ = epoll::wait(&self.epoll, spare, Some(&at_once));
        let mut all = Vec::new();
        for epoll::Event { flags, data } in events {
            let key = Key::from_bits(data.u64());
            let Some((accepted, _)) = self.waiting.get(key) else { continue };
            let ended = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
            let read = match read_header(&accepted.socket) {
                HeaderRead::Part if flags.intersects(ended) => HeaderRead::Malformed,
                read => read,
            };
            match read {
                HeaderRead::Part => {}
                HeaderRead::Whole(ends) => all.extend(self.end(key, Some(ends))),
                HeaderRead::Malformed => all.extend(self.end(key, None)),
            }
        }
        all
    }

    /// Refuses those that have taken too long, and says how many.
    pub fn expire(&mut self, now: Time) -> u64 {
        let mut refused = 0;
        while self.waiting.take_expired(now).is_some() {
            refused += 1;
        }
        refused
    }

    /// Lets go of one: with the ends that it has told, if any, or refused.
    fn end(&mut self, key: Key, told: Option<Option<Ends>>) -> Option<HeaderOutcome> {
        let (accepted, forward) = self.waiting.remove(key)?;
        let Some(ends) = told else { return Some(HeaderOutcome::Refused) };
        match epoll::delete(&self.epoll, &accepted.socket) {
            Ok(()) => Some(HeaderOutcome::Whole(accepted, forward, ends)),
            Err(_) => Some(HeaderOutcome::Refused),
        }
    }
}

/// Looks at what a connection has sent, and takes the header from it if it is whole.
fn read_header(socket: &OwnedFd) -> HeaderRead {
    let mut buffer = [0; proxy_protocol::LONGEST];
    let seen = match rustix::net::recv(socket, &mut buffer, RecvFlags::PEEK) {
        Ok((_, 0)) => return HeaderRead::Malformed,
        Ok((_, seen)) => seen,
        Err(Errno::AGAIN | Errno::INTR) => return HeaderRead::Part,
        Err(_) => return HeaderRead::Malformed,
    };
    match proxy_protocol::parse(&buffer[..seen]) {
        Ok(None) => HeaderRead::Part,
        Ok(Some(Header { length, ends })) => {
            match rustix::io::read(socket, &mut buffer[..length]) {
                Ok(read) if read == length => HeaderRead::Whole(ends),
                // An urgent mark within it.
                _ => HeaderRead::Malformed,
            }
        }
        Err(proxy_protocol::Malformed) => HeaderRead::Malformed,
    }
}
