use midspan_units::Rate;
use serde::{Deserialize, Serialize};

/// What a cell has to give: with a UE's channel quality it bounds what the UE can get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// LTE or NR.
    pub technology: Technology,
    /// Resource blocks across the cell: 50 in 10 MHz of LTE, 106 in 40 MHz of NR at 30 kHz.
    pub blocks: u32,
    /// Spatial layers at most.
    #[serde(default = "one")]
    pub layers: u32,
    /// Slots in a millisecond: 1 in LTE and in NR at 15 kHz, 2 at 30 kHz.
    #[serde(default = "one")]
    pub slots_per_ms: u32,
    /// Of a hundred slots, those that go down: 100 with frequency division.
    #[serde(default = "hundred")]
    pub downlink_percent: u32,
}

fn one() -> u32 {
    1
}

fn hundred() -> u32 {
    100
}

/// Which tables a channel quality indicator (CQI) refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Technology {
    /// LTE up to 64QAM: 3GPP TS 36.213, table 7.2.3-1.
    Lte,
    /// NR up to 64QAM: 3GPP TS 38.214, table 5.2.2.1-2.
    Nr,
    /// NR up to 256QAM: 3GPP TS 38.214, table 5.2.2.1-3.
    Nr256qam,
}

/// Bits in a resource element, by CQI 0 to 15, in 1/10000.
const UP_TO_64QAM: [u32; 16] = [
    0, 1523, 2344, 3770, 6016, 8770, 11758, 14766, 19141, 24063, 27305, 33223, 39023, 45234, 51152,
    55547,
];
const UP_TO_256QAM: [u32; 16] = [
    0, 1523, 3770, 8770, 14766, 19141, 24063, 27305, 33223, 39023, 45234, 51152, 55547, 62266,
    69141, 74063,
];

/// Resource elements in a block and slot: 12 subcarriers of 14 symbols.
const ELEMENTS: u64 = 168;

impl Cell {
    /// What this cell can be: a fault, or None.
    pub fn fault(&self) -> Option<&'static str> {
        if !(1..=1_000).contains(&self.blocks) {
            return Some("`blocks` must be between 1 and 1000");
        }
        if !(1..=8).contains(&self.layers) {
            return Some("`layers` must be between 1 and 8");
        }
        if !(1..=16).contains(&self.slots_per_ms) {
            return Some("`slots_per_ms` must be between 1 and 16");
        }
        if !(1..=100).contains(&self.downlink_percent) {
            return Some("`downlink_percent` must be between 1 and 100");
        }
        None
    }

    /// The most that a UE can be sent: all blocks of the cell over `sharers` UEs that want some, at
    /// the efficiency of its CQI (in 1/100, 0 to 1500), less the share of transport blocks that
    /// fail (in 1/100, 0 to 10,000).
    ///
    /// Of the resource elements 80 % carry data (LTE) or 86 % (NR: TS 38.306, section 4.1.2).
    pub fn ceiling(&self, cqi: u32, failing: u32, sharers: u32) -> Rate {
        let (table, useful) = match self.technology {
            Technology::Lte => (&UP_TO_64QAM, 80),
            Technology::Nr => (&UP_TO_64QAM, 86),
            Technology::Nr256qam => (&UP_TO_256QAM, 86),
        };
        let cqi = cqi.min(1_500);
        let (below, between) = ((cqi / 100) as usize, u64::from(cqi % 100));
        let (low, high) = (u64::from(table[below]), u64::from(table[(below + 1).min(15)]));
        // In 1/1,000,000 bit.
        let efficiency = low * 100 + (high - low) * between;
        let elements_per_s = u64::from(self.blocks)
            * u64::from(self.slots_per_ms)
            * u64::from(self.layers)
            * ELEMENTS
            * 1_000;
        let whole = u128::from(elements_per_s) * u128::from(efficiency) / 1_000_000;
        let useful = whole * useful / 100 * u128::from(self.downlink_percent) / 100;
        let right = useful * u128::from(10_000 - failing.min(10_000)) / 10_000;
        Rate::from_bps((right / u128::from(sharers.max(1))) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lte_10mhz() -> Cell {
        Cell {
            technology: Technology::Lte,
            blocks: 50,
            layers: 1,
            slots_per_ms: 1,
            downlink_percent: 100,
        }
    }

    /// The largest transport block of 50 resource blocks has 36,696 bits (3GPP TS 36.213, table
    /// 7.1.7.2.1-1), one a millisecond.
    #[test]
    fn the_ceiling_is_just_above_the_largest_transport_block() {
        let ceiling = lte_10mhz().ceiling(1_500, 0, 1).as_mbps();
        assert!((36.696..40.0).contains(&ceiling), "{ceiling}");
    }

    #[test]
    fn quality_failures_and_sharers_lower_it() {
        let ceiling = |cqi, failing, sharers| lte_10mhz().ceiling(cqi, failing, sharers).as_bps();
        let best = ceiling(1_500, 0, 1);
        assert_eq!(ceiling(0, 0, 1), 0);
        assert!(ceiling(1_400, 0, 1) < ceiling(1_450, 0, 1) && ceiling(1_450, 0, 1) < best);
        assert_eq!(ceiling(1_500, 5_000, 1), best / 2);
        assert_eq!(ceiling(1_500, 0, 4), best / 4);
        assert_eq!(ceiling(9_999, 99_999, 0), 0);
    }
}
