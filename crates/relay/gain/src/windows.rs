use serde::{Deserialize, Serialize};

use crate::mixture::Mixture;
use crate::score;
use crate::sequence::{Interval, Sequence};

/// How many windows there are, from short to long.
pub(crate) const WINDOWS: usize = 6;

/// The weight of scores after which a window is begun anew. A transfer whose arm was drawn with one half weighs 1, with
/// 5 % 0.1. Even the longest ends, so that what was long ago weighs on nothing.
const LENGTHS: [f64; WINDOWS] = [300.0, 800.0, 2_000.0, 5_000.0, 20_000.0, 256_000.0];

/// The least weight of scores of which the mean says something.
const FEW: f64 = 25.0;

/// The least weight of scores of which the mean may have windows begun anew.
const SOME: f64 = 50.0;

/// The standard errors between the means of a short and the longest window that do so.
const LIKELY: f64 = 4.0;

/// Which part of the error falls to the windows of each length. Half is for the longest, which decides of small
/// effects.
const SHARES: [f64; WINDOWS] = [0.1, 0.1, 0.1, 0.1, 0.1, 0.5];

/// One [`Sequence`] and the part of the error that it may spend.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) sequence: Sequence,
    /// Which one this is of its length, from one.
    ordinal: u32,
    /// Part of the error in (0, 1).
    share: f64,
}

impl Window {
    /// The `ordinal`-th of many to which `share` of the error falls together: the parts 1/2, 1/6, 1/12 and so on of it
    /// sum to it.
    pub(crate) fn new(ordinal: u32, share: f64) -> Self {
        let ordinal = ordinal.max(1);
        let nth = f64::from(ordinal);
        Window { sequence: Sequence::default(), ordinal, share: share / (nth * (nth + 1.0)) }
    }

    /// The next of them.
    pub(crate) fn next(&self, share: f64) -> Self {
        Window::new(self.ordinal.saturating_add(1), share)
    }

    /// In natural units, no wider than gains can be.
    pub(crate) fn interval(&self, mixture: &Mixture, error: f64) -> Interval {
        let scaled = self.sequence.interval(mixture, error * self.share);
        let most = score::MOST_GAIN;
        Interval {
            lower: (scaled.lower * score::SCALE).clamp(-most, most),
            upper: (scaled.upper * score::SCALE).clamp(-most, most),
        }
    }

    pub(crate) fn is_sane(&self) -> bool {
        self.sequence.is_sane() && self.ordinal > 0 && 0.0 < self.share && self.share < 1.0
    }
}

/// The sequences of one unit, over windows of several lengths that follow each other without overlap.
///
/// A gain that changes is caught by the short ones, a small one by the long ones. Each window that is ever begun spends
/// a part of the error, fixed before it begins and all summing to the whole, so that with that error all intervals of
/// all windows hold at all times, for ever: each covers the mean gain of its own window. As long as they have a gain in
/// common it is looked for there.
///
/// Where they have none the gain has changed; where means are far apart it is likely to have. Then those begun before
/// the youngest that disagrees with them are replaced by a copy of it: with its scores, its beginning and its part of
/// the error, so that nothing is spent anew. What is held is held of fewer windows then, so that nothing hangs on how
/// likely a change was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct AdaptiveWindows {
    windows: [Window; WINDOWS],
    /// The highest ordinal that was begun, by length: a copy has that of another length.
    begun: [u32; WINDOWS],
}

impl Default for AdaptiveWindows {
    fn default() -> Self {
        AdaptiveWindows { windows: SHARES.map(|share| Window::new(1, share)), begun: [1; WINDOWS] }
    }
}

impl AdaptiveWindows {
    /// Begins all windows anew.
    pub(crate) fn restart(&mut self) {
        (0..WINDOWS).for_each(|at| self.begin(at));
    }

    fn begin(&mut self, at: usize) {
        self.begun[at] = self.begun[at].saturating_add(1);
        self.windows[at] = Window::new(self.begun[at], SHARES[at]);
    }

