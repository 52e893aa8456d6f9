use midspan_units::{ByteSize, Rate, Span, Time};
use serde::{Deserialize, Serialize};

use crate::LinkReading;

/// How capacity is read out of what a source reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacityConfig {
    /// What must wait at a window's end for the link to count as filled: then, and only then, what
    /// it carried is what it can carry.
    pub backlog: ByteSize,
    /// How long a capacity is kept while the link is not filled.
    pub hold: Span,
}

impl Default for CapacityConfig {
    fn default() -> Self {
        CapacityConfig { backlog: ByteSize::from_bytes(3_000), hold: Span::from_secs(10) }
    }
}

/// From what a capacity is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The source said so.
    Told,
    /// Bits in a resource block times the blocks that were available.
    Blocks,
    /// Something waited, so what was carried is what could be.
    Backlogged,
    /// The link was not filled: this is what earlier windows showed, or a bound.
    Held,
}

/// A capacity, and from what it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// What the link can carry; zero if nothing.
    pub rate: Rate,
    /// From what.
    pub evidence: Evidence,
}

/// Estimates the capacity of one direction of a UE's link.
///
/// The served rate is not capacity while the sender is the one that limits it. Then the last known
/// capacity is held, and two things move it. Channel quality, where the source reports it, bounds
/// it. And once the sender uses what it was told and still nothing waits, it is raised by a quarter
/// until something does, because a sender that keeps to what it is told would otherwise never
/// show that there is more (this is ours; the paper's NetAssist knows the capacity).
///
/// Before the link has been seen filled nothing is known, unless its channel's quality is: a sender
/// that is told nothing goes as its base control does and fills it.
#[derive(Debug, Clone)]
pub struct Capacity {
    config: CapacityConfig,
    /// In 1/1000 bit.
    per_block: Option<u64>,
    held: Option<Held>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    rate: Rate,
    since: Time,
}

impl Capacity {
    /// Nothing is known yet.
    pub fn new(config: CapacityConfig) -> Capacity {
        Capacity { config, per_block: None, held: None }
    }

    /// What is known after the window of length `window` that ended `at`.
    pub fn observe(&mut self, at: Time, window: Span, link: &LinkReading) -> Option<Known> {
        let waits = link.backlog.is_some_and(|backlog| backlog >= self.config.backlog);
        let known = |rate, evidence| Some(Known { rate, evidence });
        let measured = if let Some(told) = link.capacity {
            known(told, Evidence::Told)
        } else if waits && link.served == Some(Rate::from_bps(0)) {
            known(Rate::from_bps(0), Evidence::Backlogged)
        } else if let Some(rate) = self.by_blocks(window, link) {
            known(rate, Evidence::Blocks)
        } else if waits && let Some(served) = link.served {
            known(served, Evidence::Backlogged)
        } else {
            None
        };
        if let Some(known) = measured {
            // A closed window says nothing about what comes after it.
            if known.rate > Rate::from_bps(0) {
                self.held = Some(Held { rate: known.rate, since: at });
            }
            return measured;
        }
        let rate = self.not_filled(at, link)?;
        known(rate, Evidence::Held)
    }

    /// Bits per block times the blocks available. Windows that used next to no blocks say little
    /// about the bits in one (the last is padded), so the earlier ones count there.
    fn by_blocks(&mut self, window: Span, link: &LinkReading) -> Option<Rate> {
        let blocks = link.blocks?;
        let served = link.served?;
        if window == Span::ZERO {
            return None;
        }
        let few = u64::from(blocks.used) * FEW_BLOCKS < u64::from(blocks.available);
        let telling = !few || self.per_block.is_none();
        if blocks.used > 0 && served > Rate::from_bps(0) && telling {
            let millibits = u128::from(served.as_bps()) * u128::from(window.as_nanos()) / 1_000_000;
            self.per_block = u64::try_from(millibits / u128::from(blocks.used)).ok();
        }
        let bits = u128::from(self.per_block?) * u128::from(blocks.available) / 1_000;
        let rate = bits * 1_000_000_000 / u128::from(window.as_nanos());
        Some(Rate::from_bps(u64::try_from(rate).unwrap_or(u64::MAX)))
    }

    fn not_filled(&mut self, at: Time, link: &LinkReading) -> Option<Rate> {
        let served = link.served.unwrap_or_default();
        let within =
            |rate: Rate| link.ceiling.map_or(rate, |ceiling| rate.min(ceiling).max(served));
        let Some(held) = &mut self.held else {
            return link.ceiling.map(|ceiling| ceiling.max(served));
        };
        let used = served.as_bps() >= held.rate.as_bps() / 8 * 7;
        if !used && at.since(held.since) > self.config.hold {
            self.held = None;
            return link.ceiling;
        }
        if used {
            let more = held.rate.max(served).as_bps();
            *held = Held { rate: within(Rate::from_bps(more.saturating_add(more / 4))), since: at };
        }
        Some(within(held.rate))
    }
}

