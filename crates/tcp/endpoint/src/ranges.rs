//! Ranges of positions that are there while others before them are not.

/// Disjoint, non-adjacent, non-empty ranges in order. As many as there are holes: few.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The end of the last range, or zero.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |range| range.1)
    }

    /// The range that `at` is in.
    pub(crate) fn around(&self, at: u64) -> Option<(u64, u64)> {
        let next = self.0.partition_point(|range| range.1 <= at);
        self.0.get(next).copied().filter(|range| range.0 <= at)
    }

    /// The end of the range that `at` is in.
    pub(crate) fn end_of(&self, at: u64) -> Option<u64> {
        self.around(at).map(|range| range.1)
    }

    /// How many positions they hold in all.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|range| range.1 - range.0).sum()
    }

    /// Adds a range; `fresh` is told of each part of it that was not there.
    pub(crate) fn insert(&mut self, start: u64, end: u64, mut fresh: impl FnMut(u64, u64)) {
        if start >= end {
            return;
        }
        let first = self.0.partition_point(|range| range.1 < start);
        let mut next = first;
        let (mut merged, mut at) = ((start, end), start);
        while let Some(&(low, high)) = self.0.get(next).filter(|range| range.0 <= end) {
            if at < low {
                fresh(at, low);
            }
            at = at.max(high);
            merged = (merged.0.min(low), merged.1.max(high));
            next += 1;
        }
        if at < end {
            fresh(at, end);
        }
        if first == next {
            self.0.insert(first, merged);
        } else {
            self.0[first] = merged;
            self.0.drain(first + 1..next);
        }
    }

    /// Forgets everything before `start`.
    pub(crate) fn drop_below(&mut self, start: u64) {
        let gone = self.0.partition_point(|range| range.1 <= start);
        if gone > 0 {
            self.0.drain(..gone);
        }
        if let Some(range) = self.0.first_mut() {
            range.0 = range.0.max(start);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set of positions.
        #[test]
        fn ranges_are_a_set(steps in prop::collection::vec((0u64..60, 0u64..12, any::<bool>()), 0..40)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (start, length, drop) in steps {
                if drop && length == 0 {
                    ranges.drop_below(start);
                    set = set.split_off(&start);
                    continue;
                }
                let mut fresh = BTreeSet::new();
                ranges.insert(start, start + length, |from, to| fresh.extend(from..to));
                let expected: BTreeSet<u64> =
                    (start..start + length).filter(|at| !set.contains(at)).collect();
                prop_assert_eq!(&fresh, &expected);
                set.extend(expected);
                prop_assert!(ranges.0.windows(2).all(|pair| pair[0].1 < pair[1].0));
                prop_assert!(ranges.0.iter().flat_map(|range| range.0..range.1).eq(set.iter().copied()));
                prop_assert_eq!(ranges.total(), set.len() as u64);
                for at in 0..80 {
                    prop_assert_eq!(ranges.around(at).is_some(), set.contains(&at));
                }
            }
        }
    }
}
