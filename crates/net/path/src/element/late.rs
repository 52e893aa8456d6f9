use std::collections::VecDeque;

use midspan_units::{Share, Span, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use crate::random::Random;
use crate::unit::Chooser;
use crate::{Counters, Packet, Unit};

/// A share of packets is held back and overtaken by the others, which pass at once in their order:
/// a reliable link layer without in-order delivery, as the MEC paper emulates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LateSpec {
    /// Share of packets (or of super-packets) held back, chosen independently.
    pub share: Share,
    /// For how long.
    pub by: Span,
    /// What is held back together. Default `packet`.
    #[serde(default)]
    pub unit: Unit,
}

pub(crate) struct Late<P> {
    by: Span,
    chooser: Chooser,
    /// All are held for the same time, so they leave in the order in which they came.
    held: VecDeque<(Time, P)>,
    bytes: u64,
}

impl<P> Late<P> {
    pub(crate) fn new(spec: LateSpec, random: Random) -> Self {
        let chooser = Chooser::new(spec.share, spec.unit, random);
        Late { by: spec.by, chooser, held: VecDeque::new(), bytes: 0 }
    }
}

impl<P: Packet> Element<P> for Late<P> {
    fn enter(&mut self, now: Time, packet: P) -> Option<P> {
        if !self.chooser.chooses(packet.burst()) || self.by == Span::ZERO {
            return Some(packet);
        }
        self.bytes += u64::from(packet.wire_bytes());
        self.held.push_back((now + self.by, packet));
        None
    }

    fn due(&self) -> Time {
        self.held.front().map_or(Time::MAX, |(at, _)| *at)
    }

    fn run(&mut self, _now: Time) -> Option<P> {
        let (_, packet) = self.held.pop_front()?;
        self.bytes -= u64::from(packet.wire_bytes());
        Some(packet)
    }

    fn report(&self, counters: &mut Counters) {
        counters.packets_queued += self.held.len() as u64;
        counters.bytes_queued += self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestPacket, cross, direction, drain, micros};

    #[test]
    fn held_packets_are_overtaken_and_the_others_keep_their_order() {
        let mut link = direction("{ late = { share = '50 %', by = '3 us' } }");
        let arrivals: Vec<(u64, u32)> = (0..8).map(|at| (at, 1500)).collect();
        let out = cross(&mut link, &arrivals);
        // Packets 2 and 4 are held; at 5 us what was held leaves before what comes.
        assert_eq!(out, [(0, 0), (1, 1), (3, 3), (5, 2), (5, 5), (6, 6), (7, 4), (7, 7)]);
    }

    #[test]
    fn all_late_is_a_delay() {
        let mut link = direction("{ late = { share = '100 %', by = '10 ms' } }");
        assert_eq!(cross(&mut link, &[(0, 1500), (1, 40)]), [(10_000, 0), (10_001, 1)]);
    }

    #[test]
    fn the_packets_of_a_super_packet_are_late_together() {
        let mut link =
            direction("{ late = { share = '50 %', by = '1 s', unit = 'super-packet' } }");
        for number in 0..400 {
            let packet = TestPacket { burst: number / 10, ..TestPacket::new(number, 1500) };
            link.enqueue(micros(number), packet);
        }
        let out: Vec<u64> = drain(&mut link).into_iter().map(|(_, packet)| packet.number).collect();
        assert_eq!(out.len(), 400);
        assert!(out.chunks(10).all(|ten| ten.windows(2).all(|pair| pair[0] + 1 == pair[1])));
        assert!(!out.is_sorted());
    }
}
