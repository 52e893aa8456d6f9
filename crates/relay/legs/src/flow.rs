//! One split flow with its two sockets.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;
use std::vec::IntoIter;

use midspan_forward::Forward;
use midspan_observe::{Count, FlowId};
use midspan_split::{
    ClientLink, CopyMode, CountedEvent, Disposition, Failure, FirstWindows, Flow, Key, Leg,
    LegInfo, Legs, PerLeg, Read, Readiness, Write,
};
use midspan_steer::FirstWindow;
use midspan_sys::ring::Outgoing;
use midspan_units::{Span, Time};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, shutdown, sockopt};

use crate::counters::Counters;
use crate::outbox::Outbox;
use crate::pool::Pool;
use crate::relay_buffer::{RelayBuffer, failure};

/// What a flow has beside what is decided of it: two sockets, and what is held between them.
///
/// The sockets are watched edge-triggered, once and for all.
#[derive(Debug)]
pub struct LiveFlow {
    sockets: PerLeg<OwnedFd>,
    /// Where bytes are between reading and writing, by the leg read from.
    buffers: PerLeg<RelayBuffer>,
    metadata: FlowMetadata,
    /// Servers to try if this one cannot be connected to.
    others: Others,
    /// Code point of the client's SYN, which connections to the server have too.
    pub dscp: u8,
    /// What its connection to the server was made to begin with, in packets; none if that is left to the kernel.
    pub server_window: Option<u32>,
    /// What the server is sent before what the client sends, until it is connected.
    preface: Option<Box<[u8]>>,
    /// What is known of its client's link, from all flows.
    link: Arc<ClientLink>,
    /// It was by this one.
    begun: bool,
}

/// What a worker's flows are carried out with, for the one of this key.
#[derive(Debug)]
pub struct Means<'a> {
    /// What it is found by.
    pub key: Key,
    /// What lends buffers and pipes.
    pub pool: &'a mut Pool,
    /// What sends of several flows go by.
    pub outbox: &'a mut Outbox,
    /// What is counted.
    pub counters: &'a Counters,
    /// What the client is written to with at first.
    pub beginning: Beginning<'a>,
}

/// What connections to clients begin with.
#[derive(Debug, Clone, Copy)]
pub struct Beginning<'a> {
    /// When this round began.
    pub now: Time,
    /// How many packets go out at once of the first.
    pub windows: FirstWindows,
    /// What sets them; none if that is left to the kernel.
    pub program: Option<&'a FirstWindow>,
}

impl Beginning<'_> {
    /// Settles how many packets go out at once of the first that a client is sent over this link.
    fn settle(&self, client: &OwnedFd, link: &ClientLink) {
        let is_set = self.windows != FirstWindows::KERNELS;
        let Some(program) = self.program.filter(|_| is_set) else { return };
        let set = midspan_sys::socket::tcp_info(client).and_then(|info| {
            link.handshake(self.now, Span::from_micros(info.rtt.into()));
            let packets = self.windows.first(link, self.now, info.snd_cwnd);
            packets.map_or(Ok(()), |packets| program.set(client, packets))
        });
        if let Err(error) = set {
            tracing::debug!(%error, "the initial window is the kernel's");
        }
    }
}

/// What is told of a flow from outside, beside its bytes.
#[derive(Debug, Clone, Copy)]
pub struct FlowMetadata {
    /// What the flow log calls it.
    pub id: FlowId,
    /// Who has opened it.
    pub client: SocketAddr,
    /// Whom it goes to.
    pub server: SocketAddr,
    /// When it was taken.
    pub start: Instant,
    /// When the server had answered.
    pub connected: Option<Instant>,
    /// Directions that were ever promoted to splicing, by the leg read from.
    pub spliced: PerLeg<bool>,
}

/// The servers that a flow may still be connected to.
#[derive(Debug)]
pub enum Others {
    /// The client wanted this one and no other.
    None,
    /// Those of a listener of explicit mode.
    Of {
        /// Whom it passes connections on to.
        forward: Arc<Forward>,
        /// That which is being connected to.
        tried: SocketAddr,
        /// Those that were not tried yet.
        left: IntoIter<SocketAddr>,
    },
}

impl Others {
    /// All but the first.
    pub fn of(forward: Option<Arc<Forward>>, first: SocketAddr, now: Instant) -> Others {
        forward.map_or(Others::None, |forward| {
            let left = forward.to.others(first, now).into_iter();
            Others::Of { forward, tried: first, left }
        })
    }

    /// The one before cannot be connected to.
    pub fn next(&mut self, now: Instant) -> Option<SocketAddr> {
        let Others::Of { forward, tried, left } = self else { return None };
        forward.to.failed(*tried, now);
        *tried = left.next()?;
        Some(*tried)
    }

