use midspan_units::{Span, Time};

use crate::copy_mode::{CopyMode, CopyModeSelector};
use crate::flow::{Cause, Disposition, Flow};
use crate::idle::{IdleTimeouts, IdleTracker};
use crate::leg::{Leg, PerLeg};
use crate::linger::Linger;
use crate::read_ahead::ReadAhead;
use crate::stream::Watermarks;

/// The two connections of a flow as a [`Pump`] uses them, and what is held between them. No call
/// blocks: what cannot be done now is answered so, and an [event](Pump::event) tells when it can.
pub trait Legs {
    /// Reads up to `most` bytes from a leg behind what is held of it, in this mode if nothing is held
    /// that came in another one. `most` is never zero.
    fn read(&mut self, from: Leg, mode: CopyMode, most: u64) -> Read;

    /// Writes to a leg what is `held` for it, in bytes and never zero. With `more`, which must then
    /// come soon, what does not fill a segment may be kept back.
    fn write(&mut self, to: Leg, held: u64, more: bool) -> Write;

    /// Gives back what was to hold bytes of this leg, if it is empty.
    fn release_if_empty(&mut self, from: Leg);

    /// Drops what is held of this leg, and gives back what holds it.
    fn discard(&mut self, from: Leg);

    /// Sends the last segment of a leg's handshake, if it was kept back for bytes to go with it.
    fn end_handshake(&mut self, leg: Leg);

    /// Sends a FIN on a leg, behind all that was written.
    ///
    /// # Errors
    /// When the connection has failed.
    fn shutdown(&mut self, to: Leg) -> Result<(), Failure>;

    /// Why a leg has failed, if it has. It is told once.
    fn take_error(&mut self, leg: Leg) -> Option<Failure>;

    /// Bytes that a leg has received and that were not read.
    fn unread(&mut self, leg: Leg) -> u64;

    /// What was sent on a leg and is not acknowledged, in bytes, of which a FIN is one. None if it cannot be known.
    fn unacknowledged(&mut self, leg: Leg) -> Option<u64>;

    /// What a leg's TCP has measured. None if it cannot be known.
    fn info(&mut self, leg: Leg) -> Option<LegInfo>;

    /// Bytes that a leg's TCP shall have unsent at most before it takes no more (`TCP_NOTSENT_LOWAT`). None for no
    /// limit.
    fn set_notsent_lowat(&mut self, to: Leg, most: Option<u64>);

    /// Something worth counting has happened.
    fn observe(&mut self, _event: CountedEvent) {}
}

/// What came of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes, never zero. `dry` if the leg has no more for now.
    Some {
        /// How many.
        bytes: u64,
        /// Reading again would find nothing.
        dry: bool,
    },
    /// The leg has nothing for now.
    Dry,
    /// The peer has sent its FIN, and all before it has been read.
    End,
    /// What comes next is behind an urgent mark, which only copying passes.
    Mark,
    /// What is held must be written first.
    Full,
    /// There is nothing to be had to hold it in.
    NoBuffer,
    /// The connection failed, and nothing is left to be read.
    Failed,
}

/// What came of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// So many bytes. `full` if the leg takes no more for now.
    Some {
        /// How many.
        bytes: u64,
        /// Writing again would be refused.
        full: bool,
    },
    /// It is written with others' soon: what comes of it is told by [`Pump::completed`].
    Posted,
    /// The connection failed.
    Failed(Failure),
}

/// Why a connection failed, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The peer's reset (`ECONNRESET`).
    Reset,
    /// The peer's reset after its FIN (`EPIPE`).
    BrokenPipe,
    /// Anything else.
    Other,
}

/// What a leg's TCP has measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LegInfo {
    /// Bytes that the peer has acknowledged in all.
    pub acknowledged: u64,
    /// The round-trip time, as sender or receiver, whichever is longer. Zero while it is not known.
    pub round_trip: Span,
}

