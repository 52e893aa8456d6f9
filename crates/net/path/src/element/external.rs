use std::collections::BTreeMap;

use midspan_units::{Span, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use crate::{Counters, Ecn, Packet};

/// An element of the caller's: the scenario has its name and its settings, the caller brings what decides
/// ([`Externals`]). What it keeps of the order of packets is its own affair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalSpec {
    /// Which of the caller's.
    pub name: String,
    /// What it is made with: text, which it reads as it likes. Axes of a sweep may be in it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub with: BTreeMap<String, String>,
}

/// A packet as an element from outside sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// [`Packet::wire_bytes`].
    pub wire_bytes: u32,
    /// [`Packet::burst`].
    pub burst: u64,
    /// [`Packet::ecn`].
    pub ecn: Ecn,
    /// [`Packet::is_pure_ack`].
    pub is_pure_ack: bool,
    /// Packets that the element holds, this one not counted.
    pub held: u64,
    /// Bytes of these.
    pub held_bytes: u64,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Pass {
        /// After so long; zero is at once.
        after: Span,
        /// With a mark, if its sender can use one ([`Ecn::is_capable`]).
        mark: bool,
    },
    /// It is dropped by intent.
    Drop,
}

/// What decides in an element from outside. For the same packets at the same times it must decide the same, or runs
/// cannot be repeated; it has no way to fail but to drop.
pub trait Decide: Send {
    /// A packet comes in at `now`.
    fn decide(&mut self, now: Time, packet: &Seen) -> Fate;
}

/// Makes what decides in one element: of its settings, and of a seed that differs from element to element and from run
/// to run, and is the same when a run is made again.
pub type Maker = Box<dyn Fn(&BTreeMap<String, String>, u64) -> Box<dyn Decide> + Send + Sync>;

/// The elements from outside, by the names that scenarios have for them.
pub type Externals = BTreeMap<String, Maker>;

pub(crate) struct External<P> {
    decide: Box<dyn Decide>,
    /// By when they leave, and then in the order in which they came.
    held: BTreeMap<(Time, u64), P>,
    bytes: u64,
    came: u64,
    dropped: u64,
    marked: u64,
}

impl<P> External<P> {
    pub(crate) fn new(decide: Box<dyn Decide>) -> Self {
        External { decide, held: BTreeMap::new(), bytes: 0, came: 0, dropped: 0, marked: 0 }
    }
}

impl<P: Packet> Element<P> for Box<External<P>> {
    fn enter(&mut self, now: Time, mut packet: P) -> Option<P> {
        let seen = Seen {
            wire_bytes: packet.wire_bytes(),
            burst: packet.burst(),
            ecn: packet.ecn(),
            is_pure_ack: packet.is_pure_ack(),
            held: self.held.len() as u64,
            held_bytes: self.bytes,
        };
        let Fate::Pass { after, mark } = self.decide.decide(now, &seen) else {
            self.dropped += 1;
            return None;
        };
        if mark && seen.ecn.is_capable() && seen.ecn != Ecn::Ce {
            packet.mark_ce();
            self.marked += 1;
        }
        if after == Span::ZERO {
            return Some(packet);
        }
        self.bytes += u64::from(seen.wire_bytes);
        self.held.insert((now + after, self.came), packet);
        self.came += 1;
        None
    }

    fn due(&self) -> Time {
        self.held.first_key_value().map_or(Time::MAX, |((at, _), _)| *at)
    }

    fn run(&mut self, _now: Time) -> Option<P> {
        let (_, packet) = self.held.pop_first()?;
        self.bytes -= u64::from(packet.wire_bytes());
        Some(packet)
    }

