//! One split flow with its two sockets.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;
use std::vec::IntoIter;

use midspan_observe::subscriber;
use midspan_split::{
    Action, Cause, Failure, Leg, LegInfo, Legs, Note, Outcome, Patience, PerLeg, Pump, Read,
    ReadAhead, Readiness, Verdict, Way, Write,
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
use crate::store::{Store, failure};

/// A split flow: a [`Pump`] over two sockets.
///
/// The sockets are watched edge-triggered, once and for all.
#[derive(Debug)]
pub(crate) struct LiveFlow {
    pump: Pump,
    sockets: PerLeg<OwnedFd>,
    /// Where bytes are between reading and writing, by the leg read from.
    stores: PerLeg<Store>,
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
    /// In the worker's queue of flows that linger.
    pub(crate) lingers: bool,
}

/// What a worker's flows are carried out with, for the one of this key.
#[derive(Debug)]
pub(crate) struct Means<'a> {
    pub(crate) key: Key,
    pub(crate) pool: &'a mut Pool,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) counters: &'a Counters,
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

impl LiveFlow {
    pub(crate) fn new(
        story: Story,
        client_leg: OwnedFd,
        server_leg: OwnedFd,
        ahead: PerLeg<ReadAhead>,
        others: Others,
        connect_due: Instant,
    ) -> Self {
        LiveFlow {
            pump: Pump::new(ahead),
            sockets: PerLeg { client: client_leg, server: server_leg },
            stores: PerLeg { client: Store::Empty, server: Store::Empty },
            client: subscriber(story.client.ip()),
            story,
            queued: false,
            waiting: false,
            others,
            connect_due,
            dscp: 0,
            preface: None,
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
        self.sockets.server = fd;
        self.pump.replaced();
        self.connect_due = connect_due;
    }

    pub(crate) fn fd(&self, leg: Leg) -> &OwnedFd {
        &self.sockets[leg]
    }

    pub(crate) fn story(&self) -> &Story {
        &self.story
    }

    /// Bytes that have crossed each leg.
    pub(crate) fn totals(&self) -> PerLeg<Totals> {
        let flow = self.pump.flow();
        let of = |leg| Totals { received: flow.total_received(leg), sent: flow.total_sent(leg) };
        PerLeg { client: of(Leg::Client), server: of(Leg::Server) }
    }

    /// Whether the connect that was to be given up at `due` is still under way.
    pub(crate) fn is_due(&self, due: Instant) -> bool {
        self.pump.flow().is_connecting() && self.connect_due == due
    }

    /// Why to reset it, if nothing has moved for too long.
    pub(crate) fn overstays(&mut self, patience: &Patience, now: Time) -> Option<Cause> {
        self.pump.overstays(patience, now)
    }

    pub(crate) fn fail(&mut self, cause: Cause) {
        self.pump.fail(cause);
    }

    /// So many of the client's bytes went with the SYN to the server.
    pub(crate) fn early(&mut self, bytes: u64, counters: &Counters) {
        self.pump.early(bytes);
        received(counters, Leg::Client).add(bytes);
        sent(counters, Leg::Server).add(bytes);
        counters.fast_open_sent.add(1);
    }

    /// Takes in what epoll said of a leg.
    pub(crate) fn event(&mut self, leg: Leg, flags: EventFlags, means: Means<'_>) -> Told {
        let LiveFlow { pump, sockets, stores, story, others, preface, .. } = self;
        let mut legs = Sockets { sockets, stores, spliced: &mut story.spliced, means };
        match pump.event(leg, readiness(flags), &mut legs) {
            Outcome::Work => Told::Work,
            Outcome::Connected => {
                story.connected = Some(Instant::now());
                others.answered();
                if let Some(preface) = preface.take() {
                    // It fits: nothing else is in the socket's buffer yet.
                    let sent = rustix::net::send(&sockets.server, &preface, SendFlags::NOSIGNAL);
                    if sent != Ok(preface.len()) {
                        pump.lose(Leg::Server, sent.err().map(failure), &mut legs);
                    }
                }
                Told::Connected
            }
            Outcome::Refused if !others.is_empty() => Told::TryAnother,
            Outcome::Refused => {
                others.next();
                pump.fail(Cause::ConnectFailed);
                Told::Work
            }
        }
    }

    /// Does what can be done now, up to a share of so many bytes in each direction.
    pub(crate) fn turn(&mut self, now: Time, most: u64, means: Means<'_>) -> Action {
        let (pump, mut legs) = self.parts(means);
        pump.turn(now, most, &mut legs)
    }

    /// What this leg has in the outbox.
    pub(crate) fn outgoing(&self, to: Leg) -> Option<Outgoing<'_>> {
        let data = self.stores[to.other()].copied().filter(|_| self.pump.is_posted(to))?;
        Some(Outgoing { socket: self.sockets[to].as_fd(), data, more: self.pump.has_more(to) })
    }

    /// Takes in what sending this leg's part of the outbox came to.
    pub(crate) fn sent_out(
        &mut self,
        to: Leg,
        sent: Result<usize, Errno>,
        means: Means<'_>,
    ) -> Action {
        let (pump, mut legs) = self.parts(means);
        let written = match sent {
            Err(Errno::CANCELED | Errno::INTR) => None,
            sent => Some(legs.count_written(to, |store| store.sent(sent))),
        };
        pump.completed(to, written, &mut legs)
    }

    /// Whether read interest in a leg is to be masked (`Some(true)`) or unmasked.
    pub(crate) fn should_mask_reads(&self, leg: Leg) -> Option<bool> {
        self.pump.should_mask_reads(leg)
    }

    pub(crate) fn set_reads_masked(&mut self, leg: Leg, masked: bool) {
        self.pump.set_reads_masked(leg, masked);
    }

    /// Whether a leg's connection has failed, and what came by it is still on its way to the other one's peer.
    pub(crate) fn is_lingering(&self) -> bool {
        self.pump.is_lingering()
    }

    /// Has the next turn see how much of it is acknowledged, of which the kernel tells nothing; or gives up.
    pub(crate) fn look_after_last(&mut self, now: Time, means: Means<'_>) {
        let (pump, mut legs) = self.parts(means);
        pump.look_after_last(now, &mut legs);
    }

    /// Gives back what the flow has borrowed, and makes the sockets ready to be closed, by
    /// dropping this: they will reset their peers, unless they have ended in order.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        let flow = self.pump.flow();
        // Where both FINs are acknowledged there is nothing left to deliver, nor to reset.
        let closed = flow.verdict() == Verdict::Close;
        for leg in Leg::BOTH {
            self.stores[leg].release(pool);
            // Left to linger for zero seconds it would take back what it has not yet delivered.
            if !closed
                && flow.has_ended(leg)
                && let Err(error) = sockopt::set_socket_linger(&self.sockets[leg], None)
            {
                tracing::debug!(%leg, %error, "a leg that has ended is reset");
            }
        }
    }

    /// What decides, and what it decides about.
    fn parts<'a>(&'a mut self, means: Means<'a>) -> (&'a mut Pump, Sockets<'a>) {
        let LiveFlow { pump, sockets, stores, story, .. } = self;
        (pump, Sockets { sockets, stores, spliced: &mut story.spliced, means })
    }
}

