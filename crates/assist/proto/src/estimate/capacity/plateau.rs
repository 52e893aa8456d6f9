//! What is served steadily, where no report shows what waits.

use midspan_units::{Rate, Span, Time};

use super::EFFECT;
use super::flight::LONGEST_FLIGHT;

/// Where nothing is known of what waits: what is served has been the same for a while, and much of what was told. Then it
/// is what the link carries, or what the sender has; which of them it is shows when more is told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plateau {
    begun: Option<Begun>,
}

#[derive(Debug, Clone, Copy)]
struct Begun {
    at: Time,
    least: Rate,
    most: Rate,
}

impl Plateau {
    /// How long what was told too much takes to be carried off, if there is a plateau.
    pub(super) fn note(&mut self, at: Time, served: Rate, told: Rate) -> Option<Span> {
        if told == Rate::from_bps(0) || served.as_bps() < told.as_bps() / 2 {
            self.begun = None;
            return None;
        }
        let begun = self.begun.get_or_insert(Begun { at, least: served, most: served });
        (begun.least, begun.most) = (begun.least.min(served), begun.most.max(served));
        if begun.least.as_bps() < begun.most.as_bps() / 8 * 7 {
            *begun = Begun { at, least: served, most: served };
        }
        let length = at.since(begun.at);
        if length < EFFECT {
            return None;
        }
        self.begun = None;
        let excess = told.as_bps().saturating_sub(served.as_bps());
        Some(
            served.time_for(Rate::from_bps(excess).bytes_in(length).as_bytes()).min(LONGEST_FLIGHT),
        )
    }
}
