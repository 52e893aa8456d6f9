use std::collections::VecDeque;

use midspan_units::{Span, Time};

use super::Element;
use crate::{Counters, Packet};

/// Each packet leaves a fixed time after it came.
pub(crate) struct Delay<P> {
    delay: Span,
    flying: VecDeque<(Time, P)>,
    bytes: u64,
}

impl<P> Delay<P> {
    pub(crate) fn new(delay: Span) -> Self {
        Delay { delay, flying: VecDeque::new(), bytes: 0 }
    }
}

impl<P: Packet> Element<P> for Delay<P> {
    fn enter(&mut self, now: Time, packet: P) -> Option<P> {
        if self.delay == Span::ZERO {
            return Some(packet);
        }
        self.bytes += u64::from(packet.wire_bytes());
        self.flying.push_back((now + self.delay, packet));
        None
    }

    fn due(&self) -> Time {
        self.flying.front().map_or(Time::MAX, |(at, _)| *at)
    }

    fn run(&mut self, _now: Time) -> Option<P> {
        let (_, packet) = self.flying.pop_front()?;
        self.bytes -= u64::from(packet.wire_bytes());
        Some(packet)
    }

    fn report(&self, counters: &mut Counters) {
        counters.packets_queued += self.flying.len() as u64;
        counters.bytes_queued += self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{cross, direction};

    #[test]
    fn everything_leaves_later_by_the_delay() {
        let mut link = direction("{ delay = '0.5 ms' }");
        let out = cross(&mut link, &[(0, 1500), (0, 40), (7, 1500), (900, 1500)]);
        assert_eq!(out, [(500, 0), (500, 1), (507, 2), (1400, 3)]);
    }

    #[test]
    fn no_delay_is_no_delay() {
        let mut link = direction("{ delay = '0 s' }");
        assert_eq!(cross(&mut link, &[(3, 1500)]), [(3, 0)]);
    }
}
