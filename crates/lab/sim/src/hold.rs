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
    /// An acknowledgement that was to tell more than it did, and when it is to go again if no other has gone.
    kept: Option<(Segment, Time)>,
}

impl Hold {
    /// None if nothing is to be kept at all.
    pub(crate) fn new(most: Span) -> Option<Box<Hold>> {
        (most > Span::ZERO).then(|| Box::new(Hold { most, holes: Holes::default(), kept: None }))
    }

    /// A segment has come from a `ue` to a `host`.
    pub(crate) fn came(
        &mut self,
        latenesses: &mut Latenesses,
        (host, ue): (Host, u32),
        segment: &Segment,
        now: Time,
    ) {
        if segment.syn {
            self.holes.begin(segment.seq.wrapping_add(1));
        }
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
        let whole = segment;
        let ack = Acknowledgement {
            number: segment.ack,
            window: segment.window,
            sack: whole.sack_blocks(),
        };
        let lateness = latenesses.known.get(&of);
        let hold = lateness.map_or(Span::ZERO, Lateness::hold).min(self.most);
        let is_known = lateness.is_some_and(Lateness::is_known);
        let telling = self.holes.tell((hold, is_known), ack, now);
        self.kept = self.holes.due(now).map(|due| (whole, now + due));
        match telling {
            Telling::Whole => {}
            Telling::Blocks(blocks, count) => {
                segment.sack_count = count as u8;
                segment.sack.iter_mut().zip(blocks).for_each(|(place, block)| *place = block);
            }
            Telling::Nothing => return None,
        }
        Some(segment)
    }

    /// When [`Hold::take_due`] has something.
    pub(crate) fn due(&self) -> Option<Time> {
        self.kept.as_ref().map(|(_, due)| *due)
    }

    /// An acknowledgement that is to go again by `now`.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Segment> {
        self.kept.take_if(|(_, due)| *due <= now).map(|(segment, _)| segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::MEC;

    /// What a UE has sent, 1,000 bytes from this number on.
    fn data(seq: u32) -> Segment {
        Segment { seq, payload: 1000, ack_flag: true, ..Segment::default() }
    }

    #[test]
    fn what_is_kept_goes_again_if_nothing_has_told_it() {
        let (mut latenesses, of) = (Latenesses::default(), (MEC, 0));
        let most = Span::from_millis(50);
        let mut hold = Hold::new(most).unwrap();
        let mut ack = Segment { ack: 1001, window: 100, ack_flag: true, ..Segment::default() };
        let begin = Time::ZERO + most;
        hold.came(&mut latenesses, of, &Segment { syn: true, ..Segment::default() }, begin);
        hold.came(&mut latenesses, of, &data(1), begin);
        assert_eq!(hold.tell(&latenesses, of, ack, begin), Some(ack));
        hold.came(&mut latenesses, of, &data(2001), begin);
        (ack.sack[0], ack.sack_count) = ((2001, 3001), 1);
        assert_eq!(hold.tell(&latenesses, of, ack, begin), None);
        assert_eq!(hold.due(), Some(begin + most));
        assert_eq!(hold.take_due(begin), None);
        let again = hold.take_due(begin + most).unwrap();
        assert_eq!(hold.tell(&latenesses, of, again, begin + most), Some(ack));
        assert_eq!(hold.due(), None);
    }

    /// A first segment that comes late leaves a hole.
    #[test]
    fn data_begins_behind_the_syn() {
        let (mut latenesses, of) = (Latenesses::default(), (MEC, 0));
        let mut hold = Hold::new(Span::from_millis(50)).unwrap();
        hold.came(&mut latenesses, of, &Segment { syn: true, ..Segment::default() }, Time::ZERO);
        hold.came(&mut latenesses, of, &data(1001), Time::ZERO);
        let sack = [(1001, 2001), (0, 0), (0, 0)];
        let ack = Segment { ack: 1, ack_flag: true, sack, sack_count: 1, ..Segment::default() };
        let told = hold.tell(&latenesses, of, ack, Time::ZERO).map(|told| told.sack_count);
        assert_eq!(told, Some(0), "the first that goes at all");
    }
}