/// A flow's sockets, and the buffers and pipes between them.
struct Sockets<'a> {
    sockets: &'a PerLeg<OwnedFd>,
    stores: &'a mut PerLeg<Store>,
    /// Directions that were ever promoted to splicing.
    spliced: &'a mut PerLeg<bool>,
    means: Means<'a>,
}

impl Sockets<'_> {
    /// Writes by `write` from the store of what is for a leg.
    fn count_written(&mut self, to: Leg, write: impl FnOnce(&mut Store) -> Write) -> Write {
        let written = write(&mut self.stores[to.other()]);
        if let Write::Some { bytes, .. } = written {
            sent(self.means.counters, to).add(bytes);
        }
        written
    }
}

impl Legs for Sockets<'_> {
    fn read(&mut self, from: Leg, way: Way, most: u64) -> Read {
        let Means { pool, counters, .. } = &mut self.means;
        let store = &mut self.stores[from];
        if way == Way::Copy {
            store.leave_empty_pipe(pool);
        }
        if !store.prepare(way, pool, counters) {
            return Read::NoBuffer;
        }
        let read = store.read(&self.sockets[from], most);
        if let Read::Some { bytes, .. } = read {
            received(counters, from).add(bytes);
        }
        read
    }

    fn write(&mut self, to: Leg, _held: u64, more: bool) -> Write {
        let copies = self.stores[to.other()].copied().is_some();
        if copies && self.means.outbox.post(self.means.key, to) {
            return Write::Posted;
        }
        let socket = &self.sockets[to];
        self.count_written(to, |store| store.write(socket, more))
    }

    fn release_if_empty(&mut self, from: Leg) {
        self.stores[from].release_if_empty(self.means.pool);
    }

    fn discard(&mut self, from: Leg) {
        self.stores[from].release(self.means.pool);
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

    fn observe(&mut self, note: Note) {
        match note {
            Note::Promoted(from) => {
                self.means.counters.splice_promotions.add(1);
                self.spliced[from] = true;
            }
            Note::Urgent(_) => self.means.counters.urgent.add(1),
        }
    }
}

fn readiness(flags: EventFlags) -> Readiness {
    Readiness {
        readable: flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP),
        writable: flags.contains(EventFlags::OUT),
        urgent: flags.contains(EventFlags::PRI),
        read_closed: flags.intersects(EventFlags::RDHUP | EventFlags::HUP),
        hung_up: flags.contains(EventFlags::HUP),
        failed: flags.contains(EventFlags::ERR),
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
