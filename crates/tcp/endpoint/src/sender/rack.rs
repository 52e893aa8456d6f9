//! RACK: what is lost, by when it was sent (RFC 8985, sections 5 and 6), with Linux's choices.

use midspan_units::{Span, Time};

use super::Sender;
use super::scoreboard::Sent;
use crate::event::{LossDetection, Timer};
use crate::is_before;
use midspan_cc::State;

/// For how many recoveries a widened window stays (RFC 8985, 6.2, step 4).
const PERSISTENCE: u32 = 16;

#[derive(Debug)]
pub(super) struct Rack {
    /// The order of the segment sent last of all delivered ones.
    order: u64,
    /// How long it took to be delivered.
    rtt: Span,
    /// The above has changed, or what is lost must be found anew.
    pub(super) advanced: bool,
    /// When it was looked for last, something was within the reordering window, and a timer was set for it.
    pub(super) waits: bool,
    /// The peer got something twice in this round trip.
    pub(super) dsack_seen: bool,
    /// The reordering window in quarters of the least round-trip time.
    steps: u32,
    /// Recoveries that `steps` still outlives.
    persist: u32,
    /// What had been delivered when `steps` last grew.
    grown_at: u32,
}

impl Default for Rack {
    fn default() -> Self {
        Rack {
            order: 0,
            rtt: Span::ZERO,
            advanced: false,
            waits: false,
            dsack_seen: false,
            steps: 1,
            persist: 0,
            grown_at: 0,
        }
    }
}

impl Rack {
    /// `segment` was delivered (RFC 8985, 6.2, step 2). `echo` is the timestamp of an acknowledgement that takes it in
    /// cumulatively; of what is SACKed it says nothing, and is zero.
    pub(super) fn delivered(
        &mut self,
        now: Time,
        segment: &Sent,
        min_rtt: Option<Span>,
        echo: u32,
    ) {
        let rtt = now.since(segment.at);
        if segment.ever_retransmitted {
            let of_an_earlier_one = echo != 0 && is_before(echo, crate::timestamp(segment.at));
            if of_an_earlier_one || min_rtt.is_some_and(|min| rtt < min) {
                // It was the original, not the retransmission.
                return;
            }
        }
        self.advanced = true;
        self.rtt = rtt;
        self.order = self.order.max(segment.order);
    }

    /// Widens the reordering window once a round trip in which something came twice, and narrows it
    /// after a number of recoveries without (RFC 8985, 6.2, step 4). A round trip has passed once something is delivered that
    /// was sent since: `sent_at` says what had been delivered when the newest was sent that this acknowledgement tells of, `delivered`
    /// what has been by now. An acknowledgement that tells of nothing new leaves it to the next one.
    pub(super) fn adapt_window(&mut self, sent_at: Option<u32>, delivered: u32) {
        let Some(sent_at) = sent_at else { return };
        if std::mem::take(&mut self.dsack_seen) && sent_at >= self.grown_at {
            self.steps = (self.steps + 1).min(255);
            self.persist = PERSISTENCE;
            self.grown_at = delivered;
        } else if self.persist == 0 {
            self.steps = 1;
        }
    }

    /// A recovery is over. One that D-SACKs prove a mistake, `spurious`, lets a widened window stay for longer.
    pub(super) fn recovery_over(&mut self, spurious: bool) {
        self.persist = match spurious {
            true => (self.persist + 1).min(PERSISTENCE),
            false => self.persist.saturating_sub(1),
        };
    }
}

impl Sender {
    /// How long a segment may be overtaken before it is held lost: none while no reordering was
    /// ever seen and there is reason to believe in loss.
    fn reordering_window(&self) -> Span {
        if self.totals.reorderings == 0
            && (matches!(self.state, State::Recovery | State::Loss)
                || self.board.sacked() >= self.reordering.min(self.config.tcp_reordering))
        {
            return Span::ZERO;
        }
        let quarter = self.rtt.min().unwrap_or(Span::ZERO) / 4;
        (quarter * u64::from(self.rack.steps)).min(self.rtt.smoothed())
    }

    /// Holds lost what is (RFC 8985, 6.2, step 5). Answers after what time some of the rest will be.
    pub(super) fn detect_loss(&mut self, now: Time) -> Option<Span> {
        if !std::mem::take(&mut self.rack.advanced) {
            return None;
        }
        let patience = self.rack_patience();
        let mut longest = None;
        self.board.judge(self.rack.order, |segment| {
            if segment.forgiven {
                return false;
            }
            let left = patience.saturating_sub(now.since(segment.at));
            if left > Span::ZERO {
                longest = longest.max(Some(left));
            }
            left == Span::ZERO
        });
        self.tell_lost(now, LossDetection::Rack);
        longest
    }

    /// The same, and waits for the rest.
    pub(super) fn detect_loss_and_wait(&mut self, now: Time) {
        let left = self.detect_loss(now);
        self.rack.waits = left.is_some();
        if let Some(left) = left {
            self.arm(Timer::Reordering, now, left + crate::LEAST_TIMER);
        }
    }

    /// How long after it was sent a segment is held lost, if a later one was delivered.
    pub(super) fn rack_patience(&self) -> Span {
        self.rack.rtt + self.reordering_window()
    }

    /// The reordering window has passed.
    pub(super) fn on_reordering_timer(&mut self, now: Time) {
        let in_flight = self.board.in_flight();
        self.rack.advanced = true;
        self.detect_loss_and_wait(now);
        if in_flight > self.board.in_flight() {
            if self.state != State::Recovery {
                self.enter_recovery(now, false);
                if !self.owns_rate() {
                    self.reduce_window(1, 1, false);
                }
            }
            self.rack.advanced = false;
        }
        if self.timer.is_none() {
            self.arm_retransmission(now);
        }
    }
}
