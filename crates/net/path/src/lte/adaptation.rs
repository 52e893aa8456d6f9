//! What a block carries, and whether it is received: 3GPP TS 36.213 (Release 8), sections 7.1.7 and
//! 7.2.3, for 10 MHz and one antenna.

use crate::radio::{POINTS, decibels, exp_of_minus, factor};

/// Resource blocks of 10 MHz (TS 36.104, table 5.6-1).
pub(crate) const BLOCKS: u32 = 50;

/// Resource blocks of a group, which is what is given to users (TS 36.213, table 7.1.6.1-1).
const GROUP: u32 = 3;

/// Groups of the band; the last one has two blocks.
pub(crate) const GROUPS: usize = 17;

/// Resource blocks of group `group`.
pub(crate) fn blocks_of(group: usize) -> u32 {
    if group + 1 == GROUPS { BLOCKS - GROUP * (GROUPS as u32 - 1) } else { GROUP }
}

/// The point of the band at which a group's channel is taken.
pub(crate) fn point_of(group: usize) -> usize {
    group * POINTS / GROUPS
}

/// Resource elements of a block's millisecond that carry data: 14 symbols of 12 subcarriers, less three
/// symbols of control and the six reference symbols of one antenna in the others (TS 36.211, section
/// 6.10.1).
pub(crate) const ELEMENTS: f64 = 126.0;

/// Bits per resource element of the CQIs 1 to 15: TS 36.213, table 7.2.3-1.
const CQI_EFFICIENCY: [f64; 15] = [
    0.1523, 0.2344, 0.3770, 0.6016, 0.8770, 1.1758, 1.4766, 1.9141, 2.4063, 2.7305, 3.3223, 3.9023,
    4.5234, 5.1152, 5.5547,
];

/// Signal over noise at which a block of each CQI fails once in ten times, in decibels: the curves of
/// C. Mehlführer, M. Wrulich, J. C. Ikuno, D. Bosanska and M. Rupp, "Simulating the Long Term Evolution
/// physical layer", EUSIPCO 2009, for one antenna and white noise.
const CQI_DECIBELS: [f64; 15] =
    [-6.9, -5.1, -3.2, -1.3, 0.8, 2.7, 4.7, 6.5, 8.6, 10.4, 12.3, 14.2, 15.9, 17.8, 19.8];

/// Bits of a transport block over all 50 blocks, for the indices 0 to 25: TS 36.213, table
/// 7.1.7.2.1-1. The table's other columns are this one in proportion but for rounding; index 26 leaves
/// less than the 7 % of redundancy that a receiver may ask for (section 7.1.7).
const BLOCK_BITS: [u32; 26] = [
    1384, 1800, 2216, 2856, 3624, 4392, 5160, 6200, 6968, 7992, 8760, 9912, 11_448, 12_960, 14_112,
    15_264, 16_416, 18_336, 19_848, 21_384, 22_920, 25_456, 27_376, 28_336, 30_576, 31_704,
];

/// Bits per resource element that a signal so many decibels over noise can carry: the CQIs' own, and
/// straight lines between them.
pub(crate) fn efficiency(decibels: f64) -> f64 {
    if decibels < CQI_DECIBELS[0] {
        return 0.0;
    }
    along(&CQI_DECIBELS, &CQI_EFFICIENCY, decibels)
}

/// Decibels over noise that so many bits per resource element take.
fn needed(efficiency: f64) -> f64 {
    along(&CQI_EFFICIENCY, &CQI_DECIBELS, efficiency)
}

/// `to` at `value` of `from`, by straight lines; the ends' beyond the ends.
fn along(from: &[f64; 15], to: &[f64; 15], value: f64) -> f64 {
    let above = from.iter().position(|mark| value < *mark).unwrap_or(from.len());
    if above == 0 {
        return to[0];
    }
    let Some(next) = from.get(above) else { return to[to.len() - 1] };
    let share = (value - from[above - 1]) / (next - from[above - 1]);
    to[above - 1] + share * (to[above] - to[above - 1])
}

/// What a user reports of a point of the band: the efficiency of the best CQI of which a block would
/// fail at most once in ten times. Zero out of range.
pub(crate) fn reported(efficiency: f64) -> f64 {
    CQI_EFFICIENCY.iter().rev().copied().find(|level| *level <= efficiency).unwrap_or(0.0)
}

/// The index, and so the bits, of the block that is sent where the parts of the band carry
/// `efficiency` on the mean, corrected by so many decibels.
pub(crate) fn choose(efficiency: f64, correction: f64) -> usize {
    let decibels = needed(efficiency) + correction;
    let fits = |bits: &u32| needed(efficiency_of(*bits)) <= decibels;
    BLOCK_BITS.iter().rposition(fits).unwrap_or(0)
}

/// Bytes of a block of index `index` in so many resource blocks.
pub(crate) fn block_bytes(index: usize, blocks: u32) -> u64 {
    u64::from(BLOCK_BITS[index] * blocks / BLOCKS / 8)
}

fn efficiency_of(bits: u32) -> f64 {
    f64::from(bits) / (f64::from(BLOCKS) * ELEMENTS)
}

/// What a receiver has of a block: with Chase combining the energy of every transmission adds up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Soft(f64);

/// How fast a block error probability falls: from one in ten to one in a hundred within half a decibel,
/// as turbo codes of some thousand bits do.
const STEEPNESS: f64 = 4.8;