    /// The last one was connected to.
    fn answered(&self) {
        if let Others::Of { forward, tried, .. } = self {
            forward.to.answered(*tried);
        }
    }

    /// Whether there are none left.
    pub fn is_empty(&self) -> bool {
        match self {
            Others::None => true,
            Others::Of { left, .. } => left.as_slice().is_empty(),
        }
    }
}

impl LiveFlow {
    /// A flow of these sockets, of which nothing has crossed.
    pub fn new(
        metadata: FlowMetadata,
        sockets: PerLeg<OwnedFd>,
        others: Others,
        dscp: u8,
        preface: Option<Box<[u8]>>,
        link: Arc<ClientLink>,
    ) -> Self {
        let buffers = PerLeg { client: RelayBuffer::Empty, server: RelayBuffer::Empty };
        let server_window = None;
        LiveFlow {
            sockets,
            buffers,
            metadata,
            others,
            dscp,
            server_window,
            preface,
            link,
            begun: false,
        }
    }

    /// The next server to try.
    pub fn next_server(&mut self, now: Instant) -> Option<SocketAddr> {
        self.others.next(now)
    }

    /// Goes on with another connection to another server.
    pub fn replace_server_leg(&mut self, fd: OwnedFd, server: SocketAddr) {
        self.metadata.server = server;
        self.sockets.server = fd;
    }

    /// A leg's socket.
    pub fn fd(&self, leg: Leg) -> &OwnedFd {
        &self.sockets[leg]
    }

    /// What is told of it.
    pub fn metadata(&self) -> &FlowMetadata {
        &self.metadata
    }

    /// The server has answered, and is sent what comes before the client's bytes.
    ///
    /// # Errors
    /// When it cannot be sent: why, or nothing if it was sent in part.
    pub fn connected(&mut self, now: Instant) -> Result<(), Option<Failure>> {
        self.metadata.connected = Some(now);
        self.others.answered();
        let Some(preface) = self.preface.take() else { return Ok(()) };
        // It fits: nothing else is in the socket's buffer yet.
        match rustix::net::send(&self.sockets.server, &preface, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == preface.len() => Ok(()),
            sent => Err(sent.err().map(failure)),
        }
    }

    /// Its connections, and what is between them.
    pub fn legs<'a>(&'a mut self, means: Means<'a>) -> Sockets<'a> {
        let LiveFlow { sockets, buffers, metadata, link, begun, .. } = self;
        Sockets { sockets, buffers, spliced: &mut metadata.spliced, link, begun, means }
    }

    /// What this leg has in the outbox; with `more` to come soon.
    pub fn outgoing(&self, to: Leg, more: bool) -> Option<Outgoing<'_>> {
        let data = self.buffers[to.other()].copied()?;
        Some(Outgoing { socket: self.sockets[to].as_fd(), data, more })
    }

    /// What sending this leg's part of the outbox came to. None if it was not tried.
    pub fn sent_out(
        &mut self,
        to: Leg,
        result: Result<usize, Errno>,
        counters: &Counters,
    ) -> Option<Write> {
        if let Err(Errno::CANCELED | Errno::INTR) = result {
            return None;
        }
        let written = self.buffers[to.other()].sent(result);
        count_written(counters, to, written);
        Some(written)
    }

    /// Gives back what the flow has borrowed, and makes the sockets ready to be closed, by
    /// dropping this: they will reset their peers, unless they have ended in order.
    pub fn release(&mut self, flow: &Flow, pool: &mut Pool) {
        // Where both FINs are acknowledged there is nothing left to deliver, nor to reset.
        let closed = flow.disposition() == Disposition::Close;
        for leg in Leg::BOTH {
            self.buffers[leg].release(pool);
            // Left to linger for zero seconds it would take back what it has not yet delivered.
            if !closed
                && flow.has_ended(leg)
                && let Err(error) = sockopt::set_socket_linger(&self.sockets[leg], None)
            {
                tracing::debug!(%leg, %error, "a leg that has ended is reset");
            }
        }
    }
}

/// A flow's sockets, and the buffers and pipes between them.
#[derive(Debug)]
pub struct Sockets<'a> {
    sockets: &'a PerLeg<OwnedFd>,
    buffers: &'a mut PerLeg<RelayBuffer>,
    /// Directions that were ever promoted to splicing.
    spliced: &'a mut PerLeg<bool>,
    link: &'a ClientLink,
    begun: &'a mut bool,
    means: Means<'a>,
}

