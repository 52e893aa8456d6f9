//! Taking reductions back that were a mistake: by timestamps (Eifel, RFC 3522 and RFC 4015) and by
//! D-SACK (RFC 2883, RFC 3708).

use midspan_units::Time;

use super::{Repair, Sender};
use crate::event::{Event, Proof};
use crate::is_before;
use midspan_cc::{Control, State};

/// What the present reduction would be taken back to, and whether it should be.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// First position not acknowledged when the reduction began; none if it cannot be taken back.
    marker: Option<u64>,
    /// Retransmissions since that have not been proved needless; none before the first.
    unproven: Option<u32>,
    /// The threshold before.
    prior_ssthresh: u32,
    /// The timestamp of the first retransmission of this epoch.
    first_retransmission: Option<u32>,
}

impl Undo {
    /// The peer got `segments` twice, up to `end`.
    pub(super) fn duplicate_arrived(&mut self, end: u64, segments: u32) {
        if self.marker.is_some_and(|marker| end > marker) {
            self.unproven = self.unproven.map(|count| count.saturating_sub(segments));
        }
    }

    /// A segment is sent again, with timestamp `stamp`.
    pub(super) fn retransmitted(&mut self, stamp: u32) {
        self.first_retransmission.get_or_insert(stamp);
        self.unproven = Some(self.unproven.unwrap_or(0) + 1);
    }

    /// Nothing that was sent again is in flight any more.
    pub(super) fn retransmissions_over(&mut self) {
        self.first_retransmission = None;
    }

    /// The reduction stands.
    pub(super) fn forget(&mut self) {
        self.marker = None;
    }

    /// The threshold is not to be restored.
    pub(super) fn forget_threshold(&mut self) {
        self.prior_ssthresh = 0;
    }

    pub(super) fn is_possible(&self) -> bool {
        self.marker.is_some()
    }

    /// Whether every retransmission was needless.
    fn all_proven(&self) -> bool {
        self.marker.is_some() && self.unproven == Some(0)
    }

    /// Whether an acknowledgement that echoes `echo` was sent for the original (RFC 3522, 3.2).
    fn was_delayed(&self, echo: u32) -> bool {
        echo != 0 && self.first_retransmission.is_some_and(|stamp| is_before(echo, stamp))
    }
}

impl Sender {
    /// A reduction begins: notes how to take it back.
    pub(super) fn prepare_undo(&mut self) {
        self.undo.marker = Some(self.una);
        let in_flight = self.board.retransmitted();
        self.undo.unproven = (in_flight > 0).then_some(in_flight);
    }

    /// Notes the threshold before a reduction.
    pub(super) fn note_threshold(&mut self) {
        let (cwnd, ssthresh) = (self.cwnd(), self.control.ssthresh());
        // A reduction below three quarters of the window has not been used up yet.
        self.undo.prior_ssthresh =
            if self.is_reducing() { ssthresh } else { ssthresh.max(cwnd / 2 + cwnd / 4) };
    }

    /// By what the reduction is proved a mistake, if it is.
    pub(super) fn proof(&self, echo: u32) -> Option<Proof> {
        match &self.undo {
            undo if !undo.is_possible() => None,
            undo if undo.all_proven() => Some(Proof::Dsack),
            undo => undo.was_delayed(echo).then_some(Proof::Timestamps),
        }
    }

    /// Takes the reduction back, and goes on in `next`; with `forgive`, what was held lost is in
    /// flight again.
    fn take_back(&mut self, now: Time, by: Proof, forgive: bool, next: State) {
        self.tell(now, || Event::Spurious { by, forgiven: forgive });
        if forgive {
            self.board.forgive();
        }
        if self.undo.prior_ssthresh > 0 {
            let connection = self.connection(now);
            let cwnd = self.cwnd();
            self.state = next;
            let restored = self.control.on_undo(&connection, next);
            self.control.set_cwnd(restored.max(cwnd));
            if self.undo.prior_ssthresh > self.control.ssthresh() {
                self.control.set_ssthresh(self.undo.prior_ssthresh);
                self.cwr_due = false;
            }
        }
        self.enter(now, next);
        self.cwnd_validation.since = now;
        self.undo.marker = None;
        self.rack.advanced = true;
    }

    /// By D-SACKs alone.
    pub(super) fn undo_by_dsack(&mut self, now: Time) -> bool {
        let undone = self.undo.all_proven();
        if undone {
            self.rack.recovery_over(true);
            self.take_back(now, Proof::Dsack, false, self.calm_state());
        }
        undone
    }

    /// All of the recovery is acknowledged: it is over, and taken back if it was a mistake.
    pub(super) fn undo_at_end(&mut self, now: Time, echo: u32) {
        match self.proof(echo) {
            Some(proof) => self.take_back(now, proof, false, State::Open),
            None => self.rack.recovery_over(false),
        }
    }

    /// Part of the recovery is acknowledged, by the delayed original. Whether that is so.
    pub(super) fn undo_in_part(&mut self, now: Time, echo: u32, prior_una: u64) -> bool {
        if !self.undo.is_possible() || !self.undo.was_delayed(echo) {
            return false;
        }
        self.note_reordering(prior_una);
        if self.board.retransmitted() > 0 {
            // Their duplicates are still to come, or the next original: until then nothing else is sent again.
            self.repair = Repair::Waits;
            return true;
        }
        self.undo.retransmissions_over();
        self.take_back(now, Proof::Timestamps, true, self.calm_state());
        self.recovery_point = self.nxt;
        true
    }

    /// After a timeout.
    pub(super) fn undo_timeout(&mut self, now: Time, echo: u32, proved_by_frto: bool) -> bool {
        let proof = if proved_by_frto { Some(Proof::Frto) } else { self.proof(echo) };
        if let Some(proof) = proof {
            self.take_back(now, proof, true, State::Open);
            self.timeouts = 0;
        }
        proof.is_some()
    }

    /// Nothing more is reduced, or not yet: Open or Disorder.
    pub(super) fn keep_open(&mut self, now: Time) {
        let state = self.calm_state();
        if self.state != state {
            self.enter(now, state);
            self.recovery_point = self.nxt;
        }
    }

    /// Open or Disorder, by whether something is still out of order.
    fn calm_state(&self) -> State {
        let disorder =
            self.board.sacked() + self.board.lost() > 0 || self.undo.first_retransmission.is_some();
        if disorder { State::Disorder } else { State::Open }
    }

    /// The reduction is over: what follows is `next`.
    pub(super) fn end_reduction(&mut self, now: Time, next: State) {
        let ssthresh = self.control.ssthresh();
        if !self.owns_rate()
            && ssthresh < Control::SSTHRESH_INFINITE
            && (self.state == State::Cwr || self.undo.is_possible())
        {
            self.control.set_cwnd(ssthresh);
            self.cwnd_validation.since = now;
        }
        self.state = next;
        let connection = self.connection(now);
        self.control.on_reduced(&connection, next);
    }
}
