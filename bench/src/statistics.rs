//! What several runs come to.

/// The middle one, or the mean of the two in the middle; not a number if there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Between what a figure is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// Where the median of what the values are drawn from is, with at least about 95 %: between the values whose ranks are 1.96
/// standard deviations of a binomial distribution from the middle. Of few values it is between the least and the greatest.
pub(crate) fn median_interval(mut values: Vec<f64>) -> Interval {
    values.sort_by(f64::total_cmp);
    let [Some(least), Some(most)] = [values.first(), values.last()] else {
        return Interval { least: f64::NAN, most: f64::NAN };
    };
    let n = values.len() as f64;
    let rank = (n / 2.0 - 1.96 * n.sqrt() / 2.0).floor();
    match rank < 1.0 {
        true => Interval { least: *least, most: *most },
        false => Interval {
            least: values[rank as usize - 1],
            most: values[values.len() - rank as usize],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_between_the_values_that_the_binomial_distribution_says() {
        let values = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
        // Tables of the sign test have ranks 40 and 61 for a hundred values.
        assert_eq!(median_interval(values(100)), Interval { least: 40.0, most: 61.0 });
        assert_eq!(median_interval(values(3)), Interval { least: 1.0, most: 3.0 });
        assert!(median_interval(Vec::new()).least.is_nan());
    }
}
