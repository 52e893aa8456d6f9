//! How much of a millimetre-wave signal arrives in line of sight: 3GPP TR 38.901, table 7.4.1-1.

use midspan_units::{Decibels, Distance, Frequency, Power};

use crate::radio::decibels;

/// Path loss in decibels of the urban micro street canyon in line of sight, nearer than the breakpoint:
/// 32.4 + 21 log10(metres) + 20 log10(GHz). No nearer than 10 m, as the table has it.
fn path_loss(metres: f64, gigahertz: f64) -> f64 {
    32.4 + 2.1 * decibels(metres.max(10.0)) + 2.0 * decibels(gigahertz)
}

/// Thermal noise at 290 K in decibels over a milliwatt in a hertz.
const THERMAL_NOISE: f64 = -174.0;

/// Signal over noise in decibels. `gain` is that of both antennas.
pub(crate) fn signal_over_noise(
    power: Power,
    gain: Decibels,
    noise_figure: Decibels,
    (frequency, bandwidth): (Frequency, Frequency),
    distance: Distance,
) -> f64 {
    let hundredths = |value: i32| f64::from(value) / 100.0;
    let loss = path_loss(distance.as_metres(), frequency.as_hz() as f64 / 1e9);
    let noise = THERMAL_NOISE + decibels(bandwidth.as_hz() as f64);
    hundredths(power.as_hundredths()) + hundredths(gain.as_hundredths())
        - hundredths(noise_figure.as_hundredths())
        - loss
        - noise
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked by hand: 32.4 + 42 + 28.94 dB at 100 m and 28 GHz; 30 dBm + 30 dB - 103.34 dB is
    /// -43.34 dBm, over -174 + 83.01 + 7 = -83.99 dBm.
    #[test]
    fn the_link_budget_adds_up() {
        assert!((path_loss(100.0, 28.0) - 103.34).abs() < 0.01);
        assert!((path_loss(10.0, 1.0) - 53.4).abs() < 0.01);
        assert_eq!(path_loss(1.0, 28.0), path_loss(10.0, 28.0));
        let snr = signal_over_noise(
            "30 dBm".parse().unwrap(),
            "30 dB".parse().unwrap(),
            "7 dB".parse().unwrap(),
            ("28 GHz".parse().unwrap(), "200 MHz".parse().unwrap()),
            "100 m".parse().unwrap(),
        );
        assert!((snr - 40.65).abs() < 0.01, "{snr}");
    }
}
