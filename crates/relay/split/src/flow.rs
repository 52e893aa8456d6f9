use std::fmt;

use crate::leg::{Leg, PerLeg};
use crate::stream::{Stream, Watermarks};

/// One split flow: what has crossed it, and what must happen next.
///
/// The rules, all of them:
/// - Nothing is read from either leg before the server leg is connected, but for what goes with its
///   SYN ([`Flow::early`]).
/// - Each direction ends by itself: a FIN read from one leg is sent on the other exactly once,
///   after the last byte, while the opposite direction goes on (half-close, RFC 9293, 3.6).
/// - A reset, or any other failure of a leg, does not overtake data ([`Flow::lose`]): what its peer
///   had sent before is read, written to the other leg and acknowledged there, a FIN included; then
///   both legs must be reset. What the other leg sends from then on has nowhere to go: it is not
///   read, and what was held of it is dropped.
/// - Where a flow ends before its time, a leg on which both FINs have crossed is left to end: TCP
///   has no reset for it any more ([`Flow::has_ended`]).
/// - Both legs may be closed in order only when both directions have ended *and* both peers have
///   acknowledged everything, the FINs included. Until then the death of whoever holds the sockets
///   must reset both legs, never end them.
///
/// An event that contradicts what was told before (more bytes sent than were held) means that the
/// caller has lost or invented data: the flow is aborted, as it can no longer be trusted.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    stage: Stage,
    /// By the leg read *from*.
    streams: PerLeg<Stream>,
    /// The leg whose connection has failed, while what came by it is still on its way.
    lost: Option<Lost>,
}

/// A leg without a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lost {
    leg: Leg,
    /// All that it had received has been read.
    is_read: bool,
    /// The other leg's peer has all of it.
    is_delivered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connecting,
    Relaying,
    Over(Cause),
}

/// What is to become of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It goes on.
    Continue,
    /// Both directions have ended and are acknowledged: close both legs in order.
    Close,
    /// Reset both legs, but for one that [has ended](Flow::has_ended).
    Abort(Cause),
}

/// Bytes that have crossed a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Read from it.
    pub received: u64,
    /// Given to it.
    pub sent: u64,
}

/// Why a flow is aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The server could not be reached, or refused.
    ConnectFailed,
    /// The server did not answer in time.
    ConnectTimedOut,
    /// This leg's peer reset its connection, or the connection failed otherwise.
    Reset(Leg),
    /// No payload has crossed for longer than flows may be idle.
    Idle,
    /// One end has finished, and no payload has crossed for longer than flows may be so.
    HalfClosed,
    /// The relay stops and waits no longer.
    Stopped,
    /// The events told contradict each other.
    Inconsistent,
}

impl Cause {
    /// What it is called in counters, metrics and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Cause::ConnectFailed => "connect_failed",
            Cause::ConnectTimedOut => "connect_timed_out",
            Cause::Reset(Leg::Client) => "reset_by_client",
            Cause::Reset(Leg::Server) => "reset_by_server",
            Cause::Idle => "idle",
            Cause::HalfClosed => "half_closed",
            Cause::Stopped => "stopped",
            Cause::Inconsistent => "inconsistent",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::ConnectFailed => f.pad("the server leg could not connect"),
            Cause::ConnectTimedOut => f.pad("the server did not answer in time"),
            Cause::Reset(leg) => write!(f, "the {leg} leg was reset"),
            Cause::Idle => f.pad("no payload crossed for as long as is allowed"),
            Cause::HalfClosed => f.pad("it was half-closed for as long as is allowed"),
            Cause::Stopped => f.pad("the relay stopped"),
            Cause::Inconsistent => f.pad("the flow's accounts do not add up"),
        }
    }
}

impl Flow {
    /// A flow whose client is connected and whose server leg is connecting.
    pub const fn new(marks: Watermarks) -> Self {
        let stream = Stream::new(marks);
        Flow {
            stage: Stage::Connecting,
            streams: PerLeg { client: stream, server: stream },
            lost: None,
        }
    }

    // What happened.

