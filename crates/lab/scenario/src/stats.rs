use serde::Serialize;

/// The usual statistics of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stats {
    /// Size of the sample; at least 1.
    pub n: u32,
    /// Arithmetic mean.
    pub mean: f64,
    /// Half the width of the mean's 95 % confidence interval (Student's t); none for a sample of
    /// one.
    pub ci95: Option<f64>,
    /// Sample standard deviation; none for a sample of one.
    pub deviation: Option<f64>,
    /// Middle value, or the mean of the two.
    pub median: f64,
    /// Least value.
    pub min: f64,
    /// Greatest value.
    pub max: f64,
}

impl Stats {
    /// The statistics of `sample`; none of an empty one or if a value is not finite.
    pub fn of(sample: &[f64]) -> Option<Stats> {
        if sample.is_empty() || !sample.iter().all(|value| value.is_finite()) {
            return None;
        }
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let deviation = (n > 1).then(|| {
            let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
            (squares / (n - 1) as f64).sqrt()
        });
        Some(Stats {
            n: u32::try_from(n).unwrap_or(u32::MAX),
            mean,
            ci95: deviation.map(|deviation| student_t(n - 1) * deviation / (n as f64).sqrt()),
            deviation,
            median: (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
            min: sorted[0],
            max: sorted[n - 1],
        })
    }
}

/// The two-sided 95 % quantile of Student's t with `freedom` degrees of freedom. Beyond the table
/// the normal quantile with the first two terms of its expansion in `1 / freedom` (Abramowitz and
/// Stegun, 26.7.5).
fn student_t(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    const Z: f64 = 1.95996;
    match freedom.checked_sub(1).and_then(|index| TABLE.get(index)) {
        Some(quantile) => *quantile,
        None => {
            let freedom = freedom as f64;
            Z + (Z.powi(3) + Z) / (4.0 * freedom)
                + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * freedom.powi(2))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_a_known_sample() {
        let stats = Stats::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((stats.n, stats.mean, stats.median), (8, 5.0, 4.5));
        assert_eq!((stats.min, stats.max), (2.0, 9.0));
        assert!((stats.deviation.unwrap() - 2.138_09).abs() < 1e-5);
        // 2.365 x 2.13809 / sqrt(8)
        assert!((stats.ci95.unwrap() - 1.787_76).abs() < 1e-4);
    }

    #[test]
    fn one_value_has_no_spread_and_none_has_no_statistics() {
        let stats = Stats::of(&[3.0]).unwrap();
        assert_eq!((stats.mean, stats.deviation, stats.ci95), (3.0, None, None));
        assert_eq!(Stats::of(&[]), None);
        assert_eq!(Stats::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn the_t_quantile_is_continuous_where_the_table_ends() {
        assert!((student_t(31) - 2.040).abs() < 0.001);
        assert!((student_t(120) - 1.980).abs() < 0.001);
    }

    proptest! {
        #[test]
        fn mean_and_median_lie_between_the_ends(
            sample in proptest::collection::vec(-1e9..1e9f64, 1..50),
        ) {
            let stats = Stats::of(&sample).unwrap();
            let slack = 1e-6;
            prop_assert!(stats.min - slack <= stats.mean && stats.mean <= stats.max + slack);
            prop_assert!(stats.min <= stats.median && stats.median <= stats.max);
        }
    }
}
