use midspan_units::{Frequency, Span};

use super::arithmetic::cos_sin;
use crate::random::Random;

/// A tap of ITU-R M.1225, annex 2, table 3 ("outdoor to indoor and pedestrian"), channel A.
struct Tap {
    nanos: f64,
    /// Share of the power: 0, -9.7, -19.2 and -22.8 dB, in all 1.
    power: f64,
}

const PEDESTRIAN_A: [Tap; 4] = [
    Tap { nanos: 0.0, power: 0.889_272 },
    Tap { nanos: 110.0, power: 0.095_287 },
    Tap { nanos: 190.0, power: 0.010_692 },
    Tap { nanos: 410.0, power: 0.004_667 },
];

/// Waves of which each tap is the sum.
const WAVES: usize = 16;

/// The points of the band at which the channel's gain is taken, evenly spread.
pub(crate) const POINTS: usize = 12;

/// The multipath channel ITU Pedestrian A: four taps that fade independently, with the classic
/// (Clarke's) Doppler spectrum. Each is a sum of waves from all around, by C. Xiao, Y. R. Zheng and
/// N. C. Beaulieu, "Novel sum-of-sinusoids simulation models for Rayleigh and Rician fading channels",
/// IEEE Transactions on Wireless Communications 5(12), 2006, equations 5.
#[derive(Debug, Clone)]
pub(crate) struct PedestrianA {
    taps: [[Wave; WAVES]; PEDESTRIAN_A.len()],
    /// Cosine and sine of what each tap's delay turns each point of the band by.
    turns: [[(f64, f64); POINTS]; PEDESTRIAN_A.len()],
}

#[derive(Debug, Clone, Copy, Default)]
struct Wave {
    /// Doppler shift in turns per second.
    shift: f64,
    /// Phase in turns.
    phase: f64,
}

impl PedestrianA {
    /// `doppler` is the greatest Doppler shift, in hertz; `bandwidth` the width of the band.
    pub(crate) fn new(doppler: f64, bandwidth: Frequency, random: &mut Random) -> Self {
        let mut turn = || f64::from(random.draw()) / 4_294_967_296.0;
        let mut taps = [[Wave::default(); WAVES]; PEDESTRIAN_A.len()];
        for wave in &mut taps {
            for (number, wave) in wave.iter_mut().enumerate() {
                let (cosine, _) = cos_sin((number as f64 + turn()) / WAVES as f64);
                *wave = Wave { shift: doppler * cosine, phase: turn() };
            }
        }
        let turns = PEDESTRIAN_A.each_ref().map(|tap| {
            let point = |number| {
                let offset = (number as f64 + 0.5) / POINTS as f64 - 0.5;
                cos_sin(-(bandwidth.as_hz() as f64) * offset * tap.nanos / 1e9)
            };
            std::array::from_fn(point)
        });
        PedestrianA { taps, turns }
    }

    /// The power gain at each point of the band, so long after the start. 1 on average.
    pub(crate) fn gains(&self, after: Span) -> [f64; POINTS] {
        let seconds = after.as_nanos() as f64 / 1e9;
        let taps = self.taps.each_ref().map(|waves| {
            waves.iter().fold((0.0, 0.0), |(real, imaginary), wave| {
                let (cosine, sine) = cos_sin(wave.shift * seconds + wave.phase);
                (real + cosine, imaginary + sine)
            })
        });
        std::array::from_fn(|point| {
            let (mut real, mut imaginary) = (0.0, 0.0);
            for ((tap, of), turns) in taps.iter().zip(&PEDESTRIAN_A).zip(&self.turns) {
                let amplitude = (of.power / WAVES as f64).sqrt();
                let (cosine, sine) = turns[point];
                real += amplitude * (tap.0 * cosine - tap.1 * sine);
                imaginary += amplitude * (tap.0 * sine + tap.1 * cosine);
            }
            real * real + imaginary * imaginary
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOPPLER: f64 = 7.0;

    fn channel(seed: u64, megahertz: u64) -> PedestrianA {
        PedestrianA::new(
            DOPPLER,
            Frequency::from_hz(megahertz * 1_000_000),
            &mut Random::new(seed, 0),
        )
    }

    /// Gains at the middle of the band every 5 ms, over many channels.
    fn samples() -> Vec<Vec<f64>> {
        let of = |seed| {
            let channel = channel(seed, 10);
            (0..2000).map(|step| channel.gains(Span::from_millis(step * 5))[6]).collect()
        };
        (0..60).map(of).collect()
    }

    #[test]
    fn the_taps_are_those_of_the_recommendation() {
        let decibels = [0.0, -9.7, -19.2, -22.8].map(|db: f64| 10f64.powf(db / 10.0));
        let all: f64 = decibels.iter().sum();
        for (tap, factor) in PEDESTRIAN_A.iter().zip(decibels) {
            assert!((tap.power - factor / all).abs() < 1e-4, "{} {}", tap.power, factor / all);
        }
        let power: f64 = PEDESTRIAN_A.iter().map(|tap| tap.power).sum();
        assert!((power - 1.0).abs() < 1e-3, "{power}");
    }

    /// Rayleigh: the power is exponentially distributed, with the mean 1.
    #[test]
    fn the_power_is_distributed_as_theory_says() {
        let samples: Vec<f64> = samples().into_iter().flatten().collect();
        let share = |below: f64| {
            samples.iter().filter(|gain| **gain < below).count() as f64 / samples.len() as f64
        };
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
        for below in [0.01, 0.1, 0.5, 1.0, 3.0f64] {
            let theory = 1.0 - (-below).exp();
            assert!((share(below) / theory - 1.0).abs() < 0.15, "{below}: {}", share(below));
        }
    }

    /// Rice: a Rayleigh channel crosses a level of rho times its root mean square
    /// sqrt(2 pi) f rho e^(-rho^2) times a second, upwards.
    #[test]
    fn it_fades_as_often_as_theory_says() {
        let samples = samples();
        let seconds = samples.len() as f64 * 10.0;
        for rho in [0.3, 1.0f64] {
            let up = |path: &Vec<f64>| {
                path.windows(2).filter(|two| two[0] < rho * rho && two[1] >= rho * rho).count()
            };
            let rate = samples.iter().map(up).sum::<usize>() as f64 / seconds;
            let theory = std::f64::consts::TAU.sqrt() * DOPPLER * rho * (-rho * rho).exp();
            assert!((rate / theory - 1.0).abs() < 0.15, "{rho}: {rate} Hz, not {theory}");
        }
    }

    /// The taps' delays make a wide band's ends fade apart, and leave a narrow one flat.
    #[test]
    fn a_wide_band_is_not_flat() {
        let spread = |megahertz| {
            let gains = channel(3, megahertz).gains(Span::from_millis(40));
            let (least, most) = gains.iter().fold((f64::MAX, 0.0f64), |(least, most), gain| {
                (least.min(*gain), most.max(*gain))
            });
            most / least
        };
        assert!(spread(20) > 1.5, "{}", spread(20));
        assert!(spread(0) < 1.000_001, "{}", spread(0));
    }

    #[test]
    fn who_stands_still_sees_no_change() {
        let channel = PedestrianA::new(0.0, Frequency::from_hz(1), &mut Random::new(1, 0));
        let (now, later) = (channel.gains(Span::ZERO), channel.gains(Span::from_secs(100)));
        assert_eq!(now, later);
    }
}