impl Soft {
    /// The block was sent once more, over parts of the band that carry so much on the mean (the mean
    /// mutual information of its symbols, as 3GPP and IEEE 802.16m map several SNRs to one).
    pub(crate) fn add(&mut self, efficiency: f64) {
        if efficiency > 0.0 {
            self.0 += factor(needed(efficiency));
        }
    }

    /// Probability that a block of index `index` cannot be read yet.
    pub(crate) fn error(self, index: usize) -> f64 {
        if self.0 <= 0.0 {
            return 1.0;
        }
        let above = decibels(self.0) - needed(efficiency_of(BLOCK_BITS[index]));
        // 1 / (1 + 9 e^(steepness above)): a tenth at zero.
        let power = STEEPNESS * above;
        if power >= 0.0 {
            let small = exp_of_minus(power);
            small / (small + 9.0)
        } else {
            1.0 / (1.0 + 9.0 * exp_of_minus(-power))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code rates of table 7.2.3-1, in 1/1024, times the bits of a symbol.
    #[test]
    fn the_efficiencies_are_modulation_times_code_rate() {
        let rates = [78, 120, 193, 308, 449, 602, 378, 490, 616, 466, 567, 666, 772, 873, 948];
        for (index, (efficiency, rate)) in CQI_EFFICIENCY.iter().zip(rates).enumerate() {
            let bits = match index {
                0..6 => 2,
                6..9 => 4,
                _ => 6,
            };
            let exact = f64::from(bits * rate) / 1024.0;
            assert!((efficiency - exact).abs() < 5e-4, "CQI {}: {exact}", index + 1);
        }
    }

    /// Each needs 2 to 4 dB more than Shannon's bound; none is better than it.
    #[test]
    fn the_thresholds_keep_their_distance_from_shannon() {
        for (efficiency, decibels) in CQI_EFFICIENCY.iter().zip(CQI_DECIBELS) {
            let bound = 10.0 * (efficiency.exp2() - 1.0).log10();
            assert!((1.5..4.0).contains(&(decibels - bound)), "{efficiency}: {}", decibels - bound);
        }
    }

    /// Values of table 7.1.7.2.1-1 in other columns, within its own rounding.
    #[test]
    fn other_columns_are_in_proportion() {
        let table = [
            (0, 9, 256),
            (0, 24, 648),
            (3, 6, 328),
            (3, 30, 1736),
            (6, 12, 1224),
            (9, 15, 2344),
            (9, 30, 4776),
            (12, 24, 5544),
            (15, 27, 8248),
            (15, 48, 14_688),
            (18, 12, 4776),
            (18, 36, 14_112),
            (20, 9, 4136),
            (20, 48, 22_152),
            (21, 24, 12_216),
        ];
        for (index, blocks, bits) in table {
            let ours = block_bytes(index, blocks) as f64 * 8.0;
            assert!((ours / f64::from(bits) - 1.0).abs() < 0.05, "{index}, {blocks}: {ours}");
        }
        assert_eq!(block_bytes(25, 50), 3963);
        assert_eq!((0..GROUPS).map(blocks_of).sum::<u32>(), 50);
        assert!((0..GROUPS).map(point_of).is_sorted() && point_of(GROUPS - 1) == POINTS - 1);
    }

    #[test]
    fn between_two_cqis_is_a_straight_line() {
        assert_eq!(efficiency(4.7), 1.4766);
        assert!((efficiency(5.6) - (1.4766 + 1.9141) / 2.0).abs() < 1e-9);
        assert_eq!((efficiency(-6.91), efficiency(40.0)), (0.0, 5.5547));
        assert!((needed(1.4766) - 4.7).abs() < 1e-9);
        assert_eq!((reported(1.9), reported(1.9141), reported(0.1)), (1.4766, 1.9141, 0.0));
    }

    /// At 4.7 dB index 10 (8760 bits, 1.39 per element) fits and 11 (9912 bits, 1.57) does not.
    #[test]
    fn the_block_follows_the_channel() {
        assert_eq!(choose(1.4766, 0.0), 10);
        assert!(choose(1.4766, 2.0) > 10 && choose(1.4766, -2.0) < 10);
        assert_eq!((choose(5.5547, 3.0), choose(0.0, 0.0)), (25, 0));
    }

    #[test]
    fn at_its_threshold_a_block_fails_once_in_ten_and_half_a_decibel_above_once_in_a_hundred() {
        let error = |index: usize, above: f64| {
            Soft(factor(needed(efficiency_of(BLOCK_BITS[index])) + above)).error(index)
        };
        for index in [2, 9, 17, 25] {
            assert!((error(index, 0.0) - 0.1).abs() < 1e-6);
            assert!((error(index, 0.5) - 0.01).abs() < 1e-3, "{}", error(index, 0.5));
            assert!(error(index, -2.0) > 0.99 && error(index, 3.0) < 1e-6);
        }
        assert_eq!(Soft::default().error(0), 1.0);
    }

    /// Twice the same is 3 dB more.
    #[test]
    fn transmissions_combine() {
        let mut twice = Soft::default();
        twice.add(1.4766);
        assert!((decibels(twice.0) - 4.7).abs() < 1e-6);
        twice.add(1.4766);
        assert!((decibels(twice.0) - 7.71).abs() < 1e-2);
        twice.add(0.0);
        assert!((decibels(twice.0) - 7.71).abs() < 1e-2);
    }
}
