//! Finding losses without SACK, by duplicate acknowledgements: NewReno (RFC 6582).

use super::Sender;
use midspan_cc::State;

impl Sender {
    /// A duplicate acknowledgement: a segment after the first has left the network (RFC 5681, 3.2).
    pub(super) fn count_duplicate(&mut self) {
        if self.board.guess_delivered() {
            self.deliveries.count(1);
        }
    }

    /// So many segments were acknowledged cumulatively: the first filled the hole, the others may have
    /// been counted as delivered when their duplicate acknowledgements came.
    pub(super) fn confirm_guesses(&mut self, acked: u32) {
        let counted = self.board.release_guesses(acked.saturating_sub(1));
        self.deliveries.count_less(counted);
    }

    /// Holds the first segment lost after three duplicate acknowledgements, unless they may stem from
    /// what an earlier repair sent needlessly (RFC 6582, 3.2, step 2); and in a repair after each
    /// partial acknowledgement (step 3).
    pub(super) fn detect_loss_by_duplicates(&mut self, advanced: bool) {
        let lost = match self.state {
            State::Recovery => advanced,
            State::Loss => false,
            State::Open | State::Disorder | State::Cwr => {
                self.board.sacked() >= self.reordering && self.una > self.recover
            }
        };
        if lost {
            self.board.mark_first_lost();
        }
    }
}
