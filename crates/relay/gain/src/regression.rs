use serde::{Deserialize, Serialize};

use crate::observation::{Arm, Observation};

/// What a completion time is predicted from: one, the logarithms of size and connect round trip, and the arm.
const FEATURES: usize = 4;

/// Weight of the belief that a coefficient is zero, in transfers of unit size. Large for the arm: what splitting gains
/// is left to the scores, which need no model.
const RIDGE: [f64; FEATURES] = [0.01, 1.0, 1.0, 100.0];

/// A connect round trip about which the prediction turns, in seconds.
const USUAL_RTT: f64 = 0.05;

/// Transfers by which a prediction is meant to be of use; before, those of its class are learned from and give no
/// score.
const ENOUGH: f64 = 20.0;

/// Transfers after which half of what was learned is forgotten, so that networks may change.
const MANY: f64 = 50_000.0;

/// Sums over transfers of one size class, of which a linear least-squares fit is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Moments {
    count: f64,
    /// Products of features with each other.
    products: [[f64; FEATURES]; FEATURES],
    /// Products of features with the logarithm of the completion time.
    outcomes: [f64; FEATURES],
}

impl Moments {
    pub(crate) fn add(&mut self, features: &Features, outcome: f64) {
        self.count += 1.0;
        for (row, &feature) in features.0.iter().enumerate() {
            self.outcomes[row] += feature * outcome;
            for (column, &other) in features.0.iter().enumerate() {
                self.products[row][column] += feature * other;
            }
        }
    }

    /// Takes what another has seen. Answers whether it is many now, and half was forgotten.
    pub(crate) fn merge(&mut self, other: &Moments) {
        self.count += other.count;
        for row in 0..FEATURES {
            self.outcomes[row] += other.outcomes[row];
            for column in 0..FEATURES {
                self.products[row][column] += other.products[row][column];
            }
        }
        if self.count > MANY {
            self.count /= 2.0;
            self.outcomes.iter_mut().for_each(|sum| *sum /= 2.0);
            self.products.as_flattened_mut().iter_mut().for_each(|sum| *sum /= 2.0);
        }
    }

    /// The prediction after these. None while they are too few.
    pub(crate) fn fit(&self) -> Option<Fit> {
        if self.count < ENOUGH {
            return None;
        }
        let mut matrix = self.products;
        for (at, row) in matrix.iter_mut().enumerate() {
            row[at] += RIDGE[at];
        }
        let is_finite = |solution: &[f64; FEATURES]| solution.iter().all(|one| one.is_finite());
        solve(matrix, self.outcomes).filter(is_finite).map(Fit)
    }

    pub(crate) fn is_sane(&self) -> bool {
        let mut all = self.products.as_flattened().iter().chain(&self.outcomes);
        self.count >= 0.0 && self.count.is_finite() && all.all(|sum| sum.is_finite())
    }
}

/// The features of one transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Features([f64; FEATURES]);

impl Features {
    pub(crate) fn of(observation: &Observation) -> Self {
        // No transfer has less than a byte to wait for.
        let bytes = observation.bytes.max(1) as f64;
        Features([
            1.0,
            (bytes / observation.class().middle()).ln(),
            // From nanoseconds to hours; no other may outweigh all that was seen.
            (observation.connect_rtt.ln() - USUAL_RTT.ln()).clamp(-15.0, 15.0),
            match observation.arm {
                Arm::Split => 0.5,
                Arm::Unsplit => -0.5,
            },
        ])
    }
}

/// Coefficients of a linear prediction of the logarithm of the completion time in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fit([f64; FEATURES]);

impl Fit {
    /// Halfway between the predictions for both arms.
    pub(crate) fn between_arms(&self, features: &Features) -> f64 {
        self.0.iter().zip(&features.0).take(FEATURES - 1).map(|(c, x)| c * x).sum()
    }

    /// By how much the split one is predicted to be faster.
    pub(crate) fn gain(&self) -> f64 {
        -self.0[FEATURES - 1]
    }
}

/// Solves a symmetric positive definite system, by Cholesky's decomposition. None if it is not one.
fn solve(matrix: [[f64; FEATURES]; FEATURES], right: [f64; FEATURES]) -> Option<[f64; FEATURES]> {
    let mut lower = [[0.0; FEATURES]; FEATURES];
    for row in 0..FEATURES {
        for column in 0..=row {
            let known: f64 = (0..column).map(|k| lower[row][k] * lower[column][k]).sum();
            let rest: f64 = matrix[row][column] - known;
            lower[row][column] = if row == column {
                if rest <= 0.0 || rest.is_nan() {
                    return None;
                }
                rest.sqrt()
            } else {
                rest / lower[column][column]
            };
        }
    }
    let mut solution = right;
    for row in 0..FEATURES {
        let known: f64 = (0..row).map(|k| lower[row][k] * solution[k]).sum();
        solution[row] = (solution[row] - known) / lower[row][row];
    }
    for row in (0..FEATURES).rev() {
        let known: f64 = (row + 1..FEATURES).map(|k| lower[k][row] * solution[k]).sum();
        solution[row] = (solution[row] - known) / lower[row][row];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_line_that_there_is() {
        let mut moments = Moments::default();
        for i in 0..2000 {
            let x = [1.0, f64::from(i % 7) - 3.0, f64::from(i % 11) - 5.0, f64::from(i % 2) - 0.5];
            moments.add(&Features(x), -1.0 + 0.5 * x[1] + 0.9 * x[2] - 0.3 * x[3]);
        }
        let fit = moments.fit().unwrap();
        let expected = [-1.0, 0.5, 0.9];
        assert!(fit.0.iter().zip(expected).all(|(c, e)| (c - e).abs() < 1e-3), "{fit:?}");
        // Drawn towards no gain.
        assert!(0.2 < fit.gain() && fit.gain() < 0.3, "{fit:?}");
        let features = Features([1.0, 2.0, -1.0, 0.5]);
        assert!((fit.between_arms(&features) + 0.9).abs() < 1e-2);
    }

    #[test]
    fn few_predict_nothing() {
        let mut moments = Moments::default();
        (0..19).for_each(|_| moments.add(&Features([1.0; 4]), 1.0));
        assert_eq!(moments.fit(), None);
        moments.add(&Features([1.0; 4]), 1.0);
        assert!(moments.fit().is_some());
    }
}