/// What has newly become so of a leg. What stays so need not be told again, but may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// There may be something to read, if only the end (`EPOLLIN`, `EPOLLRDHUP`, `EPOLLHUP`).
    pub readable: bool,
    /// It takes bytes, or is connected (`EPOLLOUT`).
    pub writable: bool,
    /// The peer has sent urgent data (`EPOLLPRI`).
    pub urgent: bool,
    /// The peer's FIN has come, or nothing can come any more (`EPOLLRDHUP`, `EPOLLHUP`).
    pub read_closed: bool,
    /// Neither direction is open (`EPOLLHUP`).
    pub hung_up: bool,
    /// It has failed (`EPOLLERR`).
    pub failed: bool,
}

/// What an event comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There may be work to do in a [turn](Pump::turn).
    Work,
    /// The server has answered, and there may be work to do.
    Connected,
    /// The server cannot be connected to: [replace](Pump::replaced) it, or [fail](Pump::fail).
    Refused,
}

/// What a flow wants after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// To be told when something happens.
    Wait,
    /// Another turn, after the others had theirs.
    Turn,
    /// A buffer, when one is given back.
    Buffer,
    /// Nothing more: both legs may be closed in order.
    Close,
    /// Nothing more: both legs must be reset, but for one that [has ended](Flow::has_ended).
    Abort(Cause),
}

/// What is worth counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedEvent {
    /// What is read from this leg is spliced from now on.
    Promoted(Leg),
    /// The first urgent data of this leg's peer.
    Urgent(Leg),
}

/// Carries a [`Flow`] out: moves bytes, FINs and resets between two [`Legs`], whatever these are.
///
/// Tell it of [events](Pump::event), which are edges: what one said is remembered until a call says
/// that it is no longer so. After any of them let it have its [turn](Pump::turn).
#[derive(Debug, Clone, Copy)]
pub struct Pump {
    flow: Flow,
    ends: PerLeg<End>,
    /// By the leg read from.
    directions: PerLeg<Direction>,
    idle: IdleTracker,
    linger: Linger,
    /// The server has answered, and no turn was since.
    has_just_connected: bool,
}

/// What is known of a leg's connection.
#[derive(Debug, Clone, Copy, Default)]
struct End {
    readable: bool,
    writable: bool,
    /// The peer's FIN, a failure or an urgent mark is somewhere in what is still to be read: a
    /// short read does not mean that nothing is left.
    stops_short: bool,
    /// The peer's FIN has come: it is behind what is still to be read.
    finishing: bool,
    /// Something has happened to it since it was last asked whether our FIN is acknowledged.
    changed: bool,
    /// The peer has sent urgent data. Reading stops at its mark, which splicing never passes.
    urgent: bool,
    /// We are not told of what arrives.
    reads_masked: bool,
    /// Its connection has failed, and the error was taken from it, which was not one of after the peer's
    /// FIN: where reading comes to an end, no FIN was.
    cut: bool,
}

#[derive(Debug, Clone, Copy)]
struct Direction {
    ahead: ReadAhead,
    copy_mode: CopyModeSelector,
    /// What is held is posted.
    posted: bool,
}

impl Pump {
    /// A flow whose client is connected and whose server leg is connecting. `ahead` is how far each
    /// leg is read ahead of the other.
    pub fn new(ahead: PerLeg<ReadAhead>) -> Pump {
        let direction =
            |ahead| Direction { ahead, copy_mode: CopyModeSelector::new(), posted: false };
        Pump {
            flow: Flow::new(Watermarks::up_to(ahead.client.limit())),
            ends: PerLeg::default(),
            directions: PerLeg { client: direction(ahead.client), server: direction(ahead.server) },
            idle: IdleTracker::new(),
            linger: Linger::default(),
            has_just_connected: false,
        }
    }

    /// What has crossed the flow so far, and what must happen next.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    // What happened.

