use serde::{Deserialize, Serialize};

use super::arithmetic::{exp_of_minus, to_the_power};
use super::fading::POINTS;

/// Modulation and code rate of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Modulation {
    /// One bit a symbol, of which half is information.
    #[serde(rename = "bpsk 1/2")]
    Bpsk12,
    /// Two bits a symbol, half of them information.
    #[serde(rename = "qpsk 1/2")]
    Qpsk12,
    /// Two bits a symbol, three quarters of them information.
    #[serde(rename = "qpsk 3/4")]
    Qpsk34,
    /// Four bits a symbol, nine sixteenths of them information.
    #[serde(rename = "16qam 9/16")]
    Qam16916,
    /// Four bits a symbol, three quarters of them information.
    #[serde(rename = "16qam 3/4")]
    Qam1634,
    /// Six bits a symbol, three quarters of them information.
    #[serde(rename = "64qam 3/4")]
    Qam6434,
}

/// Bits of the packets that table II is for: the code word here.
const CODE_WORD: u64 = 1080;

impl Modulation {
    /// a and g of a code word's error probability, min(1, a e^(-g SNR)): Q. Liu, S. Zhou and G. B.
    /// Giannakis, "Cross-layer combining of adaptive modulation and coding with truncated ARQ over
    /// wireless links", IEEE Transactions on Wireless Communications 3(5), 2004, equation 5 and table
    /// II (convolutional codes of HIPERLAN/2 and IEEE 802.11a).
    fn parameters(self) -> (f64, f64) {
        match self {
            Modulation::Bpsk12 => (274.7229, 7.9932),
            Modulation::Qpsk12 => (90.2514, 3.4998),
            Modulation::Qpsk34 => (67.6181, 1.6883),
            Modulation::Qam16916 => (50.1222, 0.6644),
            Modulation::Qam1634 => (53.3987, 0.3756),
            Modulation::Qam6434 => (35.3508, 0.0900),
        }
    }

    /// Probability that a block of so many bytes is not received: one of its code words is not.
    /// `snr` is what the receiver has collected at each point of the band, which is weighted as
    /// exponential effective SNR mapping does (3GPP TR 25.892, annex A.4.3, with beta = 1 / g).
    fn block_error(self, snr: &[f64; POINTS], bytes: u64) -> f64 {
        let (a, g) = self.parameters();
        let mean = snr.iter().map(|snr| exp_of_minus(g * snr)).sum::<f64>() / POINTS as f64;
        let word = (a * mean).min(1.0);
        let words = u32::try_from((bytes * 8).div_ceil(CODE_WORD)).unwrap_or(u32::MAX);
        1.0 - to_the_power(1.0 - word, words)
    }
}

/// What a HARQ receiver has of a block: with Chase combining (IEEE Transactions on Communications 33,
/// 1985) the energy of every transmission of it adds up.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Soft([f64; POINTS]);

impl Soft {
    /// The block has been sent over this channel, once more.
    pub(crate) fn add(&mut self, snr: &[f64; POINTS]) {
        self.0.iter_mut().zip(snr).for_each(|(sum, snr)| *sum += snr);
    }

    /// Whether a block of so many bytes can be read now, by a uniformly random 32-bit number.
    pub(crate) fn is_received(&self, modulation: Modulation, bytes: u64, draw: u32) -> bool {
        f64::from(draw) >= modulation.block_error(&self.0, bytes) * 4_294_967_296.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(Modulation, f64); 6] = [
        (Modulation::Bpsk12, -1.5331),
        (Modulation::Qpsk12, 1.0942),
        (Modulation::Qpsk34, 3.9722),
        (Modulation::Qam16916, 7.7021),
        (Modulation::Qam1634, 10.2488),
        (Modulation::Qam6434, 15.9784),
    ];

    fn flat(decibels: f64) -> [f64; POINTS] {
        [10f64.powf(decibels / 10.0); POINTS]
    }

    /// Table II also has the SNR below which every packet is lost: where the curve reaches 1.
    #[test]
    fn the_curves_reach_one_where_the_table_has_it() {
        for (modulation, threshold) in ALL {
            let just_above = modulation.block_error(&flat(threshold + 0.02), 135);
            assert!((0.95..1.0).contains(&just_above), "{modulation:?}: {just_above}");
            assert_eq!(modulation.block_error(&flat(threshold - 0.02), 135), 1.0);
        }
    }

    /// QPSK 1/2 at 4 dB: 90.2514 e^(-3.4998 x 2.5119) = 1.37 %; two code words 2.72 %.
    #[test]
    fn a_worked_value() {
        let one = Modulation::Qpsk12.block_error(&flat(4.0), 135);
        assert!((one - 0.0137).abs() < 0.0002, "{one}");
        let two = Modulation::Qpsk12.block_error(&flat(4.0), 136);
        assert!((two - 0.0272).abs() < 0.0003, "{two}");
    }

    /// Twice the same block is as once with 3 dB more.
    #[test]
    fn transmissions_combine() {
        let mut soft = Soft::default();
        soft.add(&flat(1.0));
        soft.add(&flat(1.0));
        let twice = Modulation::Qpsk12.block_error(&soft.0, 135);
        let stronger = Modulation::Qpsk12.block_error(&flat(1.0 + 3.0103), 135);
        assert!((twice - stronger).abs() < 1e-6, "{twice} {stronger}");
        // What fails in 2 % of cases fails for the least draws.
        assert!(!soft.is_received(Modulation::Qpsk12, 135, 1000));
        assert!(soft.is_received(Modulation::Qpsk12, 135, u32::MAX));
    }

    /// A notch in the band costs more than the mean SNR says.
    #[test]
    fn a_notch_counts() {
        let mut notched = flat(8.0);
        notched[0] = 0.01;
        let error = Modulation::Qpsk12.block_error(&notched, 135);
        assert!(error > 0.9, "{error}");
    }
}
