//! The bounds against an implementation that others wrote: confseq 0.0.11 of PyPI, its C++ part compiled against Boost
//! 1.74.

use midspan_gain::{Mixture, Sequence};

/// `gamma_exponential_mixture_bound(v, alpha, v_opt, c=1, alpha_opt=0.025)`: v, alpha, v_opt, bound.
const BOUNDS: [(f64, f64, f64, f64); 5] = [
    (1.0, 0.025, 250.0, 16.223_447_744_108_853),
    (100.0, 0.025, 250.0, 34.008_194_017_701_5),
    (5_000.0, 0.001, 250.0, 303.481_166_949_808_3),
    (30.0, 0.05, 10.0, 19.075_200_086_367_66),
    (200_000.0, 0.000_1, 250.0, 2_284.272_207_371_884_6),
];

/// `gamma_exponential_log_mixture(s, v, v_opt=250, c=1, alpha_opt=0.025)`: s, v, logarithm.
const CAPITALS: [(f64, f64, f64); 4] = [
    (30.0, 100.0, 2.900_479_645_699_874_7),
    (5.0, 2.0, 0.746_003_023_292_388_4),
    (400.0, 5_000.0, 13.211_884_322_488_913),
    (-10.0, 100.0, -1.312_667_344_600_640_7),
];

/// `conjmix_empbern_twosided_cs(x, v_opt=20, alpha=0.05)` without running intersection: scores so far, lower and upper.
/// Its bounds are cut off at 0 and 1.
const INTERVALS: [(usize, f64, f64); 4] = [
    (10, 0.0, 1.0),
    (50, 0.113_561_648_732_453_78, 0.566_370_351_267_546_2),
    (100, 0.198_968_674_245_800_28, 0.477_731_325_754_200_1),
    (300, 0.265_484_579_926_609_1, 0.407_998_753_406_724_4),
];

#[test]
fn boundaries_are_those_of_confseq() {
    for (v, alpha, v_opt, bound) in BOUNDS {
        let ours = Mixture::tuned(v_opt, 0.025).boundary(v, (1.0 / alpha).ln());
        assert!((ours - bound).abs() < 1e-6, "{v} {alpha} {v_opt}: {ours} {bound}");
    }
}

#[test]
fn capitals_are_those_of_confseq() {
    for (s, v, logarithm) in CAPITALS {
        let ours = Mixture::tuned(250.0, 0.025).log_capital(s, v);
        assert!((ours - logarithm).abs() < 1e-6, "{s} {v}: {ours} {logarithm}");
    }
}

/// confseq halves alpha twice, once for two sides and once in each, so that its 5 % are our 2.5 %.
#[test]
fn intervals_are_those_of_confseq() {
    let mixture = Mixture::tuned(20.0, 0.05 / 4.0);
    let mut sequence = Sequence::default();
    let mut expected = INTERVALS.iter();
    let mut next = expected.next();
    for i in 1..=300 {
        let x = (f64::from((i * 37) % 101) / 100.0).powi(2);
        // Scores of 0 to 1 are half that from their middle, on either side.
        sequence.add(x - 0.5, 1.0, 0.5).unwrap();
        let Some(&(count, lower, upper)) = next.filter(|next| next.0 == i as usize) else {
            continue;
        };
        let ours = sequence.interval(&mixture, 0.025);
        let (ours_lower, ours_upper) = ((ours.lower + 0.5).max(0.0), (ours.upper + 0.5).min(1.0));
        assert!((ours_lower - lower).abs() < 1e-6, "{count}: {ours_lower} {lower}");
        assert!((ours_upper - upper).abs() < 1e-6, "{count}: {ours_upper} {upper}");
        next = expected.next();
    }
    assert!(next.is_none());
}
