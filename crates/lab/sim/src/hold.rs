//! Acknowledgements that are kept back, as the relay's steering program does at the links.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use midspan_reordering::{Acknowledgement, Holes, Lateness, Telling};
use midspan_tcp::Segment;
use midspan_units::{Span, Time};

use crate::host::Host;

/// How late segments come that UEs send: what each host knows of each, and of their network, in which all are.
#[derive(Debug, Default)]
pub(crate) struct Latenesses {
    known: HashMap<(Host, u32), Lateness>,
    networks: HashMap<Host, Lateness>,
}

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

    /// A segment has come from a `ue` to a `host`.
    pub(crate) fn came(
        &mut self,
        latenesses: &mut Latenesses,
        (host, ue): (Host, u32),
        segment: &Segment,
        now: Time,
    ) {
        if segment.payload == 0 {
            return;
        }
        let Latenesses { known, networks } = latenesses;
        let network = networks.entry(host).or_default();
        // Until something is out of order nothing is known of it, and nothing to be learned.
        let mut unknown = Lateness::default();
        let lateness = match known.entry((host, ue)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if self.holes.is_next(segment.seq) => &mut unknown,
            Entry::Vacant(vacant) => vacant.insert(Lateness::of_network(network)),
        };
        let data = (segment.seq, segment.seq.wrapping_add(segment.payload));
        self.holes.came((lateness, network), data, segment.timestamps.0, now);
    }

    /// What goes of a segment that is about to, if anything does, from a `host` to a `ue`.
    pub(crate) fn tell(
        &mut self,
        latenesses: &Latenesses,
        of: (Host, u32),
        mut segment: Segment,
        now: Time,
    ) -> Option<Segment> {
        let Segment { payload, syn, fin, rst, ece, .. } = segment;
        if payload > 0 || syn || fin || rst || ece {
            return Some(segment);
        }
        let ack = Acknowledgement {
            number: segment.ack,
            window: segment.window,
            sack: segment.sack_blocks(),
        };
        let lateness = latenesses.known.get(&of);
        let hold = lateness.map_or(Span::ZERO, Lateness::hold).min(self.most);
        let is_known = lateness.is_some_and(Lateness::is_known);
        match self.holes.tell((hold, is_known), ack, now) {
            Telling::Whole => {}
            Telling::Blocks(blocks, count) => {
                segment.sack_count = count as u8;
                segment.sack.iter_mut().zip(blocks).for_each(|(place, block)| *place = block);
            }
            Telling::Nothing => return None,
        }
        Some(segment)
    }
}