    fn report(&self, counters: &mut Counters) {
        counters.packets_queued += self.held.len() as u64;
        counters.bytes_queued += self.bytes;
        counters.marked += self.marked;
        counters.add_dropped("external", self.dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestPacket, drain, micros};
    use crate::{ElementSpec, Link, LinkSpec, Traces, Way};

    /// Holds each packet for as many microseconds as it has bytes, drops those of 13, marks those of 7.
    struct ByBytes;

    impl Decide for ByBytes {
        fn decide(&mut self, _now: Time, packet: &Seen) -> Fate {
            match packet.wire_bytes {
                13 => Fate::Drop,
                bytes => {
                    Fate::Pass { after: Span::from_micros(u64::from(bytes)), mark: bytes == 7 }
                }
            }
        }
    }

    fn link(name: &str) -> LinkSpec {
        let spec = ExternalSpec { name: name.to_owned(), with: BTreeMap::new() };
        LinkSpec { up: vec![ElementSpec::External(spec)], down: Vec::new() }
    }

    fn externals() -> Externals {
        let make: Maker = Box::new(|_, _| Box::new(ByBytes));
        BTreeMap::from([("by-bytes".to_owned(), make)])
    }

    #[test]
    fn it_delays_drops_and_marks_as_it_is_told() {
        let mut link = Link::with(&link("by-bytes"), &Traces::new(), &externals(), 1).unwrap();
        for (number, bytes) in [(0, 40), (1, 13), (2, 7), (3, 0), (4, 40)] {
            let ecn = Ecn::Ect0;
            let packet = TestPacket { ecn, ..TestPacket::new(number, bytes) };
            link.enqueue(Way::Up, Time::ZERO, packet);
        }
        let out: Vec<_> = std::iter::from_fn(|| link.dequeue(Way::Up, micros(100)))
            .map(|(at, packet)| (at, packet.number, packet.ecn == Ecn::Ce))
            .collect();
        let expected = [
            (micros(0), 3, false),
            (micros(7), 2, true),
            (micros(40), 0, false),
            (micros(40), 4, false),
        ];
        assert_eq!(out, expected);
        let counters = link.counters(Way::Up);
        assert_eq!((counters.dropped["external"], counters.marked), (1, 1));
    }

    #[test]
    fn one_that_nobody_brought_is_refused_by_name() {
        for (name, externals) in [("else", externals()), ("by-bytes", Externals::new())] {
            let error = Link::<TestPacket>::with(&link(name), &Traces::new(), &externals, 1);
            let error = error.err().unwrap();
            assert_eq!(error.place, "up, element 1 (external)");
            assert!(error.problem.contains(&format!("`{name}`")), "{error}");
        }
    }

    #[test]
    fn makers_are_told_settings_and_a_seed_of_their_own() {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = seen.clone();
        let make: Maker = Box::new(move |with, seed| {
            kept.lock().unwrap().push((with.clone(), seed));
            Box::new(ByBytes)
        });
        let externals = BTreeMap::from([("mine".to_owned(), make)]);
        let with = BTreeMap::from([("by".to_owned(), "5 ms".to_owned())]);
        let spec = ElementSpec::External(ExternalSpec { name: "mine".into(), with: with.clone() });
        let link = LinkSpec { up: vec![spec.clone(), spec], down: Vec::new() };
        for _ in 0..2 {
            let mut link = Link::<TestPacket>::with(&link, &Traces::new(), &externals, 1).unwrap();
            link.enqueue(Way::Up, Time::ZERO, TestPacket::new(0, 9));
            assert_eq!(link.dequeue(Way::Up, micros(18)).unwrap().0, micros(18));
        }
        let seen = seen.lock().unwrap();
        assert!(seen.iter().all(|(given, _)| *given == with));
        assert_eq!(seen[..2], seen[2..]);
        assert_ne!(seen[0].1, seen[1].1);
    }

    #[test]
    fn a_direction_of_its_own_keeps_account() {
        let spec = ExternalSpec { name: "by-bytes".into(), with: BTreeMap::new() };
        let mut direction = crate::Direction::looking_at(
            &[ElementSpec::External(spec)],
            crate::spec::Given { traces: &Traces::new(), externals: &externals() },
            1,
            None,
        )
        .unwrap();
        (0..4).for_each(|number| direction.enqueue(Time::ZERO, TestPacket::new(number, 20)));
        assert_eq!(direction.counters().bytes_queued, 80);
        assert_eq!(drain(&mut direction).len(), 4);
        assert_eq!(direction.counters().packets_queued, 0);
    }
}