    /// Takes one more score: `value` in units of [`score::SCALE`] and times `weight`.
    pub(crate) fn add(&mut self, value: f64, weight: f64) {
        for (at, length) in LENGTHS.into_iter().enumerate() {
            if self.windows[at].sequence.weight() >= length {
                self.begin(at);
            }
            let taken = self.windows[at].sequence.add(value, weight, score::BOUND);
            debug_assert!(taken.is_ok(), "{taken:?}");
        }
    }

    /// Where the gain is, and whether it was found to have changed.
    pub(crate) fn settle(&mut self, mixture: &Mixture, error: f64) -> (Interval, bool) {
        let mut has_changed = false;
        // Each change leaves fewer windows that are not copies.
        loop {
            let intervals = self.windows.each_ref().map(|window| window.interval(mixture, error));
            let Some(recent) = self.youngest_that_disagrees(&intervals) else {
                // Intervals of which each two meet all meet.
                let both = |a: Interval, b: Interval| a.and(b).unwrap_or(a);
                return (intervals.into_iter().fold(intervals[0], both), has_changed);
            };
            let window = self.windows[recent];
            self.older_than(window).for_each(|old| *old = window);
            has_changed = true;
        }
    }

    /// A window that disagrees with one that began before it, for certain or likely. Those of the longer lengths began
    /// earlier but for those begun anew lately.
    fn youngest_that_disagrees(&self, intervals: &[Interval; WINDOWS]) -> Option<usize> {
        let weight = |at: usize| self.windows[at].sequence.weight();
        let disagrees = |&young: &usize| {
            let certainly = |old: usize| {
                weight(old) > weight(young) && intervals[old].and(intervals[young]).is_none()
            };
            (0..WINDOWS).any(certainly) || self.seems_other(young)
        };
        (0..WINDOWS).filter(disagrees).min_by(|&a, &b| weight(a).total_cmp(&weight(b)))
    }

    /// Those windows that began before this one.
    fn older_than(&mut self, young: Window) -> impl Iterator<Item = &mut Window> {
        let is_older = move |old: &&mut Window| old.sequence.weight() > young.sequence.weight();
        self.windows.iter_mut().filter(is_older)
    }

    /// Whether a window's mean is so far from that of the longest that a change is likely.
    fn seems_other(&self, young: usize) -> bool {
        let (recent, long) = (&self.windows[young].sequence, self.longest());
        let distance = (recent.mean() - long.mean()).abs() * recent.weight();
        let is_shorter = recent.weight() < long.weight();
        is_shorter && recent.weight() >= SOME && distance > LIKELY * recent.squares().sqrt()
    }

    /// That of the window that began first: what is known in all since the last change.
    pub(crate) fn longest(&self) -> &Sequence {
        let sequences = self.windows.iter().map(|window| &window.sequence);
        let by_weight = |a: &&Sequence, b: &&Sequence| a.weight().total_cmp(&b.weight());
        sequences.max_by(by_weight).unwrap_or(&self.windows[0].sequence)
    }

    /// That of the window that began last, of those that have enough to say something: what was seen lately.
    pub(crate) fn recent(&self) -> &Sequence {
        let sequences = self.windows.iter().map(|window| &window.sequence);
        let by_weight = |a: &&Sequence, b: &&Sequence| a.weight().total_cmp(&b.weight());
        sequences.filter(|one| one.weight() >= FEW).min_by(by_weight).unwrap_or(self.longest())
    }

    /// Natural logarithm of an e-value against the hypothesis that splitting never harmed within any of the windows.
    ///
    /// The capitals of all windows, each begun with its part of the error as its stake, sum to an e-value; one of them
    /// is no more than their sum.
    pub(crate) fn log_evidence_of_harm(&self, mixture: &Mixture) -> f64 {
        self.most(|sequence| sequence.log_evidence_below(mixture, 0.0))
    }

    /// The same against the hypothesis that it never helped.
    pub(crate) fn log_evidence_of_help(&self, mixture: &Mixture) -> f64 {
        self.most(|sequence| sequence.log_evidence_above(mixture, 0.0))
    }

    fn most(&self, evidence: impl Fn(&Sequence) -> f64) -> f64 {
        let of = |window: &Window| window.share.ln() + evidence(&window.sequence);
        self.windows.iter().map(of).fold(f64::MIN, f64::max)
    }

