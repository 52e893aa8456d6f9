/// Which hypotheses may be rejected so that of all that are, on average at most the share `rate` are true, whatever the
/// e-values have to do with each other: e-BH (Wang and Ramdas 2022, "False discovery rate control with e-values").
/// E-values are given as natural logarithms. The answer goes by their order.
///
/// E-values of capital processes may be looked at whenever it suits.
pub fn discoveries(log_e_values: &[f64], rate: f64) -> Vec<bool> {
    let known = |value: f64| if value.is_nan() { f64::NEG_INFINITY } else { value };
    let mut sorted: Vec<f64> = log_e_values.iter().copied().map(known).collect();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let needed = |rejected: usize| (log_e_values.len() as f64 / (rate * rejected as f64)).ln();
    // The largest number of which each is large enough for that number.
    let rejected = (1..=sorted.len()).rev().find(|&k| sorted[k - 1] >= needed(k));
    let least = rejected.map_or(f64::INFINITY, needed);
    log_e_values.iter().map(|&one| one >= least).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ln(values: &[f64]) -> Vec<f64> {
        values.iter().map(|value| value.ln()).collect()
    }

    #[test]
    fn rejects_as_many_as_carry_each_other() {
        // Of four at 5 %: one alone needs 80, two 40 each, three 26.7, all 20.
        assert_eq!(discoveries(&ln(&[81.0, 1.0, 1.0, 1.0]), 0.05), [true, false, false, false]);
        assert_eq!(discoveries(&ln(&[79.0, 1.0, 39.0, 1.0]), 0.05), [false; 4]);
        assert_eq!(discoveries(&ln(&[41.0, 1.0, 40.5, 1.0]), 0.05), [true, false, true, false]);
        assert_eq!(discoveries(&ln(&[21.0, 22.0, 20.5, 23.0]), 0.05), [true; 4]);
        assert_eq!(discoveries(&[], 0.05), [false; 0]);
    }

    #[test]
    fn what_is_no_number_is_no_evidence() {
        assert_eq!(discoveries(&[f64::NAN, f64::NEG_INFINITY, 9.0], 0.05), [false, false, true]);
        assert_eq!(discoveries(&ln(&[f64::NAN, 25.0]), 0.05), [false, false]);
    }

    proptest! {
        /// More evidence for one takes nothing from the others.
        #[test]
        fn grows_with_evidence(
            values in prop::collection::vec(-5.0..12.0f64, 1..40), at in any::<prop::sample::Index>(), more in 0.0..9.0f64,
        ) {
            let before = discoveries(&values, 0.05);
            let mut stronger = values.clone();
            stronger[at.index(values.len())] += more;
            let after = discoveries(&stronger, 0.05);
            prop_assert!(before.iter().zip(&after).all(|(before, after)| !before || *after));
        }
    }
}