    /// Takes in what has become of a leg.
    pub fn event(&mut self, leg: Leg, now: Readiness, legs: &mut impl Legs) -> Outcome {
        let end = &mut self.ends[leg];
        end.readable |= now.readable;
        end.writable |= now.writable;
        end.changed = true;
        let failed = now.failed || self.flow.lost() == Some(leg);
        end.finishing |= !failed && now.read_closed;
        end.stops_short |= end.finishing || failed;
        let (connecting, writable) =
            (leg == Leg::Server && self.flow.is_connecting(), end.writable);
        if now.urgent {
            self.meet_urgent(leg, legs);
        }
        // The error of one that is closed by it is left for who reads to find, behind what came before.
        let closed = !connecting && now.failed && now.hung_up;
        let error = if now.failed && !closed { legs.take_error(leg) } else { None };
        match error {
            _ if closed => self.lose(leg, None, legs),
            // A server that was connected and has reset since we last looked: before its FIN, or
            // after it.
            Some(Failure::Reset | Failure::BrokenPipe) if connecting => {
                self.connected();
                self.lose(leg, error, legs);
                return Outcome::Connected;
            }
            Some(_) if connecting => return Outcome::Refused,
            Some(_) => self.lose(leg, error, legs),
            None if connecting && writable => {
                self.connected();
                return Outcome::Connected;
            }
            None => {}
        }
        Outcome::Work
    }

    fn connected(&mut self) {
        self.flow.connected();
        self.has_just_connected = true;
    }

    /// A leg's connection has failed; `error` is what was taken from it, which tells it once.
    pub fn lose(&mut self, leg: Leg, error: Option<Failure>, legs: &mut impl Legs) {
        let end = &mut self.ends[leg];
        if self.flow.lost() != Some(leg) {
            end.cut = error.is_some_and(|error| error != Failure::BrokenPipe);
        }
        (end.readable, end.stops_short) = (true, true);
        self.flow.lose(leg);
        self.ends[leg.other()].changed = true;
        // Who has sent nothing since need not be delivered to a server that is not there yet.
        if self.flow.is_connecting() && legs.unread(leg) == 0 {
            self.flow.exhausted(leg);
        }
    }

    /// So many of the client's bytes went with the SYN to the server (RFC 7413).
    pub fn early(&mut self, bytes: u64) {
        self.flow.early(bytes);
    }

    /// The flow failed as a whole and ends at once. The first cause stands.
    pub fn fail(&mut self, cause: Cause) {
        self.flow.fail(cause);
    }

    /// The server leg is another connection now, to another server.
    pub fn replaced(&mut self) {
        self.ends.server = End::default();
    }

    /// What came of writing what was [posted](Write::Posted) for a leg. None if it was not tried.
    pub fn completed(&mut self, to: Leg, written: Option<Write>, legs: &mut impl Legs) -> Action {
        let from = to.other();
        self.directions[from].posted = false;
        let Some(written) = written else { return self.action(Action::Turn) };
        self.written(to, written, legs);
        legs.release_if_empty(from);
        self.end(to, legs);
        let reads = self.ends[from].readable && self.flow.may_read(from) > 0;
        let writes = self.ends[to].writable && self.flow.to_write(to) > 0;
        self.action(if reads || writes { Action::Turn } else { Action::Wait })
    }

    // What to do now.

    /// Does what can be done now, up to about `most` bytes in each direction.
    pub fn turn(&mut self, now: Time, most: u64, legs: &mut impl Legs) -> Action {
        let mut action = Action::Wait;
        let sent = self.flow.total_sent(Leg::Server);
        for from in Leg::BOTH {
            if self.flow.disposition() != Disposition::Continue {
                break;
            }
            match (action, self.pump(from, most, legs)) {
                // With another turn comes another try for a buffer.
                (Action::Turn, _) | (_, Action::Wait) => {}
                (_, wanted) => action = wanted,
            }
            self.look_ahead(from, now, legs);
        }
        for to in Leg::BOTH {
            self.end(to, legs);
        }
        // A packet less for most connections: those whose client was not waited for by its server.
        let carries = self.flow.total_sent(Leg::Server) > sent || self.is_posted(Leg::Server);
        if std::mem::take(&mut self.has_just_connected) && !carries {
            legs.end_handshake(Leg::Server);
        }
        self.action(action)
    }

    /// What the flow wants, which is this as long as it goes on.
    fn action(&self, action: Action) -> Action {
        match self.flow.disposition() {
            Disposition::Continue => action,
            Disposition::Close => Action::Close,
            Disposition::Abort(cause) => Action::Abort(cause),
        }
    }

