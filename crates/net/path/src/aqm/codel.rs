use midspan_units::{ByteSize, Span, Time};
use serde::{Deserialize, Serialize};

use super::AqmDecision;
use super::average::default_typical_packet;
use crate::Ecn;

/// Controlled delay (RFC 8289): while packets have waited longer than `target` for an `interval`,
/// one is dropped from the head of the queue, and then more and more often, until one has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodelSpec {
    /// Longest wait that may last. Default 5 ms (section 4.4).
    #[serde(default = "default_target")]
    pub target: Span,
    /// For how long it may be exceeded: about the greatest round trip in use. Default 100 ms
    /// (section 4.3).
    #[serde(default = "default_interval")]
    pub interval: Span,
    /// With no more than this behind it a packet is never dropped: a full packet of the link.
    /// Default 1500 B.
    #[serde(default = "default_typical_packet")]
    pub typical_packet: ByteSize,
    /// Mark ECN-capable packets where others are dropped. Default false.
    #[serde(default)]
    pub ecn: bool,
}

impl Default for CodelSpec {
    fn default() -> Self {
        CodelSpec {
            target: default_target(),
            interval: default_interval(),
            typical_packet: default_typical_packet(),
            ecn: false,
        }
    }
}

fn default_target() -> Span {
    Span::from_millis(5)
}

fn default_interval() -> Span {
    Span::from_millis(100)
}

impl CodelSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.target == Span::ZERO || self.target >= self.interval {
            return Err(format!(
                "CoDel's target ({}) must be above zero and below its interval ({})",
                self.target, self.interval
            ));
        }
        Ok(())
    }
}

/// What was done to the packet before, if it never left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dropped {
    No,
    /// With it dropping began.
    First,
    Another,
}

/// Section 5, in its names but for `first_above_time`.
pub(crate) struct Codel {
    spec: CodelSpec,
    /// When packets will have waited too long for an interval, if they still do.
    above_since: Option<Time>,
    dropping: bool,
    drop_next: Time,
    count: u64,
    lastcount: u64,
    before: Dropped,
}

impl Codel {
    pub(crate) fn new(spec: CodelSpec) -> Self {
        Codel {
            spec,
            above_since: None,
            dropping: false,
            drop_next: Time::ZERO,
            count: 0,
            lastcount: 0,
            before: Dropped::No,
        }
    }

    /// The packet at the head could be sent now. It has waited for `sojourn`, and `behind` bytes are
    /// behind it. After a drop it is the next packet's turn.
    pub(crate) fn departure(
        &mut self,
        now: Time,
        sojourn: Span,
        behind: u64,
        ecn: Ecn,
    ) -> AqmDecision {
        let ok_to_drop = self.ok_to_drop(now, sojourn, behind);
        let before = std::mem::replace(&mut self.before, Dropped::No);
        if before == Dropped::First {
            return AqmDecision::Pass;
        }
        if !self.dropping {
            return if ok_to_drop { self.begin(now, ecn) } else { AqmDecision::Pass };
        }
        if !ok_to_drop {
            self.dropping = false;
            return AqmDecision::Pass;
        }
        if before == Dropped::Another {
            self.drop_next = self.control_law(self.drop_next);
        }
        if now < self.drop_next {
            return AqmDecision::Pass;
        }
        self.count += 1;
        if self.marks(ecn) {
            self.drop_next = self.control_law(self.drop_next);
            return AqmDecision::Mark;
        }
        self.before = Dropped::Another;
        AqmDecision::Drop
    }

    /// There is nothing to send.
    pub(crate) fn emptied(&mut self) {
        self.above_since = None;
        self.dropping = false;
    }

    fn ok_to_drop(&mut self, now: Time, sojourn: Span, behind: u64) -> bool {
        if sojourn < self.spec.target || behind <= self.spec.typical_packet.as_bytes() {
            self.above_since = None;
            return false;
        }
        now >= *self.above_since.get_or_insert(now + self.spec.interval)
    }

