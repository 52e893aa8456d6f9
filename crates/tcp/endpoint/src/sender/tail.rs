//! Tail loss probes (RFC 8985, section 7).

use midspan_units::{Span, Time};

use super::ack::AckEffects;
use super::{Forced, Sender};
use crate::event::Timer;
use midspan_cc::State;

/// A probe that was sent.
#[derive(Debug, Default)]
pub(super) struct TailProbe {
    /// Where sending stood then; none if no probe is out.
    end: Option<u64>,
    /// It repeated the last segment, in place of new data.
    repeated: bool,
}

impl TailProbe {
    /// Whether what the peer got twice, up to `end`, is the probe.
    pub(super) fn was_repeated(&self, end: u64) -> bool {
        self.repeated && self.end == Some(end)
    }
}

impl Sender {
    /// Waits to probe, if a probe may be sent (RFC 8985, 7.2). `progress`: an acknowledgement has
    /// just started the retransmission timer anew.
    pub(super) fn arm_tail_probe(&mut self, now: Time, progress: bool) -> bool {
        let Some(first) = self.board.first() else { return false };
        let open_or_cwr = matches!(self.state, State::Open | State::Cwr);
        if !self.config.tcp_early_retrans || !self.config.tcp_sack || !open_or_cwr {
            return false;
        }
        let srtt = self.rtt.smoothed();
        let mut wait = if srtt == Span::ZERO { Span::from_secs(1) } else { srtt * 2 };
        // A lone segment may wait for a delayed acknowledgement.
        wait += if self.board.len() == 1 { self.config.rto_min } else { crate::LEAST_TIMER };
        let rto = self.rtt.rto();
        let timeout = if progress { rto } else { (first.at + rto).since(now) };
        let wait = if timeout > Span::ZERO { wait.min(timeout) } else { wait };
        self.arm(Timer::TailProbe, now, wait);
        true
    }

    /// Time to probe (RFC 8985, 7.3).
    pub(super) fn on_tail_timer(&mut self, now: Time) {
        // One at a time.
        if self.tail.end.is_none() {
            self.forced = Some(Forced::TailProbe);
        }
        self.arm_retransmission_after_probe(now);
    }

    fn arm_retransmission_after_probe(&mut self, now: Time) {
        self.arm(Timer::Retransmission, now, self.rtt.rto());
    }

    /// The probe is sent: new data, or a repetition.
    pub(super) fn note_probe(&mut self, repeated: bool) {
        self.tail = TailProbe { end: Some(self.nxt), repeated };
    }

    /// Whether an acknowledgement ends the probing, and tells of a loss that it repaired
    /// (RFC 8985, 7.4.2).
    pub(super) fn end_tail_probe(
        &mut self,
        now: Time,
        ack: u64,
        effects: &AckEffects,
        with_data: bool,
    ) {
        let Some(end) = self.tail.end.filter(|end| ack >= *end) else { return };
        if !self.tail.repeated || effects.dsack_of_probe {
            // New data was acknowledged, or original and probe both arrived.
            self.tail = TailProbe::default();
        } else if ack > end {
            // Only one of the two arrived: the original was lost.
            self.reduce_at_once(now);
        } else if !effects.advanced && !effects.sacked && !with_data {
            // A duplicate acknowledgement: both arrived.
            self.tail = TailProbe::default();
        }
    }
}
