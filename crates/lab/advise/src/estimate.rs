//! How many times faster, and between which bounds.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A factor between two means of speeds, which are geometric: logarithms are what is compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// Of speed with over that without; above 1 is faster.
    pub mean: f64,
    /// The lower end of the 95 % interval (Welch's, of the difference of the logarithms' means). None with one seed.
    pub lower: Option<f64>,
    /// Its upper end.
    pub upper: Option<f64>,
}

impl Gain {
    /// Of the logarithms of speeds with and without a relay, a seed each; none if one of both is empty.
    pub(crate) fn between(with: &[f64], without: &[f64]) -> Option<Gain> {
        let ((mean_with, error_with), (mean_without, error_without)) =
            (mean_and_error(with)?, mean_and_error(without)?);
        let difference = mean_with - mean_without;
        let bounds = error_with.zip(error_without).map(|(a, b)| {
            let squared = a + b;
            // Welch and Satterthwaite's degrees of freedom.
            let freedom = squared * squared
                / (a * a / (with.len() - 1) as f64 + b * b / (without.len() - 1) as f64);
            let width = match StudentsT::new(0.0, 1.0, freedom) {
                Ok(student) if squared > 0.0 => student.inverse_cdf(0.975) * squared.sqrt(),
                // Nothing on this path is by chance.
                _ => 0.0,
            };
            [difference - width, difference + width].map(f64::exp)
        });
        Some(Gain {
            mean: difference.exp(),
            lower: bounds.map(|[lower, _]| lower),
            upper: bounds.map(|[_, upper]| upper),
        })
    }

    /// Whether it is certain that it is above `factor`.
    pub(crate) fn is_above(&self, factor: f64) -> bool {
        self.lower.is_some_and(|lower| lower > factor)
    }

    /// Whether it is certain that it is below `factor`.
    pub(crate) fn is_below(&self, factor: f64) -> bool {
        self.upper.is_some_and(|upper| upper < factor)
    }
}

/// The mean of a sample, and the square of its standard error; that is none of one value.
fn mean_and_error(sample: &[f64]) -> Option<(f64, Option<f64>)> {
    let count = sample.len() as f64;
    if sample.is_empty() {
        return None;
    }
    let mean = sample.iter().sum::<f64>() / count;
    let squares: f64 = sample.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, (sample.len() > 1).then(|| squares / (count - 1.0) / count)))
}

/// The mean of a sample; not a number of an empty one.
pub(crate) fn mean(sample: impl IntoIterator<Item = f64>) -> f64 {
    let (count, sum) =
        sample.into_iter().fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    sum / count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_known_samples() {
        let a = [
            27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7,
            21.4,
        ];
        let b = [
            27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.5,
            24.4,
        ];
        // A hundredth of it, as the factor is an exponential.
        let [a, b] = [a, b].map(|sample| sample.map(|value| value / 100.0));
        let gain = Gain::between(&a, &b).unwrap();
        // Worked out apart: standard error 0.00993122, 27.8873 degrees of freedom, for which tables have 2.0486.
        assert!((gain.mean.ln() - -0.028_333_3).abs() < 1e-6);
        assert!((gain.lower.unwrap().ln() - -0.048_678).abs() < 2e-5, "{gain:?}");
        assert!((gain.upper.unwrap().ln() - -0.007_988).abs() < 2e-5, "{gain:?}");
    }

    #[test]
    fn one_seed_has_no_interval_and_no_chance_has_a_narrow_one() {
        let one = Gain::between(&[1.0], &[0.0]).unwrap();
        assert_eq!((one.lower, one.upper), (None, None));
        assert!(!one.is_above(1.0) && !one.is_below(1e9));
        let same = Gain::between(&[1.0, 1.0], &[0.0, 0.0]).unwrap();
        assert_eq!((same.lower, same.upper), (Some(same.mean), Some(same.mean)));
        assert_eq!(Gain::between(&[], &[1.0]), None);
    }

    proptest! {
        #[test]
        fn the_mean_lies_within_and_turns_round(
            with in proptest::collection::vec(-5.0..5.0f64, 2..9),
            without in proptest::collection::vec(-5.0..5.0f64, 2..9),
        ) {
            let (gain, loss) =
                (Gain::between(&with, &without).unwrap(), Gain::between(&without, &with).unwrap());
            prop_assert!(gain.lower.unwrap() <= gain.mean && gain.mean <= gain.upper.unwrap());
            prop_assert!((gain.mean * loss.mean - 1.0).abs() < 1e-9);
            prop_assert!((gain.lower.unwrap() * loss.upper.unwrap() - 1.0).abs() < 1e-6);
        }
    }
}