    fn begin(&mut self, now: Time, ecn: Ecn) -> AqmDecision {
        self.dropping = true;
        // Not long after the last time the rate that was right then is a good start.
        let delta = self.count.saturating_sub(self.lastcount);
        let lately = now.since(self.drop_next) < self.spec.interval * 16;
        self.count = if delta > 1 && lately { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.lastcount = self.count;
        if self.marks(ecn) {
            return AqmDecision::Mark;
        }
        self.before = Dropped::First;
        AqmDecision::Drop
    }

    fn marks(&self, ecn: Ecn) -> bool {
        self.spec.ecn && ecn.is_capable()
    }

    /// `t + interval / sqrt(count)`.
    fn control_law(&self, t: Time) -> Time {
        let squared = u128::from(self.spec.interval.as_nanos()).pow(2) / u128::from(self.count);
        t + Span::from_nanos(squared.isqrt() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    const LONG: Span = Span::from_millis(6);
    const FULL: u64 = 100_000;

    /// What becomes of packets that could be sent each millisecond from `from` on and have all waited
    /// too long: the milliseconds at which one was dropped.
    fn drops(codel: &mut Codel, from: u64, until: u64) -> Vec<u64> {
        let mut drops = Vec::new();
        for now in from..until {
            while codel.departure(at(now), LONG, FULL, Ecn::NotEct) == AqmDecision::Drop {
                drops.push(now);
            }
        }
        drops
    }

    #[test]
    fn drops_come_after_an_interval_and_then_faster_and_faster() {
        let mut codel = Codel::new(CodelSpec::default());
        // 100 ms over the target, then 100 / sqrt(n) ms from one to the next.
        assert_eq!(drops(&mut codel, 0, 470), [100, 200, 271, 329, 379, 424, 464]);
    }

    #[test]
    fn one_packet_in_time_ends_it_and_the_next_begins_at_the_rate_of_before() {
        let mut codel = Codel::new(CodelSpec::default());
        assert_eq!(drops(&mut codel, 0, 430).len(), 6);
        assert_eq!(
            codel.departure(at(430), Span::from_millis(4), FULL, Ecn::NotEct),
            AqmDecision::Pass
        );
        // Six drops less the one that it had begun with: 100 / sqrt(5) ms after the first.
        assert_eq!(drops(&mut codel, 440, 600), [540, 585]);
        codel.departure(at(600), Span::ZERO, 0, Ecn::NotEct);
        // Long after, it begins anew.
        assert_eq!(drops(&mut codel, 5_000, 5_201), [5_100, 5_200]);
    }

    #[test]
    fn a_queue_of_no_more_than_a_packet_is_never_too_long() {
        let mut codel = Codel::new(CodelSpec::default());
        for now in 0..1_000 {
            let decision = codel.departure(at(now), Span::from_secs(1), 1500, Ecn::NotEct);
            assert_eq!(decision, AqmDecision::Pass);
        }
    }

    #[test]
    fn marks_stand_in_for_drops_only_if_told_to_and_where_they_can() {
        let marking = CodelSpec { ecn: true, ..CodelSpec::default() };
        let decisions = |spec: CodelSpec, ecn: Ecn| {
            let mut codel = Codel::new(spec);
            (0..201).map(|now| codel.departure(at(now), LONG, FULL, ecn)).collect::<Vec<_>>()
        };
        let marked = decisions(marking, Ecn::Ect0);
        assert_eq!(marked.iter().filter(|decision| **decision == AqmDecision::Mark).count(), 2);
        assert!(!marked.contains(&AqmDecision::Drop));
        for decisions in
            [decisions(marking, Ecn::NotEct), decisions(CodelSpec::default(), Ecn::Ect0)]
        {
            assert!(
                !decisions.contains(&AqmDecision::Mark) && decisions.contains(&AqmDecision::Drop)
            );
        }
    }
}
