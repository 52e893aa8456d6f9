//! When acknowledgements are sent (RFC 9293, 3.8.6.3; RFC 5681, 4.2), as Linux does: at once at the
//! start and after trouble, then every second full segment or after a while, and several SACKs as
//! one.

use midspan_units::{Span, Time};

use crate::Config;

/// Least delay of an acknowledgement.
const LEAST_DELAY: Span = Span::from_millis(40);
/// Greatest delay.
const MOST_DELAY: Span = Span::from_millis(200);
/// How many acknowledgements are sent at once at the start.
const MOST_QUICK: u32 = 16;
/// How many duplicate acknowledgements are sent before they are compressed.
const DUPLICATES: u32 = 3;

#[derive(Debug)]
pub(super) struct Acks {
    compress_delay: Span,
    compress_most: u32,
    /// Something is to be acknowledged.
    due: bool,
    /// At once.
    now: bool,
    /// At this time.
    delayed: Option<Time>,
    /// Each segment is acknowledged without delay.
    always_quick: bool,
    /// Acknowledgements still to be sent without delay.
    quick: u32,
    /// The application answers what it receives: acknowledgements can wait for the answer.
    replying: bool,
    /// A segment that was not full came since the last acknowledgement.
    pushed: bool,
    /// Estimate of the time between segments, which decides how long to wait for the next one; none
    /// before the first.
    interval: Option<Span>,
    last_data: Time,
    /// Duplicate acknowledgements sent for one position, and the position.
    duplicates: (u64, u32),
    /// SACKs held back, and until when.
    compressed: u32,
    compressed_until: Option<Time>,
}

impl Acks {
    pub(super) fn new(config: &Config) -> Acks {
        Acks {
            compress_delay: config.tcp_comp_sack_delay,
            compress_most: config.tcp_comp_sack_nr,
            due: false,
            now: false,
            delayed: None,
            always_quick: config.quickack,
            quick: 0,
            replying: false,
            pushed: false,
            interval: None,
            last_data: Time::ZERO,
            duplicates: (0, 0),
            compressed: 0,
            compressed_until: None,
        }
    }

    /// Every duplicate acknowledgement counts, as they say nothing else.
    pub(super) fn compress_none(&mut self) {
        self.compress_most = 0;
    }

    /// Something is to be acknowledged, sooner or later.
    pub(super) fn due(&mut self) {
        self.due = true;
    }

    /// At once.
    pub(super) fn now(&mut self) {
        self.due = true;
        self.now = true;
    }

    /// The next acknowledgements go at once: up to `most`, or as many as at the start.
    pub(super) fn hurry(&mut self, most: u32) {
        self.quick = self.quick.max(MOST_QUICK.min(most));
        self.replying = false;
        self.interval = Some(LEAST_DELAY);
    }

    /// The application is likely to answer.
    pub(super) fn expect_reply(&mut self) {
        self.replying = true;
    }

    /// A data segment came in order. `rto`: this host's own retransmission timeout.
    pub(super) fn data_came(&mut self, now: Time, payload: u32, mss: u32, window: u64, rto: Span) {
        self.pushed |= payload < mss;
        let quick = (window / (2 * u64::from(mss.max(1)))).clamp(2, u64::from(MOST_QUICK)) as u32;
        match self.interval {
            None => {
                self.quick = self.quick.max(quick);
                self.interval = Some(LEAST_DELAY);
            }
            Some(interval) => {
                let gap = now.since(self.last_data);
                if gap <= LEAST_DELAY / 2 {
                    self.interval = Some(interval / 2 + LEAST_DELAY / 2);
                } else if gap < interval {
                    self.interval = Some(interval / 2 + gap);
                } else if gap > rto {
                    // The sender has probably started over (RFC 5681, 4.1), or repairs a loss in each round.
                    self.quick = self.quick.max(quick);
                }
            }
        }
        self.last_data = now;
    }

    /// A data segment was dealt with. `enough`: more than a full segment waits to be acknowledged; `rtt`: this
    /// host's own smoothed round-trip time, 0 if it has none yet. No acknowledgement waits for longer than
    /// that, as the sender would take it for lost.
    pub(super) fn decide(&mut self, now: Time, enough: bool, holes: bool, nxt: u64, rtt: Span) {
        if !self.due || self.now {
            return;
        }
        if enough || self.always_quick || (self.quick > 0 && !self.replying) {
            self.now = true;
        } else if !holes {
            let most = match rtt {
                Span::ZERO => MOST_DELAY,
                known => known.clamp(LEAST_DELAY, MOST_DELAY),
            };
            let wait = self.interval.unwrap_or(LEAST_DELAY).clamp(LEAST_DELAY, most);
            self.delayed.get_or_insert(crate::strikes(now, wait));
        } else {
            self.compress(now, nxt, rtt);
        }
    }