/// Windows that use fewer than one in so many of the available blocks are not taken to tell the
/// bits in a block.
const FEW_BLOCKS: u64 = 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Blocks;

    const WINDOW: Span = Span::from_millis(50);

    struct Link {
        capacity: Capacity,
        now: Time,
    }

    impl Link {
        fn new() -> Link {
            Link { capacity: Capacity::new(CapacityConfig::default()), now: Time::ZERO }
        }

        fn observe(&mut self, link: LinkReading) -> Option<Known> {
            self.now += WINDOW;
            self.capacity.observe(self.now, WINDOW, &link)
        }
    }

    fn mbps(rate: f64) -> Rate {
        Rate::from_bps((rate * 1e6) as u64)
    }

    fn served(rate: f64, backlog: u64) -> LinkReading {
        LinkReading {
            served: Some(mbps(rate)),
            backlog: Some(ByteSize::from_bytes(backlog)),
            ..LinkReading::default()
        }
    }

    #[test]
    fn served_is_capacity_only_while_something_waits() {
        let mut link = Link::new();
        assert_eq!(link.observe(served(2.0, 0)), None);
        let filled = link.observe(served(8.0, 40_000)).unwrap();
        assert_eq!(filled, Known { rate: mbps(8.0), evidence: Evidence::Backlogged });
        // The sender has less to send: that is not the link's doing.
        for rate in [4.0, 0.1, 0.0] {
            let held = link.observe(served(rate, 0)).unwrap();
            assert_eq!(held, Known { rate: mbps(8.0), evidence: Evidence::Held });
        }
        // The link gets worse: that is.
        assert_eq!(link.observe(served(3.0, 40_000)).unwrap().rate, mbps(3.0));
    }

    #[test]
    fn a_sender_that_uses_all_that_it_was_told_is_told_more_until_something_waits() {
        let mut link = Link::new();
        let mut told = link.observe(served(8.0, 40_000)).unwrap().rate;
        let mut windows = 0;
        while told < mbps(30.0) {
            told = link.observe(LinkReading { served: Some(told), ..served(0.0, 0) }).unwrap().rate;
            windows += 1;
        }
        assert_eq!(windows, 6);
        let filled = link.observe(served(20.0, 40_000)).unwrap();
        assert_eq!(filled, Known { rate: mbps(20.0), evidence: Evidence::Backlogged });
    }

    #[test]
    fn what_was_known_is_forgotten_after_the_hold() {
        let mut link = Link::new();
        link.observe(served(8.0, 40_000));
        let windows = (1..).find(|_| link.observe(served(0.1, 0)).is_none()).unwrap();
        assert_eq!(windows, 201);
    }

    #[test]
    fn the_channels_quality_bounds_what_is_held_and_stands_in_for_what_is_not() {
        let mut link = Link::new();
        let with_ceiling = |ceiling| LinkReading { ceiling: Some(mbps(ceiling)), ..served(1.0, 0) };
        assert_eq!(link.observe(with_ceiling(30.0)).unwrap().rate, mbps(30.0));
        link.observe(served(20.0, 40_000));
        assert_eq!(link.observe(with_ceiling(30.0)).unwrap().rate, mbps(20.0));
        assert_eq!(link.observe(with_ceiling(5.0)).unwrap().rate, mbps(5.0));
        // It has carried 1 Mbit/s, whatever the table says.
        assert_eq!(link.observe(with_ceiling(0.5)).unwrap().rate, mbps(1.0));
    }

    #[test]
    fn blocks_tell_capacity_whoever_limits() {
        let mut link = Link::new();
        let blocks = |rate: f64, used: u32, available: u32| LinkReading {
            blocks: Some(Blocks { used, available }),
            ..served(rate, 0)
        };
        // 2 Mbit/s in 250 of 2,500 blocks.
        let known = link.observe(blocks(2.0, 250, 2_500)).unwrap();
        assert_eq!(known, Known { rate: mbps(20.0), evidence: Evidence::Blocks });
        // Others take half of the cell.
        assert_eq!(link.observe(blocks(2.0, 250, 1_250)).unwrap().rate, mbps(10.0));
        // A few padded blocks, or none at all, tell nothing new about a block.
        assert_eq!(link.observe(blocks(0.001, 1, 2_500)).unwrap().rate, mbps(20.0));
        assert_eq!(link.observe(blocks(0.0, 0, 2_500)).unwrap().rate, mbps(20.0));
        // The channel gets worse.
        assert_eq!(link.observe(blocks(1.0, 250, 2_500)).unwrap().rate, mbps(10.0));
    }

    #[test]
    fn a_link_that_serves_nothing_of_what_waits_is_closed() {
        let mut link = Link::new();
        link.observe(served(8.0, 40_000));
        let closed = link.observe(served(0.0, 40_000)).unwrap();
        assert_eq!(closed, Known { rate: Rate::from_bps(0), evidence: Evidence::Backlogged });
        assert_eq!(link.observe(served(0.0, 0)).unwrap().rate, mbps(8.0));
    }

    proptest! {
        /// While something waits the estimate is what was served, whatever came before; while not,
        /// it is never below what was served.
        #[test]
        fn never_below_what_the_link_was_seen_to_carry(
            windows in prop::collection::vec((0u64..1 << 40, any::<bool>(), prop::option::of(0u64..1 << 40)), 1..100),
        ) {
            let mut link = Link::new();
            for (bits, waits, ceiling) in windows {
                let reading = LinkReading {
                    served: Some(Rate::from_bps(bits)),
                    backlog: Some(ByteSize::from_bytes(if waits { 3_000 } else { 2_999 })),
                    ceiling: ceiling.map(Rate::from_bps),
                    ..LinkReading::default()
                };
                match link.observe(reading) {
                    Some(known) if waits => prop_assert_eq!(known.rate, Rate::from_bps(bits)),
                    Some(known) => prop_assert!(known.rate >= Rate::from_bps(bits) || known.rate >= reading.ceiling.unwrap_or_default()),
                    None => prop_assert!(!waits),
                }
            }
        }

        #[test]
        fn any_blocks_will_do(used: u32, available: u32, bits: u64, nanos: u64) {
            let mut capacity = Capacity::new(CapacityConfig::default());
            let reading = LinkReading {
                served: Some(Rate::from_bps(bits)),
                blocks: Some(Blocks { used, available }),
                ..LinkReading::default()
            };
            for _ in 0..3 {
                capacity.observe(Time::ZERO, Span::from_nanos(nanos), &reading);
            }
        }
    }
}
