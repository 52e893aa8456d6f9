use midspan_units::{Rate, Span};

use crate::Trace;

/// A trace cut into windows, for whoever tells of the window that passed or, as the `natcp` paper's
/// authors did it, of the one that comes.
#[derive(Debug, Clone)]
pub struct TraceWindows {
    trace: Trace,
    window: Span,
}

/// What a chance to send carries, of IP: a 1500-byte packet.
const CHANCE: u64 = 1500;

impl TraceWindows {
    /// In windows of `window`, at least a millisecond.
    pub fn new(trace: Trace, window: Span) -> TraceWindows {
        TraceWindows { trace, window: window.max(Span::from_millis(1)) }
    }

    /// How long a window is.
    pub fn window(&self) -> Span {
        self.window
    }

    /// What the link could have carried in window `index`, counted from 0; the trace starts over
    /// when it ends.
    pub fn rate(&self, index: u64) -> Rate {
        let (from, until) = (self.before(index), self.before(index.saturating_add(1)));
        Rate::of((until - from).saturating_mul(CHANCE), self.window)
    }

    /// Chances before window `index`.
    fn before(&self, index: u64) -> u64 {
        let period = self.trace.duration().as_nanos();
        let at = index.saturating_mul(self.window.as_nanos());
        let (rounds, into) = (at / period, at % period);
        let chances = self.trace.chances();
        // A chance at the very end of the trace is one at the start of the next round.
        let in_round = chances.partition_point(|chance| u64::from(*chance) * 1_000_000 < into);
        rounds * chances.len() as u64 + in_round as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chance_is_in_one_window() {
        let trace = Trace::parse(b"0\n10\n10\n49\n50\n120\n").unwrap();
        let windows = TraceWindows::new(trace, Span::from_millis(50));
        let chances = |index| windows.rate(index).as_bps() / (1500 * 8 * 20);
        // The trace is 120 ms long: the chance at 120 ms is the end of the third window, which also
        // has those at 0, 10 and 10 of the next round.
        let counted: Vec<u64> = (0..12).map(chances).collect();
        assert_eq!(counted[..3], [4, 1, 4]);
        assert_eq!(counted.iter().sum::<u64>(), 6 * 5);
    }
}
