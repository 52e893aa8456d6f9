//! Stretches of the way between UE and server, and the lanes of their links.

use midspan_path::{Counters, Times, Way};

/// A stretch of the way between UE and server, all that is beside each other together.
pub(crate) struct Stretch {
    pub(crate) name: &'static str,
    pub(crate) counters: (Counters, Counters),
    pub(crate) delays: (Times, Times),
}

/// Of each link's two lanes the first goes up.
pub(crate) fn lane(link: usize, way: Way) -> usize {
    2 * link + usize::from(way == Way::Down)
}

/// Link and way of a lane.
pub(crate) fn unlane(lane: usize) -> (usize, Way) {
    (lane / 2, if lane.is_multiple_of(2) { Way::Up } else { Way::Down })
}
