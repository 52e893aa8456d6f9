//! What the tests of elements share: packets with names, and ways to send them.

use midspan_units::{Span, Time};

use crate::{Direction, Ecn, ElementSpec, Packet, Traces};

/// A packet that remembers which it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestPacket {
    pub(crate) number: u64,
    pub(crate) bytes: u32,
    pub(crate) burst: u64,
    pub(crate) ecn: Ecn,
    pub(crate) pure_ack: bool,
}

impl TestPacket {
    pub(crate) fn new(number: u64, bytes: u32) -> Self {
        TestPacket { number, bytes, burst: number, ecn: Ecn::NotEct, pure_ack: false }
    }
}

impl Packet for TestPacket {
    fn wire_bytes(&self) -> u32 {
        self.bytes
    }

    fn burst(&self) -> u64 {
        self.burst
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark_ce(&mut self) {
        assert!(self.ecn.is_capable() || self.pure_ack);
        self.ecn = Ecn::Ce;
    }

    fn is_pure_ack(&self) -> bool {
        self.pure_ack
    }
}

pub(crate) fn micros(micros: u64) -> Time {
    Time::ZERO + Span::from_micros(micros)
}

/// Elements as a scenario file has them.
pub(crate) fn specs(text: &str) -> Vec<ElementSpec> {
    #[derive(serde::Deserialize)]
    struct File {
        up: Vec<ElementSpec>,
    }
    toml::from_str::<File>(&format!("up = [{text}]")).unwrap().up
}

pub(crate) fn direction(text: &str) -> Direction<TestPacket> {
    Direction::new(&specs(text), &Traces::new(), 1).unwrap()
}

/// Why these elements are refused.
pub(crate) fn refusal(text: &str) -> String {
    crate::check(&specs(text)).unwrap_err().to_string()
}

/// Sends packets of the given sizes at the given microseconds, and lists microsecond and number of
/// each that comes out.
pub(crate) fn cross(
    direction: &mut Direction<TestPacket>,
    arrivals: &[(u64, u32)],
) -> Vec<(u64, u64)> {
    for (number, (at, bytes)) in arrivals.iter().enumerate() {
        direction.enqueue(micros(*at), TestPacket::new(number as u64, *bytes));
    }
    drain(direction).into_iter().map(|(at, packet)| (at.as_nanos() / 1000, packet.number)).collect()
}

/// Takes out all that will ever come.
pub(crate) fn drain(direction: &mut Direction<TestPacket>) -> Vec<(Time, TestPacket)> {
    let mut out = Vec::new();
    while let Some(at) = direction.next_event() {
        out.extend(std::iter::from_fn(|| direction.dequeue(at)));
    }
    out
}
