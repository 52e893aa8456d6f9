//! What a sender does, for those who want to be told: events, each with the time at which it happened.

use midspan_units::{Rate, Span, Time};

/// Something that happened to the sending half of a connection. Positions count bytes from the SYN, which is 0: they are
/// relative sequence numbers (RFC 9293) that do not wrap. Ranges end before their second position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The handshake is over.
    Established {
        /// Bytes of payload in a full packet.
        mss: u32,
        /// SACK was agreed to (RFC 2018).
        sack: bool,
        /// ECN was (RFC 3168).
        ecn: bool,
    },
    /// A segment with data, or with a FIN, was sent.
    Sent {
        /// Its range; a FIN takes a position.
        range: (u64, u64),
        /// It was sent before.
        retransmission: bool,
        /// It is a tail loss probe (RFC 8985, section 7).
        probe: bool,
    },
    /// An acknowledgement has come, alone, or with data and something new.
    Received {
        /// The next position that the peer expects.
        ack: u64,
        /// The ranges of its SACK option, a D-SACK (RFC 2883) included.
        sack: Vec<(u64, u64)>,
        /// Bytes from `ack` on that the peer has room for.
        window: u64,
        /// It carries ECN-Echo (RFC 3168).
        ece: bool,
    },
    /// A segment was found lost.
    Lost {
        /// Its range.
        range: (u64, u64),
        /// By what.
        by: LossDetection,
    },
    /// A reduction of the window proved a mistake, and was taken back.
    Spurious {
        /// By what.
        by: Proof,
        /// What was held lost is in flight again.
        forgiven: bool,
    },
    /// A timer was set, or set anew, to strike after so long.
    TimerSet(Timer, Span),
    /// It has struck.
    TimerExpired(Timer),
    /// It will not.
    TimerCancelled(Timer),
    /// The window is governed otherwise than before.
    Congestion(CongestionState),
    /// Window, round-trip time or what is in flight have changed.
    Metrics(SenderMetrics),
}

/// By what a segment was found lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossDetection {
    /// A later one was delivered, and the reordering window has passed (RACK, RFC 8985).
    Rack,
    /// Duplicate acknowledgements, without SACK (RFC 6582).
    DuplicateAcks,
    /// A retransmission timeout (RFC 6298).
    Timeout,
}

/// By what a reduction was proved a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The echoed timestamp is of the original (Eifel, RFC 3522).
    Timestamps,
    /// All that was sent again had arrived before (D-SACK, RFC 3708).
    Dsack,
    /// New data were acknowledged after a timeout (F-RTO, RFC 5682).
    Frto,
}

/// What the one timer of a sender waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// RFC 6298.
    Retransmission,
    /// RFC 8985, section 7.
    TailProbe,
    /// RFC 8985, section 6.3.
    Reordering,
    /// RFC 9293, 3.8.6.1: a window too small for the next segment.
    Persist,
}

/// What governs the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionState {
    /// The window is below the threshold (RFC 5681).
    SlowStart,
    /// It is not.
    CongestionAvoidance,
    /// A control that sets window and rate throughout, whose phases are its own; nothing is being repaired.
    Open,
    /// It is reduced because of ECN.
    Cwr,
    /// It is reduced because of loss, which is repaired by fast retransmission.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// How a sender stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderMetrics {
    /// Congestion window, packets.
    pub cwnd: u32,
    /// Slow start threshold, packets; none before any loss.
    pub ssthresh: Option<u32>,
    /// Smoothed round-trip time (RFC 6298); zero before the first sample.
    pub srtt: Span,
    /// Its mean deviation.
    pub rttvar: Span,
    /// Least round-trip time of the last minutes; zero before the first sample.
    pub min_rtt: Span,
    /// Retransmission timeout.
    pub rto: Span,
    /// Packets sent, and neither delivered nor held lost.
    pub packets_in_flight: u32,
    /// Bytes of these.
    pub bytes_in_flight: u64,
    /// The rate that the congestion control asks for; none where it leaves that to the stack.
    pub pacing_rate: Option<Rate>,
}

/// What is told, and what was told last.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    events: Vec<(Time, Event)>,
    timer: Option<(Timer, Time)>,
    congestion: Option<CongestionState>,
    metrics: Option<SenderMetrics>,
}

impl Watch {
    pub(crate) fn tell(&mut self, now: Time, event: Event) {
        self.events.push((now, event));
    }

    /// A timer has struck.
    pub(crate) fn expired(&mut self, now: Time, timer: Timer) {
        self.timer = None;
        self.tell(now, Event::TimerExpired(timer));
    }

    /// How the window is governed, where that is new.
    pub(crate) fn congestion(&mut self, now: Time, state: CongestionState) {
        if self.congestion.replace(state) != Some(state) {
            self.tell(now, Event::Congestion(state));
        }
    }

    /// How the sender stands, where that is new.
    pub(crate) fn metrics(&mut self, now: Time, metrics: SenderMetrics) {
        if self.metrics.replace(metrics) != Some(metrics) {
            self.tell(now, Event::Metrics(metrics));
        }
    }

    /// What the timer waits for, where that is new.
    pub(crate) fn timer(&mut self, now: Time, timer: Option<(Timer, Time)>) {
        if self.timer == timer {
            return;
        }
        match (std::mem::replace(&mut self.timer, timer), timer) {
            (_, Some((timer, at))) => self.tell(now, Event::TimerSet(timer, at.since(now))),
            (Some((timer, _)), None) => self.tell(now, Event::TimerCancelled(timer)),
            (None, None) => {}
        }
    }

    pub(crate) fn take(&mut self) -> Vec<(Time, Event)> {
        std::mem::take(&mut self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn what_is_not_new_is_not_told() {
        let mut watch = Watch::default();
        for _ in 0..2 {
            watch.congestion(at(1), CongestionState::SlowStart);
            watch.timer(at(1), Some((Timer::TailProbe, at(5))));
        }
        let told = [
            (at(1), Event::Congestion(CongestionState::SlowStart)),
            (at(1), Event::TimerSet(Timer::TailProbe, Span::from_millis(4))),
        ];
        assert_eq!(watch.take(), told);
        assert_eq!(watch.take(), []);
    }

    #[test]
    fn a_timer_that_has_struck_is_not_cancelled() {
        let mut watch = Watch::default();
        watch.timer(at(0), Some((Timer::Retransmission, at(2))));
        watch.expired(at(2), Timer::Retransmission);
        watch.timer(at(2), None);
        watch.timer(at(3), Some((Timer::Retransmission, at(9))));
        watch.timer(at(4), None);
        let told: Vec<_> = watch.take().into_iter().map(|(_, event)| event).collect();
        let retransmission = Timer::Retransmission;
        assert_eq!(
            told,
            [
                Event::TimerSet(retransmission, Span::from_millis(2)),
                Event::TimerExpired(retransmission),
                Event::TimerSet(retransmission, Span::from_millis(6)),
                Event::TimerCancelled(retransmission),
            ]
        );
    }
}
