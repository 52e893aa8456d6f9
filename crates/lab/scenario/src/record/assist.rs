//! What NetAssist's feedback did in a run, and what became of the flows without it.

use midspan_path::Times;
use midspan_units::Span;
use serde::{Deserialize, Serialize};

use super::DelayRecord;
use crate::CutTimes;

/// NetAssist's feedback in a run, from its first datagram on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FeedbackRecord {
    /// Readings of the base station.
    pub readings: u64,
    /// Of these, implausible ones, which were clipped.
    pub clipped: u64,
    /// Readings that the daemon did not listen to, because it had cut the base station off.
    pub ignored: u64,
    /// Datagrams that the sender's agent used.
    pub used: u64,
    /// Datagrams that were lost or came too late.
    pub missing: u64,
}

/// What became of the flows while the base station was silent, and afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CutRecord {
    /// When it began, seconds since the path began.
    pub from_s: f64,
    /// Application bytes per second that came in over it, times eight, all flows together. Bit/s.
    pub goodput_bps: f64,
    /// The longest time over it in which nothing came in, seconds, to a hundredth.
    pub silence_s: f64,
    /// The queueing delay of the data on the access link over the second before it; none if no packet
    /// came through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<DelayRecord>,
    /// The same over its last second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<DelayRecord>,
    /// The same over the second that begins three periods after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<DelayRecord>,
}

impl CutRecord {
    /// The 95th percentile of the queueing delay before it, in seconds.
    pub fn before95_s(&self) -> Option<f64> {
        Some(self.before?.p95_us / 1e6)
    }

    /// The 95th percentile of the queueing delay over its last second, in seconds.
    pub fn during95_s(&self) -> Option<f64> {
        Some(self.during?.p95_us / 1e6)
    }

    /// The 95th percentile of the queueing delay after it, in seconds.
    pub fn after95_s(&self) -> Option<f64> {
        Some(self.after?.p95_us / 1e6)
    }
}

/// Follows the flows through a cut: the longest silence, and what came in.
#[derive(Debug, Clone, Copy)]
pub struct CutWatch {
    first: u64,
    last: u64,
    since: Span,
    silence: Span,
}

impl CutWatch {
    /// How often to look.
    pub const LOOK: Span = Span::from_millis(10);

    /// At the beginning, `at`, since the path began, when so many bytes have come in.
    pub fn start(at: Span, received: u64) -> CutWatch {
        CutWatch { first: received, last: received, since: at, silence: Span::ZERO }
    }

    /// Another look.
    pub fn look(&mut self, at: Span, received: u64) {
        self.silence = self.silence.max(at.saturating_sub(self.since));
        if received > self.last {
            (self.last, self.since) = (received, at);
        }
    }

    /// At the end, which has been looked at, with the delays over the time before the cut, over its
    /// last second, and after it.
    pub fn record(
        &self,
        cut: &CutTimes,
        before: &Times,
        during: &Times,
        after: &Times,
    ) -> CutRecord {
        let length = cut.end.saturating_sub(cut.start);
        CutRecord {
            from_s: cut.start.as_secs_f64(),
            goodput_bps: (self.last - self.first) as f64 * 8.0 / length.as_secs_f64(),
            silence_s: self.silence.as_secs_f64(),
            before: DelayRecord::of(before),
            during: DelayRecord::of(during),
            after: DelayRecord::of(after),
        }
    }
}
