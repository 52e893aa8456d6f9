use crate::ranges::Ranges;

/// What goes into the SACK option: the block that came last first (RFC 2018, section 4), and before
/// it, once, what came twice (RFC 2883).
#[derive(Debug, Default)]
pub(super) struct Report {
    duplicate: Option<(u64, u64)>,
    /// A position in each of the blocks reported last, the newest first.
    recent: [u64; 3],
}

impl Report {
    /// Something came twice.
    pub(super) fn duplicate(&mut self, start: u64, end: u64) {
        if start < end {
            self.duplicate.get_or_insert((start, end));
        }
    }

    /// Something came out of order at `at`.
    pub(super) fn arrived(&mut self, at: u64) {
        self.recent = [at, self.recent[0], self.recent[1]];
    }

    /// The blocks of the next acknowledgement, and how many. The newest arrivals of one block count
    /// once; places left are for older blocks.
    pub(super) fn blocks(&mut self, nxt: u64, ranges: &Ranges) -> ([(u64, u64); 3], u8) {
        let (mut blocks, mut count) = ([(0, 0); 3], 0);
        if let Some(duplicate) = self.duplicate.take() {
            blocks[0] = duplicate;
            count = 1;
        }
        if ranges.is_empty() {
            return (blocks, count as u8);
        }
        let dsack = count;
        for at in self.recent {
            if let Some(block) = ranges.around(at).filter(|block| block.0 >= nxt)
                && !blocks[dsack..count].contains(&block)
                && count < blocks.len()
            {
                blocks[count] = block;
                count += 1;
            }
        }
        // Remember one position of each, so that a block is repeated as often as there is room.
        let mut recent = [0; 3];
        for (place, block) in recent.iter_mut().zip(&blocks[dsack..count]) {
            *place = block.0;
        }
        if dsack == 1 && count == 3 {
            recent[2] = self.recent[2];
        }
        self.recent = recent;
        (blocks, count as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(report: &mut Report, ranges: &mut Ranges, start: u64, end: u64) -> Vec<(u64, u64)> {
        ranges.insert(start, end, |_, _| {});
        report.arrived(start);
        let (blocks, count) = report.blocks(5500, ranges);
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
        let (blocks, count) = report.blocks(5000, &ranges);
        assert_eq!((&blocks[..2], count), (&[(3000, 3500), (6000, 6500)][..], 2));
        assert_eq!(report.blocks(5000, &ranges).1, 1);
    }
}