impl Legs for Sockets<'_> {
    fn read(&mut self, from: Leg, mode: CopyMode, most: u64) -> Read {
        let Means { pool, counters, .. } = &mut self.means;
        let buffer = &mut self.buffers[from];
        if mode == CopyMode::Copy {
            buffer.leave_empty_pipe(pool);
        }
        if !buffer.prepare(mode, pool, counters) {
            return Read::NoBuffer;
        }
        let read = buffer.read(&self.sockets[from], most);
        if let Read::Some { bytes, .. } = read {
            received(counters, from).add(bytes);
        }
        read
    }

    fn write(&mut self, to: Leg, held: u64, more: bool) -> Write {
        let is_first = to == Leg::Client && !std::mem::replace(self.begun, true);
        if is_first {
            self.means.beginning.settle(&self.sockets.client, self.link);
        }
        let copies = self.buffers[to.other()].copied().is_some();
        let written = if copies && self.means.outbox.post(self.means.key, to) {
            Write::Posted
        } else {
            let written = self.buffers[to.other()].write(&self.sockets[to], more);
            count_written(self.means.counters, to, written);
            written
        };
        if to == Leg::Client {
            let bytes = match written {
                Write::Some { bytes, .. } => bytes,
                Write::Posted => held,
                Write::Failed(_) => 0,
            };
            self.link.write(self.means.beginning.now, bytes);
        }
        written
    }

    fn release_if_empty(&mut self, from: Leg) {
        self.buffers[from].release_if_empty(self.means.pool);
    }

    fn discard(&mut self, from: Leg) {
        self.buffers[from].release(self.means.pool);
    }

    fn end_handshake(&mut self, leg: Leg) {
        if let Err(error) = midspan_sockets::end_handshake(&self.sockets[leg]) {
            tracing::debug!(%leg, %error, "a peer is told late that the connection is there");
        }
    }

    fn shutdown(&mut self, to: Leg) -> Result<(), Failure> {
        shutdown(&self.sockets[to], Shutdown::Write).map_err(failure)
    }

    fn take_error(&mut self, leg: Leg) -> Option<Failure> {
        sockopt::socket_error(&self.sockets[leg]).unwrap_or_else(Err).err().map(failure)
    }

    fn unread(&mut self, leg: Leg) -> u64 {
        rustix::io::ioctl_fionread(&self.sockets[leg]).unwrap_or(0)
    }

    fn unacknowledged(&mut self, leg: Leg) -> Option<u64> {
        midspan_sys::socket::unacknowledged(&self.sockets[leg]).ok().map(u64::from)
    }

    fn info(&mut self, leg: Leg) -> Option<LegInfo> {
        let info = midspan_sys::socket::tcp_info(&self.sockets[leg]).ok()?;
        let round_trip = Span::from_micros(info.rtt.max(info.rcv_rtt).into());
        Some(LegInfo { acknowledged: info.bytes_acked, round_trip })
    }

    fn set_notsent_lowat(&mut self, to: Leg, most: Option<u64>) {
        let most = most.and_then(|most| u32::try_from(most).ok());
        if let Err(error) = midspan_sys::socket::set_notsent_lowat(&self.sockets[to], most) {
            tracing::debug!(%error, "how much waits unsent is the kernel's to decide");
        }
    }

    fn observe(&mut self, event: CountedEvent) {
        match event {
            CountedEvent::Promoted(from) => {
                self.means.counters.splice_promotions.add(1);
                self.spliced[from] = true;
            }
            CountedEvent::Urgent(_) => self.means.counters.urgent.add(1),
        }
    }
}

/// What epoll has said.
pub fn readiness(flags: EventFlags) -> Readiness {
    Readiness {
        readable: flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP),
        writable: flags.contains(EventFlags::OUT),
        urgent: flags.contains(EventFlags::PRI),
        read_closed: flags.intersects(EventFlags::RDHUP | EventFlags::HUP),
        hung_up: flags.contains(EventFlags::HUP),
        failed: flags.contains(EventFlags::ERR),
    }
}

/// Counts bytes of a client's that went with the SYN to its server.
pub fn count_early(counters: &Counters, bytes: u64) {
    received(counters, Leg::Client).add(bytes);
    sent(counters, Leg::Server).add(bytes);
    counters.fast_open_sent.add(1);
}

fn count_written(counters: &Counters, to: Leg, written: Write) {
    if let Write::Some { bytes, .. } = written {
        sent(counters, to).add(bytes);
    }
}

fn received(counters: &Counters, from: Leg) -> &Count {
    match from {
        Leg::Client => &counters.bytes_from_client,
        Leg::Server => &counters.bytes_from_server,
    }
}

fn sent(counters: &Counters, to: Leg) -> &Count {
    match to {
        Leg::Client => &counters.bytes_to_client,
        Leg::Server => &counters.bytes_to_server,
    }
}
