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
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
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
