use statrs::function::gamma::{gamma_lr, ln_gamma};

/// The gamma-exponential mixture of capital processes of empirical Bernstein type.
///
/// For increments `x` of predictable guess `g` with `|x - g| <= 1` and conditional mean `m`, the product of
/// `exp(b (x - m) - psi(b) (x - g)^2)` with `psi(b) = -ln(1 - b) - b` is a supermartingale for every bet `b` in (0, 1)
/// (Fan, Grama, Liu 2015; Waudby-Smith and Ramdas 2023, Theorem 2). As `m` may change from increment to increment, what
/// is told of is the mean of the conditional means. Mixed over all bets, `1 - b` having a gamma distribution of shape
/// and rate `rho` cut off at one, it is one in closed form (Howard, Ramdas, McAuliffe, Sekhon 2021, Proposition 9, with
/// c = 1).
///
/// By Ville's inequality the capital of a true hypothesis ever reaches `1 / a` with probability `a` at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixture {
    rho: f64,
    leading: f64,
}

impl Mixture {
    /// The mixture whose boundary is narrowest about when the sum of squares is `v_opt` and the error `alpha`. Any
    /// finite `v_opt` above zero and `alpha` in (0, 1) is valid; a poor choice costs width only.
    pub fn tuned(v_opt: f64, alpha: f64) -> Self {
        // The one-sided rule of thumb of Howard et al. 2021, section 3.5.
        let deviations = 2.0 * (1.0 / (2.0 * alpha)).ln();
        let rho = v_opt / (deviations + (1.0 + deviations).ln());
        Mixture { rho, leading: rho * rho.ln() - ln_gamma(rho) - gamma_lr(rho, rho).ln() }
    }

    /// Natural logarithm of the capital, beginning with one, after increments that sum to `s` above their hypothetical
    /// means, with squares that sum to `v`. Minus infinity where it is too small to tell from nothing.
    pub fn log_capital(&self, s: f64, v: f64) -> f64 {
        let (shape, at) = (v + self.rho, s + v + self.rho);
        if at <= 0.0 {
            return f64::NEG_INFINITY;
        }
        // Between 0 and 1 whatever rounding does.
        let below = gamma_lr(shape, at).clamp(0.0, 1.0);
        self.leading + ln_gamma(shape) + below.ln() - shape * at.ln() + s + v
    }

    /// The least `s` at which the [logarithm of the capital](Mixture::log_capital) is `log_threshold` (above zero),
    /// when squares sum to `v`. Rounded upwards, which is the safe side.
    pub fn boundary(&self, v: f64, log_threshold: f64) -> f64 {
        // No mixture has more than the best of its bets, so that the boundary is above that of the best bet.
        let mut above = (2.0 * v * log_threshold).sqrt() + log_threshold;
        while self.log_capital(above, v) < log_threshold {
            above *= 2.0;
        }
        // The logarithm is convex and grows: Newton's steps from above stay above.
        for _ in 0..50 {
            let excess = self.log_capital(above, v) - log_threshold;
            let step = excess / self.slope(above, v);
            if step.is_nan() || step <= above * 1e-13 {
                break;
            }
            above -= step;
        }
        above
    }

    /// How fast the logarithm of the capital grows with `s`: the mean bet, weighted by its capital.
    fn slope(&self, s: f64, v: f64) -> f64 {
        let (shape, at) = (v + self.rho, s + v + self.rho);
        let density = (shape - 1.0) * at.ln() - at - ln_gamma(shape);
        1.0 - shape / at + density.exp() / gamma_lr(shape, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The mixture as it is defined, by Simpson's rule over the bets.
    fn integrated(rho: f64, s: f64, v: f64) -> f64 {
        let density = |b: f64| (rho - 1.0) * (1.0 - b).ln() + rho * b;
        let bet = |b: f64| b * s + v * ((1.0 - b).ln() + b);
        let simpson = |f: &dyn Fn(f64) -> f64| {
            let n = 200_000;
            let at = |i: usize| f(i as f64 / n as f64 * (1.0 - 1e-9));
            let inner = (1..n).map(|i| at(i) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum::<f64>();
            (at(0) + inner + at(n)) / (3.0 * n as f64)
        };
        let best = (0..1000).map(|i| bet(f64::from(i) / 1000.0)).fold(0.0, f64::max);
        let mixed = simpson(&|b| (density(b) + bet(b) - best).exp());
        mixed.ln() + best - simpson(&|b| density(b).exp()).ln()
    }

    #[test]
    fn the_closed_form_is_the_integral() {
        for (v_opt, s, v) in
            [(250.0, 30.0, 100.0), (250.0, 0.0, 10.0), (50.0, 5.0, 3.0), (100.0, -20.0, 300.0)]
        {
            let mixture = Mixture::tuned(v_opt, 0.025);
            let (closed, by_hand) = (mixture.log_capital(s, v), integrated(mixture.rho, s, v));
            assert!((closed - by_hand).abs() < 1e-6, "{v_opt} {s} {v}: {closed} {by_hand}");
        }
    }

    #[test]
    fn capital_begins_with_one() {
        assert!(Mixture::tuned(250.0, 0.025).log_capital(0.0, 0.0).abs() < 1e-12);
        assert_eq!(Mixture::tuned(250.0, 0.025).log_capital(-1e6, 1.0), f64::NEG_INFINITY);
    }

    proptest! {
        #[test]
        fn the_boundary_is_where_the_capital_reaches_the_threshold(
            v in 0.0..1e6f64, log_threshold in 0.1..40.0f64, v_opt in 1.0..1e5f64,
        ) {
            let mixture = Mixture::tuned(v_opt, 0.025);
            let s = mixture.boundary(v, log_threshold);
            let capital = mixture.log_capital(s, v);
            prop_assert!((capital - log_threshold).abs() < 1e-6 * log_threshold.max(1.0), "{s} {capital}");
            prop_assert!(mixture.log_capital(s * 1.001, v) > log_threshold);
        }
    }
}
