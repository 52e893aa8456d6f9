//! How much of a site's signal arrives: 3GPP TR 25.814, tables A.2.1.1-1 (case 1) and A.2.1.1-3.

use super::geometry::{Point, SITES, Sites, uniform};
use super::spec::LteSpec;
use crate::radio::{cos_sin, decibels, exp_of_minus, factor, ln};
use crate::random::Random;

/// Path loss in decibels at 2 GHz over so many metres: 128.1 + 37.6 log10(R), R in kilometres, no
/// nearer than 35 m.
fn path_loss(metres: f64) -> f64 {
    128.1 + 3.76 * decibels(metres.max(35.0) / 1000.0)
}

/// Metres over which shadowing is correlated.
const CORRELATION: f64 = 50.0;

/// Log-normal shadowing of every site's signal at a user, in units of its standard deviation: half of
/// its variance is common to all sites (correlation 0.5 between them), and along a way it is
/// correlated as e^(-way / 50 m) (M. Gudmundson, "Correlation model for shadow fading in mobile radio
/// systems", Electronics Letters 27(23), 1991).
#[derive(Debug, Clone)]
pub(crate) struct Shadowing {
    common: f64,
    own: [f64; SITES],
}

impl Shadowing {
    pub(crate) fn new(random: &mut Random) -> Shadowing {
        Shadowing { common: normal(random), own: std::array::from_fn(|_| normal(random)) }
    }

    /// The user has gone so many metres.
    pub(crate) fn shift(&mut self, way: f64, random: &mut Random) {
        let kept = exp_of_minus(way / CORRELATION);
        let fresh = (1.0 - kept * kept).max(0.0).sqrt();
        for value in std::iter::once(&mut self.common).chain(&mut self.own) {
            *value = kept * *value + fresh * normal(random);
        }
    }

    fn of(&self, site: usize) -> f64 {
        (self.common + self.own[site]) * std::f64::consts::FRAC_1_SQRT_2
    }
}

/// Normally distributed, with mean 0 and deviation 1 (G. E. P. Box and M. E. Muller, 1958).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * ln(1.0 - uniform(random))).sqrt();
    radius * cos_sin(uniform(random)).0
}

/// Thermal noise in the 9 MHz of 50 resource blocks: -174 dBm/Hz and 10 log10(9e6).
const NOISE_DBM: f64 = -104.457_574_905_606_7;

/// Power received from each site over noise, if it sends on its whole band, as factors; without
/// multipath fading.
pub(crate) fn received(
    spec: &LteSpec,
    sites: &Sites,
    at: Point,
    shadowing: &Shadowing,
) -> [f64; SITES] {
    let hundredths = |value: i32| f64::from(value) / 100.0;
    let budget = hundredths(spec.power.as_hundredths())
        + hundredths(spec.antenna_gain.as_hundredths())
        - hundredths(spec.penetration.as_hundredths())
        - hundredths(spec.noise_figure.as_hundredths())
        - NOISE_DBM;
    let deviation = hundredths(spec.shadowing.as_hundredths());
    std::array::from_fn(|site| {
        let loss = path_loss(at.distance(sites.places[site]));
        factor(budget - loss + deviation * shadowing.of(site))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked by hand: at 1 km 128.1 dB, at 100 m 37.6 dB less, below 35 m as at 35 m (73.4 dB).
    #[test]
    fn the_path_loss_is_that_of_the_report() {
        assert!((path_loss(1000.0) - 128.1).abs() < 1e-9);
        assert!((path_loss(100.0) - 90.5).abs() < 1e-9);
        assert!((path_loss(250.0) - 105.46).abs() < 0.01);
        assert!((path_loss(35.0) - 73.36).abs() < 0.01);
        assert_eq!(path_loss(1.0), path_loss(35.0));
    }

    /// A link budget of case 1 at 250 m without shadowing: 46 dBm + 14 dB - 20 dB - 105.46 dB is
    /// -65.46 dBm; the noise is -104.46 dBm + 9 dB: 30.0 dB over it.
    #[test]
    fn the_link_budget_adds_up() {
        let spec = LteSpec { shadowing: Default::default(), ..LteSpec::default() };
        let sites = Sites::new(500.0);
        let at = Point { x: 250.0, y: 0.0 };
        let shadowing = Shadowing::new(&mut Random::new(1, 0));
        let snr = received(&spec, &sites, at, &shadowing)[0];
        assert!((10.0 * snr.log10() - 30.0).abs() < 0.02, "{}", 10.0 * snr.log10());
    }

    /// Deviation 1, correlation one half between two sites of one user, and e^-1 after 50 m.
    #[test]
    fn shadowing_is_correlated_as_the_report_says() {
        let mut random = Random::new(7, 0);
        let (mut square, mut between, mut along) = (0.0, 0.0, 0.0);
        let count = 20_000;
        for _ in 0..count {
            let mut shadowing = Shadowing::new(&mut random);
            let (one, other) = (shadowing.of(3), shadowing.of(11));
            (0..50).for_each(|_| shadowing.shift(1.0, &mut random));
            square += one * one;
            between += one * other;
            along += one * shadowing.of(3);
        }
        let mean = |sum: f64| sum / f64::from(count);
        assert!((mean(square) - 1.0).abs() < 0.05, "{}", mean(square));
        assert!((mean(between) - 0.5).abs() < 0.05, "{}", mean(between));
        assert!((mean(along) - 0.368).abs() < 0.05, "{}", mean(along));
    }
}