    /// Whether what is held for a leg is posted.
    pub fn is_posted(&self, to: Leg) -> bool {
        self.directions[to.other()].posted
    }

    /// Whether more is sure to come behind what is held for a leg, if only the FIN.
    pub fn has_more(&self, to: Leg) -> bool {
        self.ends[to.other()].finishing
    }

    /// Whether read interest in a leg is to be masked (`Some(true)`) or unmasked. While as much is held as may be, and
    /// more is known to be there, each further packet would wake us in vain.
    pub fn should_mask_reads(&self, leg: Leg) -> Option<bool> {
        let end = &self.ends[leg];
        let is_full = self.flow.may_read(leg) == 0 && self.flow.to_write(leg.other()) > 0;
        let mask = end.readable && (end.reads_masked || is_full);
        (mask != end.reads_masked).then_some(mask)
    }

    /// Read interest in a leg was masked, or unmasked.
    pub fn set_reads_masked(&mut self, leg: Leg, masked: bool) {
        self.ends[leg].reads_masked = masked;
    }

    /// Why to reset the flow, if nothing has moved for too long.
    pub fn check_idle(&mut self, idle_timeouts: &IdleTimeouts, now: Time) -> Option<Cause> {
        self.idle.check(&self.flow, idle_timeouts, now)
    }

    /// Whether a leg's connection has failed, and what came by it is still on its way to the other one's peer.
    pub fn is_lingering(&self) -> bool {
        self.flow.lost().is_some() && self.flow.disposition() == Disposition::Continue
    }

    /// Has the next turn of one that [lingers](Pump::is_lingering) see how much is acknowledged, where events do not
    /// tell it; or gives up.
    pub fn look_after_last(&mut self, now: Time, legs: &mut impl Legs) {
        let Some(lost) = self.flow.lost().filter(|_| !self.flow.is_connecting()) else { return };
        let to = lost.other();
        self.ends[to].changed = true;
        let unacknowledged = legs.unacknowledged(to).unwrap_or(0);
        let acknowledged = self.flow.total_sent(to).saturating_sub(unacknowledged);
        if unacknowledged == 0 && self.flow.awaits_drain(to) {
            self.linger.delivered(now);
        }
        if self.linger.is_over(acknowledged, now) {
            self.flow.fail(Cause::Reset(lost));
        }
    }

    /// Moves one direction's bytes.
    fn pump(&mut self, from: Leg, most: u64, legs: &mut impl Legs) -> Action {
        let (to, before) = (from.other(), self.flow.total_received(from));
        let mut action = Action::Wait;
        loop {
            self.write(to, legs);
            if self.directions[from].posted {
                break;
            }
            if self.flow.total_received(from) - before >= most {
                action = Action::Turn;
                break;
            }
            let room = self.flow.may_read(from);
            if room == 0 || !self.ends[from].readable {
                break;
            }
            if let Some(wanted) = self.read(from, room, legs) {
                action = wanted;
                break;
            }
        }
        let moved = self.flow.total_received(from) - before;
        let direction = &mut self.directions[from];
        if moved > 0 {
            let mode = direction.copy_mode.selected();
            direction.copy_mode.moved(moved);
            if mode < direction.copy_mode.selected() {
                legs.observe(CountedEvent::Promoted(from));
            }
        }
        legs.release_if_empty(from);
        if self.flow.lost() == Some(to) && !direction.posted {
            // It has nowhere to go.
            legs.discard(from);
        }
        action
    }

