//! How much a link can carry, out of what a source reports of it.

mod flight;
mod plateau;

use midspan_units::{ByteSize, Rate, Span, Time};
use serde::{Deserialize, Serialize};

use flight::Flight;
use plateau::Plateau;

use crate::LinkReading;

/// How capacity is read out of what a source reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacityConfig {
    /// What must wait at a window's end for the link to count as filled: then, and only then, what
    /// it carried is what it can carry.
    pub backlog: ByteSize,
    /// How long after it was sent a packet is acknowledged on a bearer in RLC acknowledged mode,
    /// HARQ and status reports included: what is served in this time is in flight and does not
    /// wait. A bearer that is seen to take longer is given longer.
    pub flight: Span,
    /// How long a capacity is kept while the link is not filled.
    pub hold: Span,
}

impl Default for CapacityConfig {
    fn default() -> Self {
        CapacityConfig {
            backlog: ByteSize::from_bytes(3_000),
            flight: Span::from_millis(60),
            hold: Span::from_secs(10),
        }
    }
}

/// From what a capacity is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The source said so: `told` in states and logs.
    #[serde(rename = "told")]
    Reported,
    /// Bits in a resource block times the blocks that were available.
    Blocks,
    /// Something waited, so what was carried is what could be.
    Backlogged,
    /// The link was not filled: this is what earlier windows showed, or a bound. `held` in states and logs.
    #[serde(rename = "held")]
    Retained,
}

impl Evidence {
    /// As states and logs have it.
    pub const fn label(self) -> &'static str {
        match self {
            Evidence::Reported => "told",
            Evidence::Blocks => "blocks",
            Evidence::Backlogged => "backlogged",
            Evidence::Retained => "held",
        }
    }
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
/// it. And when the sender uses what it was told and nothing waits, a little more is told for a
/// moment: if that brings more, twice as much more, and so on; if not, as much less, so that what
/// it has left in the queue goes. (A sender that keeps to what it is told would otherwise never show
/// that there is more. This is ours; the paper's NetAssist knows the capacity.)
///
/// On a bearer in acknowledged mode all that is known is what the UE has not acknowledged. How long
/// that takes at the least is its flight; what is there for longer waits, and less is told for as
/// long as it takes to carry it off. As a sender that keeps to its rate has a backlog in
/// proportion, a rate that is but a little below the one told is no evidence of less; and more
/// rate that came with more backlog shows that the backlog was in flight. Bursts of slow start look
/// like a backlog: until more was told once and not carried, more is sought without rest.
///
/// On one in unacknowledged mode nothing of it is known. There what is served steadily, and is much of
/// what was told, is held: with a little less told, what waits unseen goes.
///
/// Before the link has been seen filled nothing is known, unless its channel's quality is: a sender
/// that is told nothing goes as its base control does and fills it.
#[derive(Debug, Clone)]
pub struct Capacity {
    config: CapacityConfig,
    /// In 1/1000 bit.
    per_block: Option<u64>,
    flight: Flight,
    plateau: Plateau,
    /// What was last told.
    told: Rate,
    held: Option<HeldRate>,
}

#[derive(Debug, Clone, Copy)]
struct HeldRate {
    /// What the link was seen to carry.
    rate: Rate,
    /// When the sender last used it.
    since: Time,
    phase: Phase,
    /// What waits is not seen, or not apart from what is in flight.
    unseen: bool,
    /// More was told since it was found, and not carried.
    sought: bool,
}

/// What is told beside the rate that is held.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// That rate, at least until then.
    Rests(Time),
    /// For a [`PULSE`] a step more, and for another less.
    Seeks { since: Time, step: Step },
    /// Less, for so long: something waits.
    Drains { since: Time, length: Span },
}

/// In eighths of the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step(u64);

impl Step {
    const FIRST: Step = Step(1);
    const WHOLE: u64 = 8;

    fn gain(self, rate: Rate) -> u64 {
        (u128::from(rate.as_bps()) * u128::from(self.0) / u128::from(Self::WHOLE)) as u64
    }

    fn more(self, rate: Rate) -> Rate {
        Rate::from_bps(rate.as_bps().saturating_add(self.gain(rate)))
    }

    /// Whether `served` shows that the link had room for this step from `rate`.
    fn is_carried(self, rate: Rate, served: Rate) -> bool {
        served.as_bps() > rate.as_bps().saturating_add(self.gain(rate) / 2)
    }

    fn next(self) -> Step {
        Step((self.0 * 2).min(Self::WHOLE / 2))
    }
}

