use midspan_units::{Decibels, Distance, Frequency, Power, Span, Speed};
use serde::{Deserialize, Serialize};

use super::arithmetic::factor_of_decibels;
use super::fading::{POINTS, PedestrianA};
use super::path_loss::{SPEED_OF_LIGHT, free_space};
use crate::random::Random;

/// A radio channel between a base station and one UE: free-space path loss, and multipath fading of
/// ITU Pedestrian A, which is 1 on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelSpec {
    /// Carrier frequency.
    pub frequency: Frequency,
    /// Width of the band: of the noise, and of what fades apart.
    pub bandwidth: Frequency,
    /// From the base station to the UE.
    pub distance: Distance,
    /// Sent power, gains of both antennas included.
    pub power: Power,
    /// Noise figure of the receiver. Default 7 dB, as a UE's in ITU-R M.2135, table A1.3.
    #[serde(default = "default_noise_figure")]
    pub noise_figure: Decibels,
    /// Speed of the UE. Default 3 km/h.
    #[serde(default = "default_speed")]
    pub speed: Speed,
}

fn default_noise_figure() -> Decibels {
    Decibels::from_hundredths(700)
}

fn default_speed() -> Speed {
    Speed::from_metres_per_hour(3000)
}

/// Thermal noise at 290 K, milliwatts in a hertz: -174 dBm.
const THERMAL_NOISE: f64 = 4.003_882e-18;

impl ChannelSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.frequency.as_hz() == 0 || self.bandwidth.as_hz() == 0 {
            return Err("a channel has a frequency and a bandwidth above zero, such as `2.5 GHz` \
                        and `5 MHz`"
                .to_owned());
        }
        if self.distance.as_metres() <= 0.0 {
            return Err(
                "the UE stands at some distance from its base station, such as `500 m`".to_owned()
            );
        }
        Ok(())
    }

    /// Signal over noise without fading, as a factor.
    fn mean_snr(&self) -> f64 {
        let received = factor_of_decibels(self.power.as_hundredths())
            * free_space(self.distance, self.frequency);
        let noise = THERMAL_NOISE
            * self.bandwidth.as_hz() as f64
            * factor_of_decibels(self.noise_figure.as_hundredths());
        received / noise
    }

    /// Greatest Doppler shift, in hertz.
    fn doppler(&self) -> f64 {
        self.speed.as_metres_per_second() / SPEED_OF_LIGHT * self.frequency.as_hz() as f64
    }
}

/// A channel in time. Its seed decides all of it beforehand.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    mean: f64,
    fading: PedestrianA,
}

impl Channel {
    pub(crate) fn new(spec: &ChannelSpec, random: &mut Random) -> Self {
        Channel {
            mean: spec.mean_snr(),
            fading: PedestrianA::new(spec.doppler(), spec.bandwidth, random),
        }
    }

    /// Signal over noise at each point of the band, so long after the start, as factors.
    pub(crate) fn snr(&self, after: Span) -> [f64; POINTS] {
        self.fading.gains(after).map(|gain| self.mean * gain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn spec() -> ChannelSpec {
        toml::from_str(
            "frequency = '2.5 GHz'\nbandwidth = '5 MHz'\ndistance = '1 km'\npower = '23 dBm'",
        )
        .unwrap()
    }

    /// A link budget: 23 dBm - 100.4 dB of free space - (-174 + 67 + 7 dBm of noise) = 22.6 dB.
    #[test]
    fn the_link_budget_adds_up() {
        let decibels = 10.0 * spec().mean_snr().log10();
        assert!((decibels - 22.6).abs() < 0.1, "{decibels} dB");
    }

    /// 3 km/h at 2.5 GHz: 6.95 Hz.
    #[test]
    fn the_doppler_shift_is_speed_over_wavelength() {
        assert!((spec().doppler() - 6.95).abs() < 0.01, "{}", spec().doppler());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let none = Frequency::from_hz(0);
        assert!(ChannelSpec { frequency: none, ..spec() }.check().is_err());
        assert!(ChannelSpec { bandwidth: none, ..spec() }.check().is_err());
        assert!(ChannelSpec { distance: Distance::default(), ..spec() }.check().is_err());
    }
}