    pub(crate) fn is_sane(&self) -> bool {
        self.windows.iter().all(Window::is_sane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    const ERROR: f64 = 0.05;

    fn mixture() -> Mixture {
        Mixture::tuned(score::USUAL_SQUARES, ERROR / 2.0)
    }

    #[test]
    fn the_parts_of_the_error_sum_to_less_than_all() {
        let of = |share| {
            let first = Window::new(1, share);
            std::iter::successors(Some(first), |w| Some(w.next(share)))
                .take(10_000)
                .map(|w| w.share)
                .sum::<f64>()
        };
        let all: f64 = SHARES.iter().map(|&share| of(share)).sum();
        assert!(0.999 < all && all < 1.0, "{all}");
    }

    #[test]
    fn a_change_is_found_and_what_was_before_forgotten() {
        let mut windows = AdaptiveWindows::default();
        let feed = |windows: &mut AdaptiveWindows, gain: f64, most: usize| {
            (0..most).find(|i| {
                let noise = if i % 2 == 0 { 0.3 } else { -0.3 };
                windows.add(gain / score::SCALE + noise, 1.0);
                windows.settle(&mixture(), ERROR).1
            })
        };
        assert_eq!(feed(&mut windows, 0.1, 20_000), None);
        let good = windows.settle(&mixture(), ERROR).0;
        assert!(0.0 < good.lower && good.contains(0.1) && good.upper < 0.2, "{good:?}");
        let found = feed(&mut windows, -0.7, 2_000);
        assert!(found.is_some_and(|after| after < 1_000), "{found:?}");
        (0..10).for_each(|_| _ = feed(&mut windows, -0.7, 2_000));
        let changed = windows.settle(&mixture(), ERROR).0;
        assert!(changed.upper < -0.6 && changed.contains(-0.7), "{changed:?}");
        assert!((windows.longest().mean() * score::SCALE + 0.7).abs() < 0.05);
        assert!(windows.log_evidence_of_harm(&mixture()) > 100.0);
        assert!(windows.log_evidence_of_help(&mixture()) < 0.0);
    }

    /// Settled after every fourth of 4,000 scores, through many windows and what looks like changes.
    #[test]
    fn bounds_hold_through_all_windows() {
        let relays = 100;
        let is_wrong = |seed: &u64| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(*seed);
            let mut windows = AdaptiveWindows::default();
            (0..4_000).any(|at| {
                // Three points of a variance of 0.09, the outer ones seldom.
                let score = match random.next_u64() % 9 {
                    0 => 0.636,
                    1 => -0.636,
                    _ => 0.0,
                };
                windows.add(score, 1.0);
                at % 4 == 0 && !windows.settle(&mixture(), ERROR).0.contains(0.0)
            })
        };
        let wrong = (1..=relays).filter(is_wrong).count();
        assert!(wrong as f64 <= ERROR * relays as f64, "{wrong}");
    }

    proptest! {
        /// Whatever comes: windows agree once settled, and stay so.
        #[test]
        fn what_is_settled_agrees(
            spans in prop::collection::vec((-1.0..1.0f64, 0.05..0.8f64, 0.01..1.0f64, 1..900usize), 1..12),
            seed in 1..1000usize,
        ) {
            let mut windows = AdaptiveWindows::default();
            let mut at = seed;
            for (gain, noise, weight, count) in spans {
                for _ in 0..count {
                    at = (at * 48_271) % 2_147_483_647;
                    let noise = noise * (2.0 * at as f64 / 2_147_483_647.0 - 1.0);
                    windows.add(weight * (gain / score::SCALE + noise).clamp(-score::BOUND, score::BOUND), weight);
                    if at % 7 == 0 {
                        let (interval, _) = windows.settle(&mixture(), ERROR);
                        prop_assert!(interval.lower <= interval.upper);
                        let settled = windows;
                        prop_assert_eq!(windows.settle(&mixture(), ERROR), (interval, false));
                        prop_assert_eq!(windows, settled);
                    }
                }
            }
            prop_assert!(windows.is_sane());
        }
    }
}
