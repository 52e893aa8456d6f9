//! Reducing the window and repairing losses, from one phase to the next (RFC 5681, RFC 6675,
//! RFC 8985, RFC 9937).

use midspan_units::Time;

use super::ack::{AckEffects, Acknowledgement};
use super::prr::Prr;
use super::{Sender, tail};
use crate::event::LossDetection;
use midspan_cc::State;

impl Sender {
    /// Something is or was amiss: moves between the phases, and finds what is lost.
    pub(super) fn loss_recovery(
        &mut self,
        now: Time,
        ack: &Acknowledgement<'_>,
        prior_una: u64,
        effects: &mut AckEffects,
        duplicate: bool,
    ) {
        if effects.ece {
            self.undo.forget_threshold();
        }
        if self.state == State::Open {
            self.undo.retransmissions_over();
        } else if self.una >= self.recovery_point {
            match self.state {
                // Something above the point must be acknowledged, or the window of the next
                // reduction would be judged by this one.
                State::Cwr if self.una > self.recovery_point => {
                    self.end_reduction(now, State::Open);
                }
                State::Recovery => {
                    self.undo_at_end(now, ack.echo);
                    self.end_reduction(now, State::Open);
                }
                _ => {}
            }
        }
        match self.state {
            State::Recovery => {
                if duplicate && !self.config.tcp_sack {
                    self.count_duplicate();
                }
                if effects.advanced && self.undo_in_part(now, ack.echo, prior_una) {
                    return;
                }
                if self.undo_by_dsack(now) {
                    self.keep_open(now);
                }
                self.find_lost(now, effects.advanced);
                if self.state == State::Recovery || self.board.lost() == 0 {
                    return;
                }
            }
            State::Loss => {
                self.repair_after_timeout(now, ack, effects, duplicate);
                let ever_lost = self.board.ever_lost();
                self.find_lost(now, effects.advanced);
                effects.retransmission_lost = self.board.ever_lost() > ever_lost;
                if self.state != State::Open {
                    return;
                }
                if self.board.lost() == 0 {
                    self.try_to_open(now, effects);
                    return;
                }
            }
            State::Open | State::Disorder | State::Cwr => {
                if !self.config.tcp_sack {
                    if effects.advanced {
                        self.board.forget_guesses();
                    } else if duplicate {
                        self.count_duplicate();
                    }
                }
                if self.is_open_or_disorder() {
                    self.undo_by_dsack(now);
                }
                self.find_lost(now, effects.advanced);
                if self.board.lost() == 0 {
                    self.try_to_open(now, effects);
                    return;
                }
            }
        }
        self.enter_recovery(now, effects.ece);
    }

    fn find_lost(&mut self, now: Time, advanced: bool) {
        if self.config.tcp_sack {
            self.detect_loss_and_wait(now);
        } else {
            self.detect_loss_by_duplicates(advanced);
            self.tell_lost(now, LossDetection::DuplicateAcks);
        }
    }

    fn try_to_open(&mut self, now: Time, effects: &AckEffects) {
        if self.board.retransmitted() == 0 {
            self.undo.retransmissions_over();
        }
        if effects.ece {
            self.enter_cwr(now);
        }
        if self.state != State::Cwr {
            self.keep_open(now);
        }
    }

    /// Loss was detected by acknowledgements.
    pub(super) fn enter_recovery(&mut self, now: Time, ece: bool) {
        self.undo.forget_threshold();
        self.prepare_undo();
        self.recover = self.nxt;
        if self.is_reducing() {
            self.enter(now, State::Recovery);
            self.recovery_point = self.nxt;
            return;
        }
        if !ece {
            self.note_threshold();
        }
        self.begin_reduction(now, State::Recovery);
    }

    /// The peer says that the network has marked a packet (RFC 3168, 6.1.2).
    fn enter_cwr(&mut self, now: Time) {
        self.undo.forget_threshold();
        if self.is_open_or_disorder() {
            self.undo.forget();
            self.begin_reduction(now, State::Cwr);
        }
    }

    /// A probe has shown that the tail was lost, and repaired it (RFC 8985, 7.4.2).
    pub(super) fn reduce_at_once(&mut self, now: Time) {
        self.begin_reduction(now, State::Cwr);
        self.end_reduction(now, State::Open);
        self.keep_open(now);
    }

    fn begin_reduction(&mut self, now: Time, state: State) {
        self.recovery_point = self.nxt;
        self.tail = tail::TailProbe::default();
        self.prr = Prr::start(self.cwnd());
        self.state = state;
        let connection = self.connection(now);
        self.control.on_reduction(&connection, state);
        self.cwr_due = self.ecn;
    }

    /// Proportional rate reduction upon an acknowledgement.
    pub(super) fn reduce_window(&mut self, acked: u32, lost: u32, advanced: bool) {
        if acked == 0 {
            return;
        }
        let in_flight = self.board.in_flight();
        let threshold = self.control.ssthresh();
        let safe = advanced && lost == 0;
        let count = self.prr.send_count(threshold, in_flight, acked, safe);
        self.control.set_cwnd(in_flight + count);
    }
}