    /// The first duplicate acknowledgements make the sender repair; more of them can wait for a
    /// twentieth of the round-trip time (`tcp_comp_sack_delay_ns`).
    fn compress(&mut self, now: Time, nxt: u64, rtt: Span) {
        if self.duplicates.0 != nxt {
            self.duplicates = (nxt, 0);
        }
        if self.duplicates.1 < DUPLICATES || self.compressed >= self.compress_most {
            self.duplicates.1 += 1;
            self.now = true;
            return;
        }
        self.compressed += 1;
        if self.compressed_until.is_none() {
            self.compressed_until = Some(now + (rtt / 20).min(self.compress_delay));
        }
    }

    /// Whether SACKs are held back.
    pub(super) fn holds_back(&self) -> bool {
        self.compressed > 0
    }

    /// The application has read. `enough` as above; `empty`: nothing is left to read. Whether that
    /// calls for an acknowledgement.
    pub(super) fn after_read(&mut self, enough: bool, empty: bool) -> bool {
        let call = self.due && (enough || (self.pushed && !self.replying && empty));
        self.now |= call;
        call
    }

    /// The application's own data went out: if it was an answer, others may be expected.
    pub(super) fn data_sent(&mut self, now: Time) {
        if self.interval.is_some_and(|interval| now.since(self.last_data) < interval) {
            self.replying = true;
        }
    }

    pub(super) fn must_send(&self, now: Time) -> bool {
        self.now || self.compressed_until.is_some_and(|at| at <= now)
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.delayed.into_iter().chain(self.compressed_until).min()
    }

    /// Looks whether the delay of an acknowledgement is over.
    pub(super) fn on_timer(&mut self, now: Time, rto: Span) {
        if self.delayed.is_some_and(|at| at <= now) {
            self.delayed = None;
            self.now = true;
            // It waited for nothing: next time it waits for longer, or not for an answer.
            if self.replying {
                self.replying = false;
                self.interval = Some(LEAST_DELAY);
            } else {
                self.interval = self.interval.map(|interval| (interval * 2).min(rto));
            }
        }
    }

    /// An acknowledgement was sent.
    pub(super) fn sent(&mut self) {
        self.quick = self.quick.saturating_sub(1);
        self.due = false;
        self.now = false;
        self.pushed = false;
        self.delayed = None;
        self.compressed = 0;
        self.compressed_until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments that come ever later lengthen the wait for the next one, but to no more than this host's own
    /// round-trip time.
    #[test]
    fn an_acknowledgement_waits_for_no_longer_than_a_round_trip() {
        let waits = |rtt: Span| {
            let mut acks = Acks::new(&Config::default());
            let mut now = Time::ZERO + Span::from_secs(1);
            let mut longest = Span::ZERO;
            for _ in 0..60 {
                acks.data_came(now, 1448, 1448, 65_536, Span::from_secs(1));
                acks.due();
                acks.decide(now, false, false, 0, rtt);
                if let Some(at) = acks.deadline().filter(|_| !acks.must_send(now)) {
                    longest = longest.max(at.since(now));
                    acks.on_timer(at, Span::from_millis(300));
                    now = at;
                }
                assert!(acks.must_send(now));
                acks.sent();
                now += Span::from_millis(80);
            }
            longest
        };
        // Timers strike at a tick, and not before their time.
        let tick = crate::TICK * 2;
        assert!(waits(Span::from_millis(70)) <= Span::from_millis(70) + tick);
        assert!(waits(Span::from_millis(5)) <= LEAST_DELAY + tick, "but for 40 ms at least");
        assert!(waits(Span::ZERO) > Span::from_millis(150), "it knows of no round trip");
    }

    /// As with `quickack` of a route.
    #[test]
    fn each_segment_may_be_acknowledged_at_once() {
        let at_once = |quickack: bool| {
            let mut acks = Acks::new(&Config { quickack, ..Config::default() });
            let came = |number: u64| {
                let now = Time::ZERO + Span::from_millis(31) * number;
                acks.data_came(now, 1448, 1448, 65_536, Span::from_secs(1));
                acks.due();
                acks.decide(now, false, false, 0, Span::from_millis(100));
                let at_once = acks.must_send(now);
                acks.sent();
                at_once
            };
            (1..=100).map(came).filter(|at_once| *at_once).count()
        };
        assert_eq!(at_once(true), 100);
        assert!(at_once(false) <= MOST_QUICK as usize);
    }

    /// As where a sender repairs a loss in each round: the next segments are answered at once.
    #[test]
    fn segments_that_come_further_apart_than_a_timeout_are_acknowledged_at_once() {
        let at_once = |gap: Span| {
            let mut acks = Acks::new(&Config::default());
            let mut now = Time::ZERO + Span::from_secs(1);
            let mut came = |acks: &mut Acks, gap: Span| {
                now += gap;
                acks.data_came(now, 1448, 1448, 65_536, Span::from_millis(300));
                acks.due();
                acks.decide(now, false, false, 0, Span::from_millis(100));
                let at_once = acks.must_send(now);
                acks.sent();
                at_once
            };
            // Those of the beginning are.
            while came(&mut acks, Span::from_millis(140)) {}
            assert!(!came(&mut acks, Span::from_millis(140)));
            came(&mut acks, gap) && came(&mut acks, Span::from_millis(140))
        };
        assert!(at_once(Span::from_millis(301)));
        assert!(!at_once(Span::from_millis(300)));
    }
}