/// How long a step is told: a window of the source is to be full of it.
const PULSE: Span = Span::from_millis(200);
/// How long until what was told has its effect: reports come late and in clumps, a round trip
/// passes, and a few windows are averaged.
const EFFECT: Span = Span::from_secs(1);
/// How long nothing is sought after the link was seen to carry no more.
const REST: Span = Span::from_secs(2);
/// In acknowledged mode one part in so many is not told: what waits unseen among what flies goes,
/// and how long the flight is shows.
const SPARE: u64 = 32;
/// While something waits less is told by one part in so many.
const LESS: u64 = 8;

impl Capacity {
    /// Nothing is known yet.
    pub fn new(config: CapacityConfig) -> Capacity {
        Capacity {
            config,
            per_block: None,
            flight: Flight::new(config.flight),
            plateau: Plateau::default(),
            told: Rate::from_bps(0),
            held: None,
        }
    }

    /// What is known from `at` on, when a window of length `window` was reported.
    pub fn observe(&mut self, at: Time, window: Span, link: &LinkReading) -> Option<Known> {
        let known = self.read(at, window, link);
        self.told = known.map_or(Rate::from_bps(0), |known| known.rate);
        known
    }

    fn read(&mut self, at: Time, window: Span, link: &LinkReading) -> Option<Known> {
        let waits = link.backlog.is_some_and(|backlog| backlog >= self.config.backlog);
        let known = |rate, evidence| Some(Known { rate, evidence });
        let measured = if let Some(told) = link.capacity {
            known(told, Evidence::Reported)
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
                self.held = Some(HeldRate::seen(known.rate, at));
            }
            return measured;
        }
        self.flight.note(at, window, link, self.config.backlog);
        let served = self.flight.served().or(link.served).unwrap_or_default();
        let waits = self.flight.excess(self.config.backlog);
        let rate = match waits {
            Some(_) if served == Rate::from_bps(0) => served,
            Some(excess) => self.filled_it_seems(at, link.ceiling, served, excess),
            None => {
                // Where a queue is reported, and is short, nothing waits.
                if link.backlog.is_none() {
                    self.see_plateau(at, served);
                }
                self.not_filled(at, link.ceiling, served)?
            }
        };
        known(rate, if waits.is_some() { Evidence::Backlogged } else { Evidence::Retained })
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

    /// For `excess` longer than its flight takes is something not acknowledged.
    fn filled_it_seems(
        &mut self,
        at: Time,
        ceiling: Option<Rate>,
        served: Rate,
        excess: Span,
    ) -> Rate {
        let drains = Phase::Drains { since: at, length: excess * LESS };
        let held = self.held.get_or_insert(HeldRate {
            rate: served,
            since: at,
            phase: drains,
            unseen: true,
            sought: false,
        });
        held.since = at;
        if held.carries(at, self.flight.latest().unwrap_or(served)) {
            self.flight.lengthen();
            return held.told(at, ceiling, served);
        }
        // What was told less has brought less, too.
        let settled = held.is_settled(at);
        let least = if settled { 15 } else { 12 };
        let less = served.as_bps() < held.rate.as_bps() / 16 * least;
        if less || served > held.rate {
            held.rate = served;
        }
        let bound = held.is_bound(ceiling);
        held.sought |= matches!(held.phase, Phase::Seeks { .. }) && settled;
        held.phase = match held.phase {
            _ if less => drains,
            // It still waits, or never did.
            Phase::Drains { .. } if settled && bound => Phase::Rests(at + REST),
            Phase::Drains { .. } if settled => Phase::Seeks { since: at, step: Step::FIRST },
            Phase::Rests(until) if at < until => held.phase,
            Phase::Seeks { step: Step::FIRST, .. } if !settled => held.phase,
            Phase::Seeks { .. } => drains,
            _ if settled => drains,
            phase => phase,
        };
        held.told(at, ceiling, served)
    }

    /// Holds what is served steadily.
    fn see_plateau(&mut self, at: Time, served: Rate) {
        let unseen = self.flight.bytes() == 0;
        let lower = |held: HeldRate| {
            unseen && held.is_settled(at) && served.as_bps() < held.rate.as_bps() / 16 * 15
        };
        if let Some(waits) = self.plateau.note(at, served, self.told)
            && self.held.is_none_or(lower)
        {
            let phase = Phase::Drains { since: at, length: (waits * LESS).min(PULSE * 2) };
            self.held = Some(HeldRate { phase, unseen: true, ..HeldRate::seen(served, at) });
        }
    }

