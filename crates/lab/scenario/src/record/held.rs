use std::collections::VecDeque;

use midspan_path::Times;
use midspan_units::Span;

use super::DelayRecord;

/// Follows how long a proxy holds the data that it passes on: from when its kernel has it in order on one leg until
/// it goes out on the other for the first time. The buffers of both sockets and the proxy's own are in it.
#[derive(Debug, Clone, Default)]
pub struct HeldWatch {
    /// When so many bytes had been taken, of which the last ones have not been sent.
    waiting: VecDeque<(Span, u64)>,
    taken: u64,
    sent: u64,
    times: Times,
}

impl HeldWatch {
    /// How often to look, and so how exact the times are.
    pub const LOOK: Span = Span::from_millis(20);

    /// `at`, by a clock of the caller's, the proxy has taken so many bytes from those who send, and has sent so many on,
    /// each counted once, since their connections began. If there were some, the last that was sent counts.
    pub fn look(&mut self, at: Span, taken: u64, sent: u64) {
        if taken > self.taken {
            self.taken = taken;
            self.waiting.push_back((at, taken));
        }
        if sent <= self.sent {
            return;
        }
        self.sent = sent;
        while self.waiting.front().is_some_and(|&(_, taken)| taken < sent) {
            self.waiting.pop_front();
        }
        if let Some(&(since, _)) = self.waiting.front() {
            self.times.record(at.saturating_sub(since));
        }
    }

    /// Forgets what has been sent so far.
    pub fn restart(&mut self) {
        self.times.reset();
    }

    /// Of what was sent; none of nothing.
    pub fn record(&self) -> Option<DelayRecord> {
        DelayRecord::of(&self.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(looks: &[(u64, u64, u64)]) -> HeldWatch {
        let mut watch = HeldWatch::default();
        for &(at, taken, sent) in looks {
            watch.look(Span::from_millis(at), taken, sent);
        }
        watch
    }

    #[test]
    fn what_went_last_came_with_the_first_that_had_as_much() {
        // At once, and after 20, 60 and 40 ms.
        let looks = [
            (0, 100, 100),
            (20, 300, 100),
            (40, 300, 150),
            (60, 400, 150),
            (80, 400, 300),
            (100, 500, 301),
        ];
        let held = watched(&looks).record().unwrap();
        for (seen, expected) in [(held.mean_us, 30_000.0), (held.max_us, 60_000.0)] {
            assert!((seen - expected).abs() < 0.02 * expected, "{held:?}");
        }
    }

    #[test]
    fn what_went_before_a_restart_does_not_count() {
        let mut watch = watched(&[(0, 100, 0), (500, 100, 50)]);
        watch.restart();
        assert_eq!(watch.record(), None);
        watch.look(Span::from_millis(1_000), 100, 100);
        assert!((watch.record().unwrap().p50_us - 1e6).abs() < 1e4);
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(watched(&[(0, 0, 0), (20, 100, 0)]).record(), None);
    }
}
