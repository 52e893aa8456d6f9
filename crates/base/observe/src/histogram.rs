//! Histograms that one thread fills and others may read at any time, without locks.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a histogram counts: in which unit, and between which bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Upper bounds of the buckets, each included, ascending; one more bucket has what is above.
    pub bounds: &'static [u64],
    /// How many make one of the base unit: a million microseconds are a second. Divided by it, bounds are the decimals
    /// that they are meant to be.
    pub per_unit: u32,
}

/// Times, from 100 us to 100 s in microseconds, closest where round trips over radio are.
pub const TIME: Scale = Scale {
    bounds: &[
        100,
        250,
        500,
        1_000,
        2_500,
        5_000,
        10_000,
        15_000,
        20_000,
        30_000,
        40_000,
        50_000,
        75_000,
        100_000,
        150_000,
        200_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        100_000_000,
    ],
    per_unit: 1_000_000,
};

/// Rates, from 10 kB/s (80 kbit/s) to 2.5 GB/s (20 Gbit/s) in bytes per second.
pub const RATE: Scale = Scale {
    bounds: &[
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        25_000_000,
        50_000_000,
        100_000_000,
        250_000_000,
        500_000_000,
        1_000_000_000,
        2_500_000_000,
    ],
    per_unit: 1,
};

/// Shares, from none to half in parts per million.
pub const SHARE: Scale = Scale {
    bounds: &[
        0, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    ],
    per_unit: 1_000_000,
};

/// Buckets that any [`Scale`] has at most, with the one above its bounds.
const BUCKETS: usize = 24;

/// Counts of values by size. One thread records; what others read may lag, and its parts may be
/// those of different moments.
#[derive(Debug)]
pub struct Histogram {
    scale: Scale,
    counts: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Histogram {
    /// An empty one.
    pub const fn new(scale: Scale) -> Self {
        assert!(scale.bounds.len() < BUCKETS);
        Histogram { scale, counts: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) }
    }

    /// Counts a value, given in the scale's unit.
    pub fn record(&self, value: u64) {
        let bucket = self.scale.bounds.partition_point(|&bound| bound < value);
        add(&self.counts[bucket], 1);
        add(&self.sum, value);
    }

    /// All that these have counted, which must be of one scale.
    pub fn total<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Distribution {
        let mut total = Distribution::default();
        for histogram in histograms {
            let bounds = histogram.scale.bounds;
            let per_unit = f64::from(histogram.scale.per_unit);
            total.buckets.resize(bounds.len() + 1, (f64::INFINITY, 0));
            for (index, (bound, count)) in total.buckets.iter_mut().enumerate() {
                *bound = bounds.get(index).map_or(f64::INFINITY, |&bound| bound as f64 / per_unit);
                *count += histogram.counts[index].load(Ordering::Relaxed);
            }
            total.sum += histogram.sum.load(Ordering::Relaxed) as f64 / per_unit;
        }
        total
    }
}

/// One thread writes, so a plain load and store lose nothing.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// What histograms have counted together, in the base unit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Distribution {
    /// Upper bound of each bucket, the last infinite, and how many values are in it and not below.
    pub buckets: Vec<(f64, u64)>,
    /// Sum of all values.
    pub sum: f64,
}

impl Distribution {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SCALE: Scale = Scale { bounds: &[0, 10, 100], per_unit: 2 };

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(SCALE);
        [0, 10, 11, 100, 101, 1000].iter().for_each(|&value| histogram.record(value));
        let total = Histogram::total([&histogram].into_iter());
        assert_eq!(total.buckets, [(0.0, 1), (5.0, 1), (50.0, 2), (f64::INFINITY, 2)]);
        assert_eq!((total.sum, total.count()), (611.0, 6));
    }

    #[test]
    fn bounds_ascend() {
        for scale in [TIME, RATE, SHARE] {
            assert!(scale.bounds.is_sorted_by(|a, b| a < b), "{scale:?}");
            Histogram::new(scale);
        }
    }

    proptest! {
        #[test]
        fn the_total_is_all_of_them(values in prop::collection::vec((0u64..200, 0usize..3), 0..100)) {
            let workers = [const { Histogram::new(SCALE) }; 3];
            for &(value, worker) in &values {
                workers[worker].record(value);
            }
            let total = Histogram::total(workers.iter());
            prop_assert_eq!(total.count(), values.len() as u64);
            prop_assert_eq!(total.sum, values.iter().map(|(value, _)| *value as f64 / 2.0).sum::<f64>());
            let mut below = f64::NEG_INFINITY;
            for (bound, count) in total.buckets {
                let inside = |value: f64| value > below && value <= bound;
                let expected = values.iter().filter(|(value, _)| inside(*value as f64 / 2.0)).count();
                prop_assert_eq!(count, expected as u64);
                below = bound;
            }
        }
    }
}
