//! Legs and queues over time, for a record that asks for them.

use midspan_scenario::record::{SeriesRecord, SeriesWatch, Variant};
use midspan_units::{Span, Time};

use crate::measure;
use crate::socket::SocketId;
use crate::world::World;

/// Looks at the world at even distances.
pub(crate) struct Series {
    watch: SeriesWatch<SocketId>,
    begin: Time,
    every: Span,
    next: Time,
}

impl Series {
    /// The first look is one distance after `begin`.
    pub(crate) fn new(begin: Time, every: Span) -> Series {
        Series { watch: SeriesWatch::default(), begin, every, next: begin + every }
    }

    /// When it looks next.
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    /// Looks, at `next`.
    pub(crate) fn look(&mut self, world: &World, variant: Variant) {
        let at = self.next.since(self.begin);
        for (socket, leg) in measure::standing(world, variant) {
            self.watch.leg(at, socket, &leg);
        }
        for (name, waiting) in world.waiting() {
            self.watch.link(at, name, waiting);
        }
        self.next += self.every;
    }

    /// All that was seen.
    pub(crate) fn record(self) -> SeriesRecord {
        self.watch.record()
    }
}
