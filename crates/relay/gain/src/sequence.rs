use serde::{Deserialize, Serialize};

use crate::mixture::Mixture;

/// Bounds on a mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// At least so much.
    pub lower: f64,
    /// At most so much; not below `lower`.
    pub upper: f64,
}

impl Interval {
    /// From minus to plus `limit`.
    pub const fn within(limit: f64) -> Self {
        Interval { lower: -limit, upper: limit }
    }

    /// What is in both. None if nothing is.
    pub fn and(self, other: Interval) -> Option<Interval> {
        let both =
            Interval { lower: self.lower.max(other.lower), upper: self.upper.min(other.upper) };
        (both.lower <= both.upper).then_some(both)
    }

    /// Whether it is in there.
    pub fn contains(self, value: f64) -> bool {
        self.lower <= value && value <= self.upper
    }
}

/// A value that no [`Sequence`] may be told.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "a score of {value} at weight {weight} and bound {bound}: must be within the bound, the bound at most 1, \
     the weight 1e-9 to 1"
)]
pub struct OutOfRange {
    /// The score.
    pub value: f64,
    /// Its weight.
    pub weight: f64,
    /// The bound that it was said to keep.
    pub bound: f64,
}

/// Less cannot be divided by.
const LEAST_WEIGHT: f64 = 1e-9;

/// A confidence sequence for the weighted mean of bounded scores: bounds that hold at all times at once, so that
/// whoever looks after every score, and stops when it suits, is as seldom wrong as promised.
///
/// Of each score only its sum, its weight and its squared distance from the mean of those before it are kept. What is
/// covered is the weighted mean of the scores' conditional means: those may change, as they do where the weather does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sequence {
    count: u64,
    weight: f64,
    sum: f64,
    squares: f64,
}

impl Sequence {
    /// Takes one more score. `value` is the score times `weight`. `weight` and `bound`, which `value` keeps on both
    /// sides, must have been known before the score was.
    ///
    /// # Errors
    /// When the score is none; nothing changes then.
    pub fn add(&mut self, value: f64, weight: f64, bound: f64) -> Result<(), OutOfRange> {
        let is_fine =
            value.abs() <= bound && bound <= 1.0 && (LEAST_WEIGHT..=1.0).contains(&weight);
        if !is_fine {
            return Err(OutOfRange { value, weight, bound });
        }
        // Any guess made before is valid that keeps the distance to at most one.
        let guess = (self.mean() * weight).clamp(bound - 1.0, 1.0 - bound);
        self.count += 1;
        self.weight += weight;
        self.sum += value;
        self.squares += (value - guess) * (value - guess);
        Ok(())
    }

    /// How many scores.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their weights' sum.
    pub const fn weight(&self) -> f64 {
        self.weight
    }

    /// The sum of squared distances from what was guessed: the time by which a [`Mixture`] goes.
    pub const fn squares(&self) -> f64 {
        self.squares
    }

    /// Their weighted mean; zero of none.
    pub fn mean(&self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { 0.0 }
    }

    /// Where the mean is, but for an error of `error` in (0, 1), half of it on either side, at all times together.
    /// Infinitely wide of no scores.
    pub fn interval(&self, mixture: &Mixture, error: f64) -> Interval {
        if self.weight <= 0.0 {
            return Interval::within(f64::INFINITY);
        }
        let width = mixture.boundary(self.squares, (2.0 / error).ln()) / self.weight;
        Interval { lower: self.mean() - width, upper: self.mean() + width }
    }

    /// Natural logarithm of an e-value against the hypothesis that every conditional mean is at most `mean`.
    pub fn log_evidence_above(&self, mixture: &Mixture, mean: f64) -> f64 {
        mixture.log_capital(self.sum - mean * self.weight, self.squares)
    }

    /// The same against the hypothesis that it is at least `mean`.
    pub fn log_evidence_below(&self, mixture: &Mixture, mean: f64) -> f64 {
        mixture.log_capital(mean * self.weight - self.sum, self.squares)
    }

    /// Whether one could have come of scores, which matters where it was read.
    pub(crate) fn is_sane(&self) -> bool {
        // Each score adds one at most to any of them.
        let most = self.count as f64;
        let is_weight = self.weight == 0.0 || (LEAST_WEIGHT..=most).contains(&self.weight);
        is_weight && self.sum.abs() <= most && (0.0..=most).contains(&self.squares)
    }
}

/// What is in all intervals so far, which never widens. To be trusted only while the mean is the same: the [`Sequence`]
/// alone covers a mean that changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Running(Interval);

impl Default for Running {
    fn default() -> Self {
        Running(Interval::within(f64::INFINITY))
    }
}

impl Running {
    /// Takes one more interval, and answers what is in all of them. None, and no change, if nothing is in all: then the
    /// mean has changed, but for the error.
    pub fn meet(&mut self, interval: Interval) -> Option<Interval> {
        self.0 = self.0.and(interval)?;
        Some(self.0)
    }

    /// What is in all of them.
    pub const fn interval(&self) -> Interval {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_score_is_refused() {
        let mut sequence = Sequence::default();
        for (value, weight, bound) in [
            (f64::NAN, 1.0, 1.0),
            (f64::INFINITY, 1.0, 1.0),
            (0.5, f64::NAN, 1.0),
            (0.5, 0.0, 1.0),
            (0.5, 1e-10, 1.0),
            (0.5, 1.1, 1.0),
            (0.5, 1.0, f64::NAN),
            (0.5, 1.0, 0.4),
            (0.5, 1.0, 1.1),
        ] {
            assert!(sequence.add(value, weight, bound).is_err(), "{value} {weight} {bound}");
        }
        assert_eq!(sequence, Sequence::default());
    }

    #[test]
    fn of_nothing_nothing_is_known() {
        let interval = Sequence::default().interval(&Mixture::tuned(250.0, 0.025), 0.05);
        assert_eq!(interval, Interval::within(f64::INFINITY));
    }

    proptest! {
        #[test]
        fn bounds_are_ordered_and_the_running_intersection_never_widens(
            scores in prop::collection::vec((-0.8..0.8f64, 0.01..1.0f64), 1..200),
        ) {
            let mixture = Mixture::tuned(250.0, 0.025);
            let (mut sequence, mut running) = (Sequence::default(), Running::default());
            for (value, weight) in scores {
                sequence.add(value * weight, weight, 0.8).unwrap();
                let interval = sequence.interval(&mixture, 0.05);
                prop_assert!(interval.lower < interval.upper && interval.contains(sequence.mean()));
                let narrower = sequence.interval(&mixture, 0.2);
                prop_assert!(narrower.lower > interval.lower && narrower.upper < interval.upper);
                let before = running.interval();
                running.meet(interval);
                let after = running.interval();
                prop_assert!(before.lower <= after.lower && after.upper <= before.upper);
                prop_assert!(after.lower <= after.upper);
                // The bounds and the evidence are of one capital.
                let at_lower = sequence.log_evidence_above(&mixture, interval.lower);
                prop_assert!((at_lower - 40f64.ln()).abs() < 1e-6);
                let at_upper = sequence.log_evidence_below(&mixture, interval.upper);
                prop_assert!((at_upper - 40f64.ln()).abs() < 1e-6);
            }
        }
    }
}