    fn not_filled(&mut self, at: Time, ceiling: Option<Rate>, served: Rate) -> Option<Rate> {
        // It carries more than its channel's quality lets expect.
        if self.held.is_none()
            && self.flight.served().is_some()
            && ceiling.is_some_and(|ceiling| ceiling < served)
        {
            self.held = Some(HeldRate { unseen: true, ..HeldRate::seen(served, at) });
        }
        let Some(held) = &mut self.held else {
            return ceiling.map(|ceiling| ceiling.max(served));
        };
        // What waits is gone, where that can be seen.
        if self.flight.bytes() > 0
            && let Phase::Drains { since, length } = &mut held.phase
        {
            *length = at.since(*since).min(*length);
        }
        if held.is_used(served) {
            held.since = at;
        } else if at.since(held.since) > self.config.hold {
            self.held = None;
            return ceiling;
        }
        if !held.carries(at, self.flight.latest().unwrap_or(served)) {
            let bound = held.is_bound(ceiling);
            let settled = held.is_settled(at);
            held.sought |= matches!(held.phase, Phase::Seeks { .. }) && settled;
            held.phase = match held.phase {
                Phase::Rests(until) if at >= until && held.is_used(served) && !bound => {
                    Phase::Seeks { since: at, step: Step::FIRST }
                }
                Phase::Drains { .. } if settled && !held.sought => Phase::Rests(at),
                Phase::Seeks { .. } | Phase::Drains { .. } if settled => Phase::Rests(at + REST),
                phase => phase,
            };
        }
        Some(held.told(at, ceiling, served))
    }
}

impl HeldRate {
    fn seen(rate: Rate, at: Time) -> HeldRate {
        HeldRate { rate, since: at, phase: Phase::Rests(at), unseen: false, sought: false }
    }

    fn is_used(&self, served: Rate) -> bool {
        served.as_bps() >= self.rate.as_bps() / 8 * 7
    }

    /// Whether more than is held would not be told.
    fn is_bound(&self, ceiling: Option<Rate>) -> bool {
        ceiling.is_some_and(|ceiling| ceiling <= self.rate)
    }

    /// Whether what is served now is the answer to the rate that is held.
    fn is_settled(&self, at: Time) -> bool {
        match self.phase {
            Phase::Rests(_) => true,
            Phase::Seeks { since, .. } => at.since(since) > PULSE * 2 + EFFECT,
            Phase::Drains { since, length } => at.since(since) > length + EFFECT,
        }
    }

    /// Notes what was served. True if that is the step that was told, so that there is more.
    fn carries(&mut self, at: Time, served: Rate) -> bool {
        let Phase::Seeks { step, .. } = self.phase else {
            // Nothing had waited at the rate that was held, so that there is more still.
            if matches!(self.phase, Phase::Drains { .. })
                && Step::FIRST.is_carried(self.rate, served)
            {
                self.phase = Phase::Rests(at);
                self.sought = false;
            }
            self.rate = self.rate.max(served);
            return false;
        };
        let carried = step.is_carried(self.rate, served);
        if carried {
            self.rate = served;
            self.sought = false;
            self.phase = Phase::Seeks { since: at, step: step.next() };
        }
        carried
    }

