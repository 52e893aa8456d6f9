//! One split flow with its two sockets.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;
use std::vec::IntoIter;

use midspan_observe::subscriber;
use midspan_split::{
    Cause, Flow, Leg, Linger, Mover, Patience, PerLeg, ReadAhead, Stillness, Verdict, Watermarks,
    Way,
};
use midspan_sys::ring::Outgoing;
use midspan_units::{Span, Time};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, shutdown, sockopt};

use crate::config::Forward;
use crate::counters::{Count, Counters};
use crate::observe::Totals;
use crate::outbox::Outbox;
use crate::pool::Pool;
use crate::slab::Key;
use crate::store::{Read, Store, Write};

/// A split flow, carried out with sockets.
///
/// The sockets are watched edge-triggered, once and for all: what an event said is remembered in
/// `readable` and `writable` until a call says that it is no longer so.
#[derive(Debug)]
pub(crate) struct LiveFlow {
    flow: Flow,
    sockets: PerLeg<Socket>,
    /// By the leg read from.
    lanes: PerLeg<Lane>,
    pub(crate) client: IpAddr,
    story: Story,
    /// In the worker's queue of flows with work to do.
    pub(crate) queued: bool,
    /// In the worker's queue of flows that wait for a buffer.
    pub(crate) waiting: bool,
    /// Servers to try if this one cannot be connected to.
    others: Others,
    /// When the connect that is under way is given up.
    connect_due: Instant,
    /// Code point of the client's SYN, which connections to the server have too.
    pub(crate) dscp: u8,
    /// What the server is sent before what the client sends, until it is connected.
    pub(crate) preface: Option<Box<[u8]>>,
    stillness: Stillness,
    linger: Linger,
    /// In the worker's queue of flows that linger.
    pub(crate) lingers: bool,
}

/// What is told of a flow from outside, beside its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Story {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) start: Instant,
    /// When the server had answered.
    pub(crate) connected: Option<Instant>,
    /// Directions that were ever promoted to splicing, by the leg read from.
    pub(crate) spliced: PerLeg<bool>,
}

/// The servers that a flow may still be connected to.
#[derive(Debug)]
pub(crate) enum Others {
    /// The client wanted this one and no other.
    None,
    Of {
        forward: Arc<Forward>,
        /// That which is being connected to.
        tried: SocketAddr,
        left: IntoIter<SocketAddr>,
    },
}

impl Others {
    /// All but the first.
    pub(crate) fn of(forward: Option<Arc<Forward>>, first: SocketAddr) -> Others {
        forward.map_or(Others::None, |forward| {
            let left = forward.to.others(first, Instant::now()).into_iter();
            Others::Of { forward, tried: first, left }
        })
    }

    /// The one before cannot be connected to.
    pub(crate) fn next(&mut self) -> Option<SocketAddr> {
        let Others::Of { forward, tried, left } = self else { return None };
        forward.to.failed(*tried, Instant::now());
        *tried = left.next()?;
        Some(*tried)
    }

    /// The last one was connected to.
    fn answered(&self) {
        if let Others::Of { forward, tried, .. } = self {
            forward.to.answered(*tried);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Others::None => true,
            Others::Of { left, .. } => left.as_slice().is_empty(),
        }
    }
}

/// What an event comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// There may be work to do.
    Work,
    /// The server has answered, and there may be work to do.
    Connected,
    /// The server cannot be connected to, and there is another.
    TryAnother,
}

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    readable: bool,
    writable: bool,
    /// The peer's FIN, a failure or an urgent mark is somewhere in what is still to be read: a
    /// short read does not mean that nothing is left.
    stops_short: bool,
    /// The peer's FIN has come: it is behind what is still to be read.
    finishing: bool,
    /// Something has happened to it since it was last asked whether our FIN is acknowledged.
    stirred: bool,
    /// The peer has sent urgent data. Reading stops at its mark, which splicing never passes.
    urgent: bool,
    /// Epoll does not tell of what arrives.
    reads_masked: bool,
    /// Its connection has failed, and the error was taken from it, which was not one of after the peer's
    /// FIN: where reading comes to an end, no FIN was.
    cut: bool,
}

#[derive(Debug)]
struct Lane {
    store: Store,
    ahead: ReadAhead,
    mover: Mover,
    /// What is held is in the outbox.
    posted: bool,
}

