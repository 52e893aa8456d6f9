//! What rate a signal gives one user of the whole cell: 3GPP TS 38.306, section 4.1.2.

use midspan_units::{Frequency, Rate};

use crate::lte;

/// Bandwidth in MHz and resource blocks at 120 kHz of subcarrier spacing: TS 38.101-2, table 5.3.2-1.
pub(crate) const RESOURCE_BLOCKS: [(u64, u32); 4] = [(50, 32), (100, 66), (200, 132), (400, 264)];

/// Resource blocks of a bandwidth; none if there is no such one.
pub(crate) fn resource_blocks(bandwidth: Frequency) -> Option<u32> {
    let of = |(megahertz, _): &&(u64, u32)| megahertz * 1_000_000 == bandwidth.as_hz();
    RESOURCE_BLOCKS.iter().find(of).map(|(_, blocks)| *blocks)
}

/// Symbols of a second at 120 kHz: 14 in each slot of an eighth of a millisecond (TS 38.211, table
/// 4.3.2-1).
const SYMBOLS: f64 = 14.0 * 8000.0;
const SUBCARRIERS: f64 = 12.0;
/// What reference signals and control take of a downlink above 6 GHz (section 4.1.2).
const OVERHEAD: f64 = 0.18;

/// The rate of one layer to a user whom all resource blocks serve all the time, by the efficiency of the
/// best CQI of TS 38.214, table 5.2.2.1-2 (the same numbers as LTE's), which a signal so many decibels over
/// noise has. Zero out of range.
pub(crate) fn user_rate(blocks: u32, decibels: f64) -> Rate {
    let efficiency = lte::reported(lte::efficiency(decibels));
    let symbols = f64::from(blocks) * SUBCARRIERS * SYMBOLS;
    Rate::from_bps((efficiency * symbols * (1.0 - OVERHEAD)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked by hand: 132 blocks of 12 subcarriers and 112,000 symbols a second are 177.4 million, of
    /// which 18 % are overhead; CQI 15 has 5.5547 bits in each, CQI 7 has 1.4766 (at 4.7 dB and more).
    #[test]
    fn the_rate_is_that_of_the_formula() {
        let megabits = |decibels| user_rate(132, decibels).as_bps() / 1_000_000;
        assert_eq!(megabits(40.0), 808);
        assert_eq!(megabits(5.0), 214);
        assert_eq!(megabits(-10.0), 0);
    }

    #[test]
    fn only_bandwidths_of_the_table_have_blocks() {
        assert_eq!(resource_blocks("200 MHz".parse().unwrap()), Some(132));
        assert_eq!(resource_blocks("20 MHz".parse().unwrap()), None);
    }
}
