//! Acknowledgements that are kept back, as the relay's steering program does at the links.

use midspan_reordering::{Acknowledgement, Holes, Lateness, Telling};
use midspan_tcp::Segment;
use midspan_units::{Span, Time};

/// What a socket misses of its peer's data, and keeps to itself for a while.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// For no longer than this.
    most: Span,
    holes: Holes,
}

impl Hold {
    /// None if nothing is to be kept at all.
    pub(crate) fn new(most: Span) -> Option<Box<Hold>> {
        (most > Span::ZERO).then(|| Box::new(Hold { most, holes: Holes::default() }))
    }

    /// A segment has come by a link whose segments are `lateness` late.
    pub(crate) fn came(&mut self, lateness: &mut Lateness, segment: &Segment, now: Time) {
        if segment.payload > 0 {
            let data = (segment.seq, segment.seq.wrapping_add(segment.payload));
            self.holes.came(lateness, data, segment.timestamps.0, now);
        }
    }

    /// What goes of a segment that is about to, if anything does.
    pub(crate) fn tell(
        &mut self,
        lateness: &Lateness,
        mut segment: Segment,
        now: Time,
    ) -> Option<Segment> {
        let Segment { payload, syn, fin, rst, ece, .. } = segment;
        if segment.sack_count == 0 || payload > 0 || syn || fin || rst || ece {
            return Some(segment);
        }
        let ack = Acknowledgement {
            number: segment.ack,
            window: segment.window,
            sack: segment.sack_blocks(),
        };
        match self.holes.tell(lateness.hold().min(self.most), ack, now) {
            Telling::Whole => {}
            Telling::Less(blocks, count) => {
                segment.sack_count = count as u8;
                segment.sack.iter_mut().zip(blocks).for_each(|(place, block)| *place = block);
            }
            Telling::Nothing => return None,
        }
        Some(segment)
    }
}