/// What a flow wants after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// To be told when something happens.
    Wait,
    /// Another turn, after the others had theirs.
    Turn,
    /// A buffer, when one is given back.
    Buffer,
    /// Nothing more: both legs may be closed in order.
    Close,
    /// Nothing more: both legs must be reset.
    Abort(Cause),
}

impl LiveFlow {
    pub(crate) fn new(
        story: Story,
        client_leg: OwnedFd,
        server_leg: OwnedFd,
        ahead: PerLeg<ReadAhead>,
        others: Others,
        connect_due: Instant,
    ) -> Self {
        let lane = |ahead| Lane { store: Store::Empty, ahead, mover: Mover::new(), posted: false };
        LiveFlow {
            flow: Flow::new(Watermarks::up_to(ahead.client.limit())),
            sockets: PerLeg { client: Socket::new(client_leg), server: Socket::new(server_leg) },
            lanes: PerLeg { client: lane(ahead.client), server: lane(ahead.server) },
            client: subscriber(story.client.ip()),
            story,
            queued: false,
            waiting: false,
            others,
            connect_due,
            dscp: 0,
            preface: None,
            stillness: Stillness::new(),
            linger: Linger::default(),
            lingers: false,
        }
    }

    /// The next server to try.
    pub(crate) fn next_server(&mut self) -> Option<SocketAddr> {
        self.others.next()
    }

    /// Goes on with another connection to another server.
    pub(crate) fn replace_server_leg(
        &mut self,
        fd: OwnedFd,
        server: SocketAddr,
        connect_due: Instant,
    ) {
        self.story.server = server;
        self.sockets.server = Socket::new(fd);
        self.connect_due = connect_due;
    }

    pub(crate) fn fd(&self, leg: Leg) -> &OwnedFd {
        &self.sockets[leg].fd
    }

    pub(crate) fn story(&self) -> &Story {
        &self.story
    }

    /// Bytes that have crossed each leg.
    pub(crate) fn totals(&self) -> PerLeg<Totals> {
        let of = |leg| Totals {
            received: self.flow.total_received(leg),
            sent: self.flow.total_sent(leg),
        };
        PerLeg { client: of(Leg::Client), server: of(Leg::Server) }
    }

    /// Whether the connect that was to be given up at `due` is still under way.
    pub(crate) fn is_due(&self, due: Instant) -> bool {
        self.flow.is_connecting() && self.connect_due == due
    }

    /// Why to reset it, if nothing has moved for too long.
    pub(crate) fn overstays(&mut self, patience: &Patience, now: Time) -> Option<Cause> {
        self.stillness.look(&self.flow, patience, now)
    }

    pub(crate) fn fail(&mut self, cause: Cause) {
        self.flow.fail(cause);
    }

    /// So many of the client's bytes went with the SYN to the server.
    pub(crate) fn early(&mut self, bytes: u64, counters: &Counters) {
        self.flow.early(bytes);
        received(counters, Leg::Client).add(bytes);
        sent(counters, Leg::Server).add(bytes);
        counters.fast_open_sent.add(1);
    }