    /// Within what the channel can carry, but not less than it did unless that is wanted.
    fn told(&self, at: Time, ceiling: Option<Rate>, served: Rate) -> Rate {
        let less = Rate::from_bps(self.rate.as_bps() - self.rate.as_bps() / LESS);
        match self.phase {
            Phase::Seeks { since, step } if at.since(since) < PULSE => {
                let more = step.more(self.rate);
                more.min(ceiling.unwrap_or(more)).max(served)
            }
            Phase::Seeks { since, step: Step::FIRST }
                if self.unseen && at.since(since) < PULSE * 2 =>
            {
                less
            }
            Phase::Drains { since, length } if at.since(since) < length => less,
            _ => {
                let rate = self.rate.max(served);
                let rate = rate.min(ceiling.unwrap_or(rate));
                let spared = Rate::from_bps(rate.as_bps() - rate.as_bps() / SPARE);
                if self.unseen { spared } else { rate.max(served) }
            }
        }
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

    struct Bench {
        capacity: Capacity,
        now: Time,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { capacity: Capacity::new(CapacityConfig::default()), now: Time::ZERO }
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
        let mut link = Bench::new();
        assert_eq!(link.observe(served(2.0, 0)), None);
        let filled = link.observe(served(8.0, 40_000)).unwrap();
        assert_eq!(filled, Known { rate: mbps(8.0), evidence: Evidence::Backlogged });
        // The sender has less to send: that is not the link's doing.
        for rate in [4.0, 0.1, 0.0] {
            let held = link.observe(served(rate, 0)).unwrap();
            assert_eq!(held, Known { rate: mbps(8.0), evidence: Evidence::Retained });
        }
        // The link gets worse: that is.
        assert_eq!(link.observe(served(3.0, 40_000)).unwrap().rate, mbps(3.0));
    }

    #[test]
    fn a_sender_that_uses_all_that_it_was_told_is_told_more_until_something_waits() {
        let mut link = Bench::new();
        let mut told = link.observe(served(8.0, 40_000)).unwrap().rate;
        let mut windows = 0;
        while told < mbps(30.0) {
            told = link.observe(LinkReading { served: Some(told), ..served(0.0, 0) }).unwrap().rate;
            windows += 1;
        }
        assert_eq!(windows, 5);
        let filled = link.observe(served(20.0, 40_000)).unwrap();
        assert_eq!(filled, Known { rate: mbps(20.0), evidence: Evidence::Backlogged });
    }

    /// A sender of little sends its window in a burst a round trip.
    #[test]
    fn single_packets_do_not_tell_how_long_a_flight_is() {
        let mut link = Bench::new();
        let acknowledging = |rate, bytes| LinkReading {
            served: Some(mbps(rate)),
            unacknowledged: Some(ByteSize::from_bytes(bytes)),
            ..LinkReading::default()
        };
        for bytes in [0, 84, 1_500, 0].repeat(20) {
            assert_eq!(link.observe(acknowledging(1.4, bytes)), None);
        }
        for bytes in [4_500, 15_000, 3_000, 19_500, 4_500, 16_500].repeat(20) {
            assert_eq!(link.observe(acknowledging(1.6, bytes)), None, "{bytes}");
        }
        // Always there, and for longer than any flight.
        let mut known = None;
        for bytes in [40_000; 6] {
            known = link.observe(acknowledging(1.6, bytes));
        }
        assert_eq!(known.unwrap().evidence, Evidence::Backlogged);
    }

    /// In unacknowledged mode, with a table that says 20 Mbit/s: 15 of them are carried, or bursts are.
    #[test]
    fn what_is_served_steadily_is_held_where_nothing_is_seen_to_wait() {
        let unacknowledged = Some(ByteSize::from_bytes(0));
        let ceiling = Some(mbps(20.0));
        let reading = |rate| LinkReading {
            served: Some(mbps(rate)),
            unacknowledged,
            ceiling,
            ..LinkReading::default()
        };
        let mut link = Bench::new();
        for _ in 0..10 {
            assert_eq!(link.observe(reading(15.0)).unwrap().rate, mbps(20.0));
        }
        let mut told = Vec::new();
        told.extend((0..60).map(|_| link.observe(reading(15.0)).unwrap().rate));
        // Less until what was told too much is gone, and then a little less.
        assert!(told.contains(&mbps(15.0 * 7.0 / 8.0)), "{told:?}");
        assert_eq!(told.last(), Some(&mbps(15.0 * 31.0 / 32.0)));
        // It gets worse.
        for _ in 0..60 {
            link.observe(reading(10.0));
        }
        assert!(link.observe(reading(10.0)).unwrap().rate < mbps(10.0));
        // And better: who is told carries it.
        let mut told = mbps(10.0);
        for _ in 0..200 {
            told = link.observe(reading(told.as_mbps().min(19.0))).unwrap().rate;
        }
        assert!(told > mbps(17.0), "{told}");
        let mut link = Bench::new();
        for rate in [15.0, 2.0, 0.0, 19.0].repeat(20) {
            assert_eq!(link.observe(reading(rate)).unwrap().rate, mbps(20.0));
        }
        // Nothing waits, as is reported: it is the sender who has no more.
        let mut link = Bench::new();
        for _ in 0..60 {
            let queue = Some(ByteSize::from_bytes(0));
            let known = link.observe(LinkReading { backlog: queue, ..reading(15.0) }).unwrap();
            assert_eq!(known.rate, mbps(20.0));
        }
    }

    #[test]
    fn what_was_known_is_forgotten_after_the_hold() {
        let mut link = Bench::new();
        link.observe(served(8.0, 40_000));
        let windows = (1..).find(|_| link.observe(served(0.1, 0)).is_none()).unwrap();
        assert_eq!(windows, 201);
    }

    #[test]
    fn the_channels_quality_bounds_what_is_held_and_stands_in_for_what_is_not() {
        let mut link = Bench::new();
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
        let mut link = Bench::new();
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
        let mut link = Bench::new();
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
            let mut link = Bench::new();
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
