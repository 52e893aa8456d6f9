//! Retransmission timeouts (RFC 6298), and whether they were spurious (F-RTO, RFC 5682).

use midspan_units::{Span, Time};

use super::ack::{AckEffects, Acknowledgement};
use super::{Forced, Repair, Sender, prr::Prr, tail};
use crate::event::{LossDetection, Timer};
use midspan_cc::State;

impl Sender {
    /// Sets the one timer to `span` from now, by the clock that timers run by.
    pub(super) fn arm(&mut self, timer: Timer, now: Time, span: Span) {
        self.timer = Some((timer, crate::strikes(now, span)));
    }

    pub(super) fn disarm(&mut self) {
        if self.timer.is_some_and(|(timer, _)| timer != Timer::Persist) {
            self.timer = None;
        }
    }

    /// Waits for a timeout, counted from the first segment in flight if another timer was set.
    pub(super) fn arm_retransmission(&mut self, now: Time) {
        let Some(first) = self.board.first() else {
            self.disarm();
            return;
        };
        let other = self.timer.is_some_and(|(timer, _)| timer != Timer::Retransmission);
        let rto = self.rtt.rto();
        let from = if other { first.at } else { now };
        self.arm(Timer::Retransmission, now, (from + rto).since(now));
    }

    /// Something was acknowledged: the timer starts anew (RFC 6298, 5.3).
    pub(super) fn arm_on_progress(&mut self, now: Time) {
        if self.board.is_empty() {
            self.disarm();
        } else if self.rack.waits {
            // For what this acknowledgement has left within the reordering window. What an earlier one did waits no more (Linux).
        } else if !self.arm_tail_probe(now, true) {
            self.arm_retransmission(now);
        }
    }

    /// The timer has struck, or pacing lets the next burst go. Answers false if the peer has been
    /// silent for too long.
    pub(crate) fn on_timer(&mut self, now: Time) -> bool {
        self.pacer.wake(now);
        let Some((timer, _)) = self.timer.filter(|(_, at)| *at <= now) else { return true };
        self.timer = None;
        self.repair = Repair::First;
        self.tell_expired(now, timer);
        match timer {
            Timer::Retransmission => {
                let alive = self.time_out(now);
                self.tell_congestion(now);
                return alive;
            }
            Timer::TailProbe => self.on_tail_timer(now),
            Timer::Reordering => self.on_reordering_timer(now),
            Timer::Persist => {
                if self.timeouts > self.config.tcp_retries2 {
                    return false;
                }
                self.timeouts += 1;
                self.rtt.back_off();
                self.forced = Some(Forced::WindowProbe);
                self.arm(Timer::Persist, now, self.rtt.rto());
            }
        }
        self.tell_congestion(now);
        true
    }

    /// RFC 6298, section 5; RFC 8985, 6.3 for what is lost.
    fn time_out(&mut self, now: Time) -> bool {
        if self.board.is_empty() {
            return true;
        }
        self.timeouts += 1;
        self.totals.timeouts += 1;
        if self.timeouts > self.config.tcp_retries2 {
            return false;
        }
        let open_or_disorder = self.is_open_or_disorder();
        let first_of_epoch = self.is_open_or_disorder()
            || self.recovery_point <= self.una
            || (self.state == State::Loss && self.timeouts == 1);
        let new_recovery = self.is_open_or_disorder() || self.state == State::Cwr;
        let sacked = self.board.sacked();
        self.hold_lost_at_timeout(now);
        if first_of_epoch {
            self.note_threshold();
            self.prr = Prr::start(self.cwnd());
            self.state = State::Loss;
            let connection = self.connection(now);
            self.control.on_reduction(&connection, State::Loss);
            self.prepare_undo();
        }
        // Timeouts in disorder mean that the metric of reordering was too high.
        if open_or_disorder && sacked >= self.config.tcp_reordering {
            self.reordering = self.reordering.min(self.config.tcp_reordering);
        }
        self.control.set_cwnd(self.board.in_flight() + 1);
        self.cwnd_validation.since = now;
        self.tail = tail::TailProbe::default();
        self.enter(now, State::Loss);
        self.recovery_point = self.nxt;
        self.recover = self.nxt;
        self.cwr_due = self.ecn;
        // Step 1 of F-RTO: not when a recovery was under way, where losses are certain.
        self.frto = self.config.tcp_frto && (new_recovery || self.timeouts > 1);
        self.rtt.back_off();
        self.arm(Timer::Retransmission, now, self.rtt.rto());
        true
    }

    fn hold_lost_at_timeout(&mut self, now: Time) {
        let patience = self.rack_patience();
        self.board.forget_guesses();
        self.board.mark_first_lost();
        self.board.judge(u64::MAX, |segment| now.since(segment.at) >= patience);
        self.tell_lost(now, LossDetection::Timeout);
    }

    /// An acknowledgement after a timeout.
    pub(super) fn repair_after_timeout(
        &mut self,
        now: Time,
        ack: &Acknowledgement<'_>,
        effects: &AckEffects,
        duplicate: bool,
    ) {
        let recovered = self.una >= self.recovery_point;
        if (effects.advanced || effects.original_delivered)
            && self.undo_timeout(now, ack.echo, false)
        {
            return;
        }
        if self.frto {
            // RFC 5682, 3.1, step 3: something that was sent once was delivered.
            if effects.original_delivered && self.undo_timeout(now, ack.echo, true) {
                return;
            }
            if self.nxt > self.recovery_point {
                // The new data of step 2b is being answered.
                if effects.sacked || duplicate {
                    self.frto = false;
                }
            } else if effects.advanced && !recovered {
                // Step 2b: new data instead of more retransmissions.
                self.recovery_point = self.nxt;
                if self.has_new_data() {
                    self.repair = Repair::AfterNewData;
                    return;
                }
                self.frto = false;
            }
        }
        if !self.config.tcp_sack {
            if effects.advanced {
                self.board.forget_guesses();
            } else if duplicate && self.nxt > self.recovery_point {
                self.count_duplicate();
            }
        }
        if recovered {
            self.undo_at_end(now, ack.echo);
            self.enter(now, State::Open);
        }
    }
}