    /// Takes in what epoll said of a leg.
    pub(crate) fn event(&mut self, leg: Leg, flags: EventFlags, counters: &Counters) -> Told {
        let socket = &mut self.sockets[leg];
        socket.readable |= flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP);
        socket.writable |= flags.contains(EventFlags::OUT);
        socket.stirred = true;
        let failed = flags.contains(EventFlags::ERR) || self.flow.lost() == Some(leg);
        socket.finishing |= !failed && flags.intersects(EventFlags::RDHUP | EventFlags::HUP);
        socket.stops_short |= socket.finishing || failed;
        if flags.contains(EventFlags::PRI) {
            socket.meets_urgent(counters);
        }
        let connecting = leg == Leg::Server && self.flow.is_connecting();
        // The error of one that is closed by it is left for who reads to find, behind what came before.
        let closed = !connecting && flags.contains(EventFlags::ERR | EventFlags::HUP);
        let error = match flags.contains(EventFlags::ERR) && !closed {
            true => sockopt::socket_error(&socket.fd).unwrap_or_else(Err).err(),
            false => None,
        };
        match error {
            _ if closed => self.lose(leg, None),
            // A server that was connected and has reset since we last looked: before its FIN, or
            // after it.
            Some(error @ (Errno::CONNRESET | Errno::PIPE)) if connecting => {
                self.connected();
                self.lose(leg, Some(error));
                return Told::Connected;
            }
            Some(_) if connecting && !self.others.is_empty() => return Told::TryAnother,
            Some(_) if connecting => {
                self.others.next();
                self.flow.fail(Cause::ConnectFailed);
            }
            Some(error) => self.lose(leg, Some(error)),
            None if connecting && socket.writable => {
                self.connected();
                return Told::Connected;
            }
            None => {}
        }
        Told::Work
    }

    /// A leg's connection has failed; `error` is what was taken from its socket, which tells it once.
    fn lose(&mut self, leg: Leg, error: Option<Errno>) {
        let socket = &mut self.sockets[leg];
        if self.flow.lost() != Some(leg) {
            // After the peer's FIN it is EPIPE.
            socket.cut = error.is_some_and(|error| error != Errno::PIPE);
        }
        (socket.readable, socket.stops_short) = (true, true);
        self.flow.lose(leg);
        self.sockets[leg.other()].stirred = true;
        // Who has sent nothing since need not be delivered to a server that is not there yet.
        let unread = rustix::io::ioctl_fionread(&self.sockets[leg].fd).unwrap_or(0);
        if self.flow.is_connecting() && unread == 0 {
            self.flow.exhausted(leg);
        }
    }

    /// Whether a leg's connection has failed, and what came by it is still on its way to the other one's peer.
    pub(crate) fn is_lingering(&self) -> bool {
        self.flow.lost().is_some() && self.flow.verdict() == Verdict::Continue
    }

    /// Has the next turn see how much of it is acknowledged, of which the kernel tells nothing; or gives up.
    pub(crate) fn look_after_last(&mut self) {
        let Some(lost) = self.flow.lost().filter(|_| !self.flow.is_connecting()) else { return };
        let to = lost.other();
        self.sockets[to].stirred = true;
        let unacknowledged = midspan_sys::socket::unacknowledged(&self.sockets[to].fd).unwrap_or(0);
        let acknowledged = self.flow.total_sent(to).saturating_sub(unacknowledged.into());
        let now = Time::from_nanos(self.story.start.elapsed().as_nanos() as u64);
        if self.linger.is_over(acknowledged, now) {
            self.flow.fail(Cause::Reset(lost));
        }
    }

    /// The server is there: it is told first what it is to be told, of which nothing is the client's.
    fn connected(&mut self) {
        self.flow.connected();
        self.story.connected = Some(Instant::now());
        self.others.answered();
        if let Some(preface) = self.preface.take() {
            // It fits: nothing else is in the socket's buffer yet.
            let sent = rustix::net::send(&self.sockets.server.fd, &preface, SendFlags::NOSIGNAL);
            if sent != Ok(preface.len()) {
                self.lose(Leg::Server, sent.err());
            }
        }
    }

    /// Does what can be done now, up to a share of so many bytes in each direction.
    pub(crate) fn turn(
        &mut self,
        key: Key,
        most: u64,
        pool: &mut Pool,
        outbox: &mut Outbox,
        counters: &Counters,
    ) -> Next {
        let mut next = Next::Wait;
        for from in Leg::BOTH {
            if self.flow.verdict() != Verdict::Continue {
                break;
            }
            match (next, self.pump(from, key, most, pool, outbox, counters)) {
                // With another turn comes another try for a buffer.
                (Next::Turn, _) | (_, Next::Wait) => {}
                (_, wanted) => next = wanted,
            }
        }
        self.next(next)
    }

    /// Whether read interest in a leg is to be masked (`Some(true)`) or unmasked. While as much is held as may be, and
    /// more is known to be there, each further packet would wake us in vain.
    pub(crate) fn should_mask_reads(&self, leg: Leg) -> Option<bool> {
        let socket = &self.sockets[leg];
        let is_full = self.flow.may_read(leg) == 0 && self.flow.to_write(leg.other()) > 0;
        let mask = socket.readable && (socket.reads_masked || is_full);
        (mask != socket.reads_masked).then_some(mask)
    }

    pub(crate) fn set_reads_masked(&mut self, leg: Leg, masked: bool) {
        self.sockets[leg].reads_masked = masked;
    }

    /// What the flow wants, which is this as long as it goes on.
    fn next(&self, next: Next) -> Next {
        match self.flow.verdict() {
            Verdict::Continue => next,
            Verdict::Close => Next::Close,
            Verdict::Abort(cause) => Next::Abort(cause),
        }
    }

    /// What this leg has in the outbox.
    pub(crate) fn outgoing(&self, to: Leg) -> Option<Outgoing<'_>> {
        let lane = &self.lanes[to.other()];
        let data = lane.store.copied().filter(|_| lane.posted)?;
        let more = self.sockets[to.other()].finishing;
        Some(Outgoing { socket: self.sockets[to].fd.as_fd(), data, more })
    }

    /// Takes in what sending this leg's part of the outbox came to.
    pub(crate) fn sent_out(
        &mut self,
        to: Leg,
        sent: Result<usize, Errno>,
        pool: &mut Pool,
        counters: &Counters,
    ) -> Next {
        let from = to.other();
        self.lanes[from].posted = false;
        if matches!(sent, Err(Errno::CANCELED | Errno::INTR)) {
            return self.next(Next::Turn);
        }
        let written = self.lanes[from].store.sent(sent);
        self.written(to, written, counters);
        self.lanes[from].store.release_if_empty(pool);
        self.end(to);
        let reads = self.sockets[from].readable && self.flow.may_read(from) > 0;
        let writes = self.sockets[to].writable && self.flow.to_write(to) > 0;
        self.next(if reads || writes { Next::Turn } else { Next::Wait })
    }

    /// Gives back what the flow has borrowed, and makes the sockets ready to be closed, by
    /// dropping this: they will reset their peers, unless they have ended in order.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        // Where both FINs are acknowledged there is nothing left to deliver, nor to reset.
        let closed = self.flow.verdict() == Verdict::Close;
        for leg in Leg::BOTH {
            self.lanes[leg].store.release(pool);
            // Left to linger for zero seconds it would take back what it has not yet delivered.
            if !closed
                && self.flow.has_ended(leg)
                && let Err(error) = sockopt::set_socket_linger(&self.sockets[leg].fd, None)
            {
                tracing::debug!(%leg, %error, "a leg that has ended is reset");
            }
        }
    }

    /// Moves one direction's bytes and its end.
    fn pump(
        &mut self,
        from: Leg,
        key: Key,
        most: u64,
        pool: &mut Pool,
        outbox: &mut Outbox,
        counters: &Counters,
    ) -> Next {
        let (to, before) = (from.other(), self.flow.total_received(from));
        let mut next = Next::Wait;
        loop {
            self.write(to, key, outbox, counters);
            if self.lanes[from].posted {
                break;
            }
            if self.flow.total_received(from) - before >= most {
                next = Next::Turn;
                break;
            }
            let room = self.flow.may_read(from);
            if room == 0 || !self.sockets[from].readable {
                break;
            }
            match self.read(from, room, pool, counters) {
                Some(Next::Wait) => break,
                Some(wanted) => {
                    next = wanted;
                    break;
                }
                None => {}
            }
        }
        let moved = self.flow.total_received(from) - before;
        let lane = &mut self.lanes[from];
        if moved > 0 {
            let way = lane.mover.way();
            lane.mover.moved(moved);
            let promoted = way < lane.mover.way();
            counters.splice_promotions.add(u64::from(promoted));
            self.story.spliced[from] |= promoted;
        }
        lane.store.release_if_empty(pool);
        if self.flow.lost() == Some(to) && !lane.posted {
            // It has nowhere to go.
            lane.store.release(pool);
        }
        self.look_ahead(from);
        self.end(to);
        next
    }

    /// Sees how far a leg is to be read ahead of the other one.
    fn look_ahead(&mut self, from: Leg) {
        let (to, ahead) = (from.other(), &mut self.lanes[from].ahead);
        if !ahead.is_of_use(self.flow.total_received(from)) {
            return;
        }
        let now = Time::from_nanos(self.story.start.elapsed().as_nanos() as u64);
        if !ahead.is_due(now) {
            return;
        }
        let info = |leg| midspan_sys::socket::tcp_info(&self.sockets[leg].fd);
        let (Ok(feeding), Ok(draining)) = (info(from), info(to)) else { return };
        let round_trip = Span::from_micros(feeding.rtt.max(feeding.rcv_rtt).into());
        if !ahead.look(now, draining.bytes_acked, round_trip) {
            return;
        }
        self.flow.set_marks(from, Watermarks::up_to(ahead.limit()));
        let unsent = ahead.unsent_limit().and_then(|most| u32::try_from(most).ok());
        if let Err(error) = midspan_sys::socket::set_notsent_lowat(&self.sockets[to].fd, unsent) {
            tracing::debug!(%error, "how much waits unsent is the kernel's to decide");
        }
    }

    /// Reads once. `None` if it may be worth going on.
    fn read(&mut self, from: Leg, room: u64, pool: &mut Pool, counters: &Counters) -> Option<Next> {
        let (socket, lane) = (&mut self.sockets[from], &mut self.lanes[from]);
        let way = if socket.urgent { Way::Copy } else { lane.mover.way() };
        if socket.urgent {
            lane.store.leave_empty_pipe(pool);
        }
        if !lane.store.prepare(way, pool, counters) {
            return Some(Next::Buffer);
        }
        match lane.store.read(&socket.fd, room) {
            Read::Some { bytes, dry } => {
                self.flow.received(from, bytes as u64);
                received(counters, from).add(bytes as u64);
                // All before the FIN was there when it was told, and now has been read.
                let ends = dry && socket.finishing && !socket.urgent;
                socket.readable = !dry || socket.stops_short && !ends;
                if ends {
                    self.flow.end_of_stream(from);
                }
                None
            }
            Read::Dry => {
                socket.readable = false;
                // Nothing comes any more.
                self.flow.exhausted(from);
                None
            }
            Read::End => {
                socket.readable = false;
                match socket.cut {
                    true => self.flow.exhausted(from),
                    false => self.flow.end_of_stream(from),
                }
                None
            }
            Read::Mark => {
                socket.meets_urgent(counters);
                // What is in the pipe goes first.
                (self.flow.to_write(from.other()) > 0).then_some(Next::Wait)
            }
            Read::Failed => {
                self.lose(from, None);
                self.sockets[from].readable = false;
                self.flow.exhausted(from);
                None
            }
            Read::Full => Some(Next::Wait),
            Read::NoBuffer => Some(Next::Buffer),
        }
    }

    /// Writes what is held for a leg, as far as it goes, or has it written with others' soon.
    fn write(&mut self, to: Leg, key: Key, outbox: &mut Outbox, counters: &Counters) {
        let from = to.other();
        while self.sockets[to].writable && self.flow.to_write(to) > 0 {
            let lane = &mut self.lanes[from];
            lane.posted = lane.posted || lane.store.copied().is_some() && outbox.post(key, to);
            if lane.posted {
                break;
            }
            // More is sure to come, if only the FIN, and goes with the last of it.
            let more = self.sockets[from].finishing;
            let written = lane.store.write(&self.sockets[to].fd, more);
            self.written(to, written, counters);
        }
    }

    fn written(&mut self, to: Leg, written: Write, counters: &Counters) {
        match written {
            Write::Some { bytes, full } => {
                self.flow.sent(to, bytes as u64);
                sent(counters, to).add(bytes as u64);
                self.sockets[to].writable = !full;
            }
            Write::Failed(error) => self.lose(to, Some(error)),
        }
    }

    /// Sends our FIN if it is due, and sees whether the peer has acknowledged it.
    ///
    /// The kernel wakes us for that: on the acknowledgement of a FIN the socket leaves its state
    /// (FIN-WAIT-1, CLOSING, LAST-ACK; RFC 9293, 3.3.2), and a change of state is an event.
    fn end(&mut self, to: Leg) {
        if self.flow.must_finish(to) {
            // It takes an event to know better.
            self.sockets[to].stirred = false;
            match shutdown(&self.sockets[to].fd, Shutdown::Write) {
                Ok(()) => self.flow.finished(to),
                Err(_) => self.lose(to, None),
            }
        }
        let socket = &mut self.sockets[to];
        if self.flow.awaits_drain(to)
            && std::mem::take(&mut socket.stirred)
            && matches!(midspan_sys::socket::unacknowledged(&socket.fd), Ok(0))
        {
            self.flow.drained(to);
        }
    }
}

impl Socket {
    /// The peer has sent urgent data.
    fn meets_urgent(&mut self, counters: &Counters) {
        counters.urgent.add(u64::from(!self.urgent));
        (self.urgent, self.stops_short) = (true, true);
    }

    fn new(fd: OwnedFd) -> Self {
        Socket {
            fd,
            readable: false,
            writable: false,
            stops_short: false,
            finishing: false,
            stirred: false,
            urgent: false,
            reads_masked: false,
            cut: false,
        }
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
