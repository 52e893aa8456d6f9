use std::collections::VecDeque;

use midspan_units::Rate;
use serde::{Deserialize, Serialize};

/// What is believed of a report at most. (The paper's own worry: "if components dealing with the
/// measurements are providing wrong feedback, that might cause a problem".)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bounds {
    /// What no UE of this network can have.
    pub ceiling: Rate,
    /// From one reading to the next a capacity may grow to this many times the greatest of the
    /// last [`MEMORY`] readings that were not zero.
    pub jump: u32,
    /// Up to here anything may grow at once: slow links come and go in single packets.
    pub free: Rate,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            ceiling: Rate::from_bps(10_000_000_000),
            jump: 8,
            free: Rate::from_bps(10_000_000),
        }
    }
}

/// Over how many readings the greatest capacity is remembered.
pub const MEMORY: usize = 20;

/// Why a capacity was clipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clip {
    /// More than the network, or the channel, can give.
    Ceiling,
    /// Too much more than lately.
    Jump,
}

/// Checks one link's capacities, one after the other.
#[derive(Debug, Clone)]
pub struct Sanity {
    bounds: Bounds,
    recent: VecDeque<Rate>,
}

impl Sanity {
    /// Nothing has been seen yet.
    pub fn new(bounds: Bounds) -> Sanity {
        Sanity { bounds, recent: VecDeque::with_capacity(MEMORY) }
    }

    /// What is believed of `reported`, and why that is less, if it is. What a clip leaves counts as
    /// seen, so that a jump that stays is believed in full after a few readings.
    pub fn check(&mut self, reported: Rate) -> (Rate, Option<Clip>) {
        let mut believed = reported;
        let mut clip = None;
        if believed > self.bounds.ceiling {
            believed = self.bounds.ceiling;
            clip = Some(Clip::Ceiling);
        }
        if let Some(greatest) = self.recent.iter().max() {
            let most = greatest.as_bps().saturating_mul(self.bounds.jump.into());
            let most = Rate::from_bps(most).max(self.bounds.free);
            if believed > most {
                believed = most;
                clip = Some(Clip::Jump);
            }
        }
        // A link that was closed for a while says nothing about what it is when it opens.
        if believed > Rate::from_bps(0) {
            if self.recent.len() == MEMORY {
                self.recent.pop_front();
            }
            self.recent.push_back(believed);
        }
        (believed, clip)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mbps(rate: u64) -> Rate {
        Rate::from_bps(rate * 1_000_000)
    }

    #[test]
    fn an_implausible_jump_is_clipped_and_one_that_stays_is_believed() {
        let mut sanity = Sanity::new(Bounds::default());
        assert_eq!(sanity.check(mbps(20)), (mbps(20), None));
        assert_eq!(sanity.check(mbps(2_000)), (mbps(160), Some(Clip::Jump)));
        assert_eq!(sanity.check(mbps(2_000)), (mbps(1_280), Some(Clip::Jump)));
        assert_eq!(sanity.check(mbps(2_000)), (mbps(2_000), None));
        assert_eq!(sanity.check(mbps(20_000)), (mbps(10_000), Some(Clip::Ceiling)));
    }

    #[test]
    fn a_pause_is_not_held_against_a_link() {
        let mut sanity = Sanity::new(Bounds::default());
        sanity.check(mbps(100));
        for _ in 0..2 * MEMORY {
            assert_eq!(sanity.check(mbps(0)), (mbps(0), None));
        }
        assert_eq!(sanity.check(mbps(100)), (mbps(100), None));
        assert_eq!(Sanity::new(Bounds::default()).check(mbps(500)), (mbps(500), None));
    }

    proptest! {
        #[test]
        fn what_is_believed_is_never_more_than_reported_nor_than_allowed(
            reports in prop::collection::vec(any::<u64>(), 1..100),
        ) {
            let bounds = Bounds::default();
            let mut sanity = Sanity::new(bounds);
            for bits in reports {
                let reported = Rate::from_bps(bits);
                let (believed, clip) = sanity.check(reported);
                prop_assert!(believed <= reported && believed <= bounds.ceiling);
                prop_assert_eq!(clip.is_none(), believed == reported);
            }
        }
    }
}
