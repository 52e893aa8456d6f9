//! When the next burst may go, and how long it is.

use midspan_units::{Span, Time};

use super::Sender;
use midspan_cc::Control;

/// Greatest burst, bytes: what segmentation offload takes.
pub(super) const GSO_MAX_SIZE: u64 = 65_536;

/// Bursts of back-to-back segments, and the pauses between them.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    /// When the next burst may start.
    next: Time,
    /// Segments that the present burst may still have.
    left: u32,
    /// Number of the present burst.
    number: u64,
    /// Sending waits for `next`.
    waiting: bool,
}

impl Pacer {
    /// When to come again, if sending waits.
    pub(super) fn wakeup(&self) -> Option<Time> {
        self.waiting.then_some(self.next)
    }

    /// Bursts so far.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn wake(&mut self, now: Time) {
        self.waiting &= now < self.next;
    }

    /// Whether what goes now begins a burst.
    pub(super) fn is_between_bursts(&self) -> bool {
        self.left == 0
    }

    /// The burst is over, however long it was to be.
    pub(super) fn end_burst(&mut self) {
        self.left = 0;
    }
}

impl Sender {
    /// Bytes per second that sending must not exceed; zero for no limit.
    fn pace(&self) -> u64 {
        let limit = self.config.so_max_pacing_rate.map_or(0, |rate| rate.as_bps() / 8);
        let control = self.control.pacing_rate().map_or(0, |rate| rate.as_bps() / 8);
        match (control, limit) {
            (0, rate) | (rate, 0) => rate,
            (rate, limit) => rate.min(limit),
        }
    }

    /// Whether a segment may go now. The first ten of a connection are not paced.
    pub(super) fn may_burst(&mut self, now: Time) -> bool {
        if self.pacer.left == 0 && self.pacer.next > now {
            self.pacer.waiting = true;
            return false;
        }
        true
    }

    /// A segment of so many bytes of `payload` goes. Answers the number of its burst.
    pub(super) fn burst(&mut self, now: Time, payload: u32) -> u64 {
        if self.pacer.left == 0 {
            self.pacer.left = self.burst_length();
            self.pacer.number += 1;
        }
        self.pacer.left -= 1;
        let rate = self.pace();
        if rate > 0 && self.totals.data_segments >= u64::from(self.config.initcwnd) {
            let (headers, full) =
                (u64::from(self.config.paced_headers), u64::from(self.config.mss));
            let size = (u64::from(payload) + headers) * full;
            let nanos = size * 1_000_000_000 / ((full + headers) * rate);
            self.pacer.next = self.pacer.next.max(now) + Span::from_nanos(nanos);
        }
        self.pacer.number
    }

    /// Segments that go back to back: a millisecond's worth at the pacing rate, more on very short
    /// paths (`tcp_tso_rtt_log`).
    pub(super) fn burst_length(&self) -> u32 {
        let mss = u64::from(self.config.mss);
        let rate = match self.pace() {
            0 => self.nominal_rate(),
            rate => rate,
        };
        let distance =
            self.rtt.min().map_or(0, |rtt| rtt.as_micros() >> self.config.tcp_tso_rtt_log);
        let near = if distance < 32 { GSO_MAX_SIZE >> distance } else { 0 };
        let bytes = (rate / 1024 + near).min(GSO_MAX_SIZE);
        ((bytes / mss) as u32).max(self.control.burst().unwrap_or(self.config.tcp_min_tso_segs))
    }

    /// What Linux holds for the flow's rate where the congestion control names none: window over
    /// round-trip time, and more for growth.
    fn nominal_rate(&self) -> u64 {
        let srtt = self.rtt.smoothed().as_micros().max(1);
        let (cwnd, ssthresh) = (self.cwnd(), self.control.ssthresh());
        let starting = ssthresh == Control::SSTHRESH_INFINITE || cwnd < ssthresh / 2;
        let ratio = if starting {
            self.config.tcp_pacing_ss_ratio
        } else {
            self.config.tcp_pacing_ca_ratio
        };
        let window = u64::from(cwnd.max(self.board.len())) * u64::from(self.config.mss);
        window * u64::from(ratio) * 10_000 / srtt
    }
}