    /// The server leg is connected.
    pub fn connected(&mut self) {
        if self.stage == Stage::Connecting {
            self.stage = Stage::Relaying;
        }
    }

    /// `bytes` were read from the client and went with the SYN of the server leg, which is connecting
    /// (RFC 7413).
    pub fn early(&mut self, bytes: u64) {
        let stream = &mut self.streams[Leg::Client];
        let moved = self.stage == Stage::Connecting && stream.receive(bytes) && stream.send(bytes);
        self.insist(moved);
    }

    /// The flow failed as a whole and ends at once: the connect failed, the relay stops. The first
    /// cause stands.
    pub fn fail(&mut self, cause: Cause) {
        if !matches!(self.stage, Stage::Over(_)) {
            self.stage = Stage::Over(cause);
        }
    }

    /// This leg's peer reset its connection, or it failed otherwise. What it had received before may
    /// still be read: say [`Flow::exhausted`] when there is nothing left, or
    /// [`Flow::end_of_stream`] if the peer had sent its FIN before.
    pub fn lose(&mut self, leg: Leg) {
        match self.lost {
            None if leg == Leg::Server && self.is_connecting() => self.fail(Cause::Reset(leg)),
            None => self.lost = Some(Lost { leg, is_read: false, is_delivered: false }),
            Some(lost) if lost.leg != leg => self.fail(Cause::Reset(lost.leg)),
            Some(_) => {}
        }
    }

    /// All that a leg had received before it was [lost](Flow::lose) has been read.
    pub fn exhausted(&mut self, leg: Leg) {
        if let Some(lost) = self.lost.as_mut().filter(|lost| lost.leg == leg) {
            lost.is_read = true;
            if self.is_connecting() {
                self.fail(Cause::Reset(leg));
            }
        }
    }

    /// `bytes` were read from a leg.
    pub fn received(&mut self, from: Leg, bytes: u64) {
        let allowed = self.may_read(from) >= bytes && self.streams[from].receive(bytes);
        self.insist(allowed);
    }

    /// `bytes` were given to a leg's TCP.
    pub fn sent(&mut self, to: Leg, bytes: u64) {
        let held = self.streams[to.other()].send(bytes);
        self.insist(held);
    }

    /// A leg's peer acknowledged `bytes` more. Only needed where the caller is the TCP, to know
    /// what its buffer still holds.
    pub fn acknowledged(&mut self, by: Leg, bytes: u64) {
        let in_flight = self.streams[by.other()].acknowledge(bytes);
        self.insist(in_flight);
    }

    /// The last byte of a leg has been read, and then its FIN.
    pub fn end_of_stream(&mut self, from: Leg) {
        self.streams[from].end();
    }

    /// A FIN was sent on a leg, as [`Flow::must_finish`] asked.
    pub fn finished(&mut self, to: Leg) {
        let due = self.streams[to.other()].finish();
        self.insist(due);
    }

    /// A leg's peer has acknowledged all that was sent on it, our FIN included if it was sent.
    pub fn drained(&mut self, leg: Leg) {
        if self.awaits_last(leg)
            && let Some(lost) = &mut self.lost
        {
            lost.is_delivered = true;
        }
        self.streams[leg.other()].drain();
    }

    /// What is read from a leg may be held up to these marks from now on. What is held already stays,
    /// though it be more.
    pub fn set_marks(&mut self, from: Leg, marks: Watermarks) {
        self.streams[from].set_marks(marks);
    }

    fn insist(&mut self, consistent: bool) {
        if !consistent {
            self.fail(Cause::Inconsistent);
        }
    }

    // What to do now.

    /// Whether the flow goes on.
    pub fn disposition(&self) -> Disposition {
        let is_over = |leg: &Leg| self.streams[*leg].is_over();
        match (self.stage, self.lost) {
            (Stage::Over(cause), _) => Disposition::Abort(cause),
            (Stage::Connecting, _) => Disposition::Continue,
            (Stage::Relaying, _) if Leg::BOTH.iter().all(is_over) => Disposition::Close,
            (Stage::Relaying, Some(Lost { leg, is_delivered: true, .. })) => {
                Disposition::Abort(Cause::Reset(leg))
            }
            (Stage::Relaying, _) => Disposition::Continue,
        }
    }