    /// Reads once. `None` if it may be worth going on.
    fn read(&mut self, from: Leg, room: u64, legs: &mut impl Legs) -> Option<Action> {
        let end = &mut self.ends[from];
        let mode =
            if end.urgent { CopyMode::Copy } else { self.directions[from].copy_mode.selected() };
        match legs.read(from, mode, room) {
            Read::Some { bytes, dry } => {
                self.flow.received(from, bytes);
                // All before the FIN was there when it was told, and now has been read.
                let ends = dry && end.finishing && !end.urgent;
                end.readable = !dry || end.stops_short && !ends;
                if ends {
                    self.flow.end_of_stream(from);
                }
                None
            }
            Read::Dry => {
                end.readable = false;
                // Nothing comes any more.
                self.flow.exhausted(from);
                None
            }
            Read::End => {
                end.readable = false;
                match end.cut {
                    true => self.flow.exhausted(from),
                    false => self.flow.end_of_stream(from),
                }
                None
            }
            Read::Mark => {
                self.meet_urgent(from, legs);
                // What is in the pipe goes first.
                (self.flow.to_write(from.other()) > 0).then_some(Action::Wait)
            }
            Read::Failed => {
                self.lose(from, None, legs);
                self.ends[from].readable = false;
                self.flow.exhausted(from);
                None
            }
            Read::Full => Some(Action::Wait),
            Read::NoBuffer => Some(Action::Buffer),
        }
    }

    /// Writes what is held for a leg, as far as it goes, or has it written with others' soon.
    fn write(&mut self, to: Leg, legs: &mut impl Legs) {
        let from = to.other();
        while self.ends[to].writable
            && !self.directions[from].posted
            && let held = self.flow.to_write(to)
            && held > 0
        {
            // If only the FIN, which goes with the last of it.
            let written = legs.write(to, held, self.has_more(to));
            self.written(to, written, legs);
        }
    }

    fn written(&mut self, to: Leg, written: Write, legs: &mut impl Legs) {
        match written {
            Write::Some { bytes, full } => {
                self.flow.sent(to, bytes);
                self.ends[to].writable = !full;
            }
            Write::Posted => self.directions[to.other()].posted = true,
            Write::Failed(error) => self.lose(to, Some(error), legs),
        }
    }

    /// Sees how far a leg is to be read ahead of the other one.
    fn look_ahead(&mut self, from: Leg, now: Time, legs: &mut impl Legs) {
        let (to, ahead) = (from.other(), &mut self.directions[from].ahead);
        if !ahead.is_of_use(self.flow.total_received(from)) || !ahead.is_due(now) {
            return;
        }
        let (Some(feeding), Some(draining)) = (legs.info(from), legs.info(to)) else { return };
        if !ahead.look(now, draining.acknowledged, feeding.round_trip) {
            return;
        }
        self.flow.set_marks(from, Watermarks::up_to(ahead.limit()));
        legs.set_notsent_lowat(to, ahead.unsent_limit());
    }

    /// Sends our FIN if it is due, and sees whether the peer has acknowledged it.
    ///
    /// An event tells of that: on the acknowledgement of a FIN the connection leaves its state
    /// (FIN-WAIT-1, CLOSING, LAST-ACK; RFC 9293, 3.3.2).
    fn end(&mut self, to: Leg, legs: &mut impl Legs) {
        if self.flow.must_finish(to) {
            // It takes an event to know better.
            self.ends[to].changed = false;
            match legs.shutdown(to) {
                Ok(()) => self.flow.finished(to),
                // The error is left for who reads to find, which an event tells to do.
                Err(_) => self.lose(to, None, legs),
            }
        }
        if self.flow.awaits_drain(to)
            && std::mem::take(&mut self.ends[to].changed)
            && legs.unacknowledged(to) == Some(0)
            && !self.owes_time(to)
        {
            self.flow.drained(to);
        }
    }

    /// Whether the peer of a leg may still have to read what a server has answered before it failed, and would not
    /// once it is told of that: a client that has not finished, and may be about to write.
    fn owes_time(&self, to: Leg) -> bool {
        let from = to.other();
        self.flow.lost() == Some(from)
            && from == Leg::Server
            && self.flow.total_received(from) > 0
            && !self.ends[to].finishing
            && !self.linger.has_had_time()
    }

    /// A leg's peer has sent urgent data.
    fn meet_urgent(&mut self, leg: Leg, legs: &mut impl Legs) {
        let end = &mut self.ends[leg];
        if !end.urgent {
            legs.observe(CountedEvent::Urgent(leg));
        }
        (end.urgent, end.stops_short) = (true, true);
    }
}
