use crate::ranges::Ranges;

/// How many blocks there is room for in any option: with timestamps it holds three, and the first may be a duplicate's.
const SURELY_TOLD: usize = 2;

/// What goes into the SACK option: the block that came last first (RFC 2018, section 4), and before
/// it, once, what came twice (RFC 2883).
#[derive(Debug, Default)]
pub(super) struct Report {
    duplicate: Option<(u64, u64)>,
    /// A position in each of the blocks that grew last, the newest first; zero for none.
    recent: [u64; 4],
}

impl Report {
    /// Something came twice.
    pub(super) fn duplicate(&mut self, start: u64, end: u64) {
        if start < end {
            self.duplicate.get_or_insert((start, end));
        }
    }

    /// Something came out of order: it is part of `block` now.
    pub(super) fn arrived(&mut self, block: (u64, u64)) {
        let mut recent = [block.0, 0, 0, 0];
        let others = self.recent.iter().filter(|at| **at < block.0 || block.1 <= **at);
        recent[1..].iter_mut().zip(others).for_each(|(place, at)| *place = *at);
        self.recent = recent;
    }

    /// Whether the next acknowledgement might not tell of all that the last one has not told of, now that something has
    /// become part of `block`: an option has room for three blocks, one of which may be a duplicate's.
    pub(super) fn overflows(&self, block: (u64, u64), ranges: &Ranges) -> bool {
        let known = self.recent.iter().filter(|at| ranges.around(**at).is_some());
        known.take_while(|at| **at < block.0 || block.1 <= **at).count() >= SURELY_TOLD
    }

    /// The blocks of the next acknowledgement, and how many.
    pub(super) fn blocks(&mut self, ranges: &Ranges) -> ([(u64, u64); 3], u8) {
        let (mut blocks, mut count) = ([(0, 0); 3], 0);
        let mut add = |block| {
            if count < blocks.len() {
                blocks[count] = block;
                count += 1;
            }
        };
        self.duplicate.take().into_iter().for_each(&mut add);
        if !ranges.is_empty() {
            self.recent.iter().filter_map(|at| ranges.around(*at)).for_each(&mut add);
        }
        (blocks, count as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(report: &mut Report, ranges: &mut Ranges, start: u64, end: u64) -> Vec<(u64, u64)> {
        ranges.insert(start, end, |_, _| {});
        report.arrived(ranges.around(start).unwrap());
        let (blocks, count) = report.blocks(ranges);
        blocks[..usize::from(count)].to_vec()
    }

    /// RFC 2018, section 7, case 3: of eight segments of 500 bytes from 5000 on, the second, fourth,
    /// sixth and eighth are lost; then the fourth comes.
    #[test]
    fn the_example_of_rfc_2018() {
        let (mut report, mut ranges) = (Report::default(), Ranges::default());
        let first = arrive(&mut report, &mut ranges, 6000, 6500);
        assert_eq!(first, [(6000, 6500)]);
        let second = arrive(&mut report, &mut ranges, 7000, 7500);
        assert_eq!(second, [(7000, 7500), (6000, 6500)]);
        let third = arrive(&mut report, &mut ranges, 8000, 8500);
        assert_eq!(third, [(8000, 8500), (7000, 7500), (6000, 6500)]);
        let fourth = arrive(&mut report, &mut ranges, 6500, 7000);
        assert_eq!(fourth, [(6000, 7500), (8000, 8500)]);
    }

    /// RFC 2883, section 4.1.1: a duplicate segment that is acknowledged already.
    #[test]
    fn a_duplicate_is_reported_once_and_first() {
        let (mut report, mut ranges) = (Report::default(), Ranges::default());
        arrive(&mut report, &mut ranges, 6000, 6500);
        report.duplicate(3000, 3500);
        let (blocks, count) = report.blocks(&ranges);
        assert_eq!((&blocks[..2], count), (&[(3000, 3500), (6000, 6500)][..], 2));
        assert_eq!(report.blocks(&ranges).1, 1);
    }
}