    /// Whether the server leg is still connecting.
    pub fn is_connecting(&self) -> bool {
        self.stage == Stage::Connecting
    }

    /// The leg whose connection has failed, if one has.
    pub fn lost(&self) -> Option<Leg> {
        self.lost.map(|lost| lost.leg)
    }

    /// How many bytes may be read from a leg; zero is a pause (or the end).
    pub fn may_read(&self, from: Leg) -> u64 {
        let is_read = self.lost.is_some_and(|lost| lost.leg != from || lost.is_read);
        if self.stage == Stage::Relaying && !is_read { self.streams[from].may_read() } else { 0 }
    }

    /// How many held bytes wait to be written to a leg.
    pub fn to_write(&self, to: Leg) -> u64 {
        if self.carries(to) { self.streams[to.other()].held() } else { 0 }
    }

    /// Whether our FIN must be sent on a leg now. Say [`Flow::finished`] when it is.
    pub fn must_finish(&self, to: Leg) -> bool {
        self.carries(to) && self.streams[to.other()].must_finish()
    }

    /// Whether the flow waits for a leg's peer to acknowledge all that was sent on it, our FIN
    /// included if it was sent. Say [`Flow::drained`] when it has.
    pub fn awaits_drain(&self, leg: Leg) -> bool {
        self.carries(leg) && self.streams[leg.other()].awaits_drain() || self.awaits_last(leg)
    }

    /// Whether what was sent on a leg is all that came from the other one, which is lost.
    fn awaits_last(&self, leg: Leg) -> bool {
        let stream = &self.streams[leg.other()];
        self.lost.is_some_and(|lost| {
            let is_read = lost.is_read || stream.is_read();
            lost.leg != leg && is_read && !lost.is_delivered
        }) && self.stage == Stage::Relaying
            && stream.held() == 0
            && !stream.must_finish()
    }

    /// Whether what is for a leg can still be sent on it.
    fn carries(&self, to: Leg) -> bool {
        self.stage == Stage::Relaying && self.lost() != Some(to)
    }

    /// Whether a leg has ended both ways: its peer's FIN was read, and ours followed the last byte.
    /// All that it still waits for is acknowledgements. Such a leg must be left to end even if
    /// the flow is aborted: what it was sent is whole, and in its state (CLOSING, LAST-ACK,
    /// TIME-WAIT) an abort would send nothing, and leave a peer that lost a segment waiting.
    pub fn has_ended(&self, leg: Leg) -> bool {
        self.streams[leg].is_read() && self.streams[leg.other()].is_sent()
    }

    // What has been.

    /// A number that grows with every payload byte read or given to a leg, and with every FIN read.
    pub fn progress(&self) -> u64 {
        let of = |leg| {
            let stream = &self.streams[leg];
            stream.received() + stream.sent() + u64::from(stream.is_read())
        };
        of(Leg::Client) + of(Leg::Server)
    }

    /// Whether the FIN of either leg's peer has been read.
    pub fn has_seen_fin(&self) -> bool {
        Leg::BOTH.iter().any(|&leg| self.streams[leg].is_read())
    }

    /// Bytes ever read from a leg.
    pub fn total_received(&self, from: Leg) -> u64 {
        self.streams[from].received()
    }

    /// Bytes ever given to a leg.
    pub fn total_sent(&self, to: Leg) -> u64 {
        self.streams[to.other()].sent()
    }

    /// Bytes that have crossed each leg.
    pub fn totals(&self) -> PerLeg<Totals> {
        let of = |leg| Totals { received: self.total_received(leg), sent: self.total_sent(leg) };
        PerLeg { client: of(Leg::Client), server: of(Leg::Server) }
    }

    /// Bytes read from a leg that a proxy still has to answer for: not yet sent to the other leg,
    /// or in flight there. What [`ReceiveWindow`](crate::ReceiveWindow) calls occupied.
    pub fn occupied(&self, from: Leg) -> u64 {
        self.streams[from].held() + self.streams[from].in_flight()
    }
}
