//! Stretches of the way between UE and server, and the lanes of their links.

use crate::{Counters, Link, Packet, Times, Way};

/// A stretch of the way between UE and server, all that is beside each other together.
#[derive(Debug, Clone)]
pub struct Stretch {
    /// Its name in records.
    pub name: &'static str,
    /// What it has done so far, up and down.
    pub counters: (Counters, Counters),
    /// How long packets took beyond base delays, up and down.
    pub delays: (Times, Times),
}

impl Stretch {
    /// What links beside each other have done together.
    pub fn of_links<P: Packet>(name: &'static str, links: &[Link<P>]) -> Stretch {
        let mut all =
            Stretch { name, counters: Default::default(), delays: (Times::new(), Times::new()) };
        for link in links {
            all.counters.0.add(&link.counters(Way::Up));
            all.counters.1.add(&link.counters(Way::Down));
            all.delays.0.add(link.delays(Way::Up));
            all.delays.1.add(link.delays(Way::Down));
        }
        all
    }
}

/// The lane of one way of a link: of each link's two lanes the first goes up.
pub fn lane(link: usize, way: Way) -> usize {
    2 * link + usize::from(way == Way::Down)
}

/// Link and way of a lane.
pub fn unlane(lane: usize) -> (usize, Way) {
    (lane / 2, if lane.is_multiple_of(2) { Way::Up } else { Way::Down })
}
