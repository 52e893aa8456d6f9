//! Of one transfer what splitting it gains, without bias, whatever the prediction is worth.

use crate::observation::{Arm, Observation};
use crate::regression::{Features, Fit};

/// How far the logarithm of a completion time counts from what was predicted: a factor of 20. What is farther counts as
/// so far. The gain that is estimated is the mean of what was clipped so, which exists whatever tails there are.
pub(crate) const CLIP: f64 = 3.0;

/// The most that the prediction may have one arm faster.
const MOST_PREDICTED: f64 = 0.5;

/// The most that a gain can be, by [`CLIP`].
pub(crate) const MOST_GAIN: f64 = 2.0 * CLIP;

/// Scores are kept in units of so much, for capital processes are of increments within one on either side of a guess.
pub(crate) const SCALE: f64 = 8.0;

/// No weighted score is farther from zero, in units of [`SCALE`]: a weight of at most twice the probability leaves
/// twice the farthest residual, `CLIP + MOST_PREDICTED / 2`, and the predicted gain.
pub(crate) const BOUND: f64 = (2.0 * CLIP + 2.0 * MOST_PREDICTED) / SCALE;

/// Where sequences are narrowest, in squares of weighted scores: after about 2,000 transfers that scatter by a factor
/// of 3.3.
pub(crate) const USUAL_SQUARES: f64 = 200.0;

/// One transfer's part in its cluster's score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score {
    /// In units of [`SCALE`] and times the weight.
    pub(crate) value: f64,
    /// Twice the probability of the rarer arm. So weighted all scores have one bound however seldom an arm is drawn,
    /// and weigh about as much as they tell.
    pub(crate) weight: f64,
    /// By how much the transfer was slower than was predicted for its arm, clipped.
    pub(crate) residual: f64,
}

impl Score {
    /// By augmented inverse-probability weighting: the predicted gain, and the residual of the arm that was drawn by
    /// its probability. `baseline` is what this place is slower than `fit` says.
    pub(crate) fn of(
        observation: &Observation,
        features: &Features,
        fit: &Fit,
        baseline: f64,
    ) -> Self {
        let slower = observation.completion.ln() - fit.between_arms(features) - baseline;
        let predicted = fit.gain().clamp(-MOST_PREDICTED, MOST_PREDICTED);
        let (half, side) = match observation.arm {
            Arm::Split => (-predicted / 2.0, -1.0),
            Arm::Unsplit => (predicted / 2.0, 1.0),
        };
        let residual = slower.clamp(-CLIP, CLIP) - half;
        let drawn = observation.probability;
        let weight = 2.0 * drawn.min(1.0 - drawn);
        let value = weight * predicted + side * (weight / drawn) * residual;
        Score { value: (value / SCALE).clamp(-BOUND, BOUND), weight, residual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Id, Place};
    use crate::regression::Moments;
    use proptest::prelude::*;

    fn transfer(arm: Arm, probability: f64, completion: f64) -> Observation {
        let place = Place { group: Id(1), service: Id(2), prefix: Id(3) };
        let (subscriber, slot, bytes, connect_rtt) = (Id(4), 0, 50_000, 0.05);
        Observation { place, subscriber, slot, arm, probability, bytes, connect_rtt, completion }
    }

    /// A fit to transfers that take about a second, a fifth less if split.
    fn fit() -> Fit {
        let mut moments = Moments::default();
        for i in 0..1000 {
            let (arm, time) = if i % 2 == 0 { (Arm::Split, 0.8) } else { (Arm::Unsplit, 1.0) };
            let observation = transfer(arm, 0.5, time);
            moments.add(&Features::of(&observation), time.ln());
        }
        moments.fit().unwrap()
    }

    proptest! {
        /// Whatever the probability, baseline and prediction: over the draw of the arm the mean score is the difference
        /// of clipped outcomes, and the bound holds.
        #[test]
        fn is_without_bias(
            split in 0.001..0.999f64, fast in 1e-6..1e6f64, slow in 1e-6..1e6f64, baseline in -3.0..3.0f64,
        ) {
            let fit = fit();
            let score = |arm, probability, time| {
                let observation = transfer(arm, probability, time);
                Score::of(&observation, &Features::of(&observation), &fit, baseline)
            };
            let (a, b) = (score(Arm::Split, split, fast), score(Arm::Unsplit, 1.0 - split, slow));
            prop_assert!((a.weight - b.weight).abs() < 1e-12 && a.weight > 0.0 && a.weight <= 1.0);
            prop_assert!(a.value.abs() <= BOUND && b.value.abs() <= BOUND);
            let mean = (split * a.value + (1.0 - split) * b.value) * SCALE / a.weight;
            let middle = fit.between_arms(&Features::of(&transfer(Arm::Split, split, 1.0))) + baseline;
            let clipped = |time: f64| (time.ln() - middle).clamp(-CLIP, CLIP);
            prop_assert!((mean - (clipped(slow) - clipped(fast))).abs() < 1e-6);
        }
    }
}
