//! Whether to let others run before what has come is seen to.

use std::time::Duration;

/// Events of a round, at most, before which others may go first.
const FEW: usize = 8;
/// Events of a round on average, at least, for several flows to be at work at a time.
const SEVERAL: usize = 3;
/// Bytes of a round that are so many that it is not their time to the first byte that counts.
const MUCH: u64 = 64 * 1024;
/// How long others may take for it to be worth while: who takes longer has other work than ours.
const SHORT: Duration = Duration::from_micros(300);
/// Rounds that are left out at most, after letting others go first was in vain so often.
const MOST_LEFT_OUT: u32 = 1024;
/// Rounds over which events are averaged.
const ROUNDS: usize = 8;

/// Learns whether it pays to let others that are ready to run go first. Where they are the ends of our own
/// flows they soon have more for us to do, which together takes less than one by one. Where they are
/// strangers, or nobody, it costs time: then it is tried less and less often. A lone flow that carries
/// little never waits for anybody.
#[derive(Debug)]
pub(super) struct Courtesy {
    /// Events of a round, on average, times [`ROUNDS`].
    events: usize,
    /// Bytes that had come by the last round.
    bytes: u64,
    /// Rounds to go until the next try.
    wait: u32,
    /// Rounds that were left out before the last try.
    left_out: u32,
}

impl Courtesy {
    pub(super) const fn new() -> Courtesy {
        Courtesy { events: 0, bytes: 0, wait: 0, left_out: 0 }
    }

    /// Whether to let others go first in a round that has so many events, when so many bytes have come in
    /// all rounds before.
    pub(super) fn is_due(&mut self, events: usize, bytes: u64) -> bool {
        let much = bytes - std::mem::replace(&mut self.bytes, bytes) >= MUCH;
        let several = self.events >= SEVERAL * ROUNDS;
        if !(1..=FEW).contains(&events) || !(much || several) {
            return false;
        }
        let due = self.wait == 0;
        self.wait = self.wait.saturating_sub(1);
        due
    }

    /// They went first, took so long, and so many events more have come.
    pub(super) fn learn(&mut self, more: usize, took: Duration) {
        let pays = more > 0 && took < SHORT;
        self.left_out = if pays { 0 } else { (self.left_out * 2 + 1).min(MOST_LEFT_OUT) };
        self.wait = self.left_out;
    }

    /// So many events a round has had.
    pub(super) fn round(&mut self, events: usize) {
        self.events = self.events - self.events / ROUNDS + events;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(3);

    /// One that has several flows at work.
    fn at_work() -> Courtesy {
        let mut courtesy = Courtesy::new();
        (0..100).for_each(|_| courtesy.round(4));
        courtesy
    }

    #[test]
    fn a_lone_flow_waits_only_if_it_carries_much() {
        let mut courtesy = Courtesy::new();
        for _ in 0..100 {
            assert!(!courtesy.is_due(1, 0));
            courtesy.round(1);
        }
        assert!(courtesy.is_due(1, MUCH));
        courtesy.learn(1, SHORT / 2);
        assert!(!courtesy.is_due(1, MUCH + 1000));
        assert!(courtesy.is_due(1, 2 * MUCH + 1000));
    }

    #[test]
    fn as_long_as_it_pays_others_go_first() {
        let mut courtesy = at_work();
        assert!(!courtesy.is_due(0, 0) && !courtesy.is_due(FEW + 1, 0));
        for _ in 0..100 {
            assert!(courtesy.is_due(1, 0));
            courtesy.learn(1, SHORT / 2);
        }
    }

    #[test]
    fn what_is_in_vain_is_tried_less_and_less_often() {
        for (more, took) in [(0, SHORT / 2), (1, LONG)] {
            let mut courtesy = at_work();
            let mut tries = 0;
            for _ in 0..10_000 {
                if courtesy.is_due(1, 0) {
                    tries += 1;
                    courtesy.learn(more, took);
                }
            }
            assert!((10..30).contains(&tries), "{tries}");
            // But it is tried again, and found to pay.
            assert!((0..=MOST_LEFT_OUT).any(|_| courtesy.is_due(FEW, 0)));
            courtesy.learn(3, SHORT / 2);
            assert!(courtesy.is_due(1, 0));
        }
    }
}
