use midspan_units::{Distance, Frequency};

/// Metres per second.
pub(crate) const SPEED_OF_LIGHT: f64 = 299_792_458.0;

/// What of the sent power is received over free space between isotropic antennas (Friis 1946; ITU-R
/// P.525, equation 4): (wavelength / (4 pi distance))^2.
pub(crate) fn free_space(distance: Distance, frequency: Frequency) -> f64 {
    let wavelength = SPEED_OF_LIGHT / frequency.as_hz() as f64;
    let ratio = wavelength / (4.0 * std::f64::consts::PI * distance.as_metres());
    ratio * ratio
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ITU-R P.525: 32.4 + 20 log f (MHz) + 20 log d (km) decibels.
    #[test]
    fn the_loss_is_that_of_the_recommendation() {
        for (distance, megahertz, kilometres) in [("1 km", 2500u32, 1.0f64), ("250 m", 900, 0.25)] {
            let frequency = Frequency::from_hz(u64::from(megahertz) * 1_000_000);
            let loss = -10.0 * free_space(distance.parse().unwrap(), frequency).log10();
            let expected = 32.4 + 20.0 * f64::from(megahertz).log10() + 20.0 * kilometres.log10();
            assert!((loss - expected).abs() < 0.1, "{loss} dB, not {expected}");
        }
    }
}
