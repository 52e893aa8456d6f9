use std::collections::VecDeque;

use midspan_units::{Rate, Span, Time};
use serde::{Deserialize, Serialize};

/// How minRTT is put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MinRttConfig {
    /// Part 1, the network between edge gateway and base station, there and back, where no probe
    /// measures it.
    pub network: Span,
    /// Bytes of the packet whose transmission is part 2.
    pub downlink_packet: u64,
    /// Bytes of the packet whose transmission is part 3. Zero where the uplink counts nothing, as
    /// in the authors' program.
    pub uplink_packet: u64,
    /// Part 3 while nothing is known of the uplink.
    pub uplink: Span,
    /// The longest that part 2 or part 3 may be.
    pub longest: Span,
}

impl Default for MinRttConfig {
    fn default() -> Self {
        MinRttConfig {
            network: Span::from_millis(10),
            downlink_packet: 1500,
            uplink_packet: 1500,
            uplink: Span::ZERO,
            longest: Span::from_secs(1),
        }
    }
}

/// The `natcp` paper's minRTT (section 2.2.1), in three parts: the network, and at the base station
/// scheduling and transmission of a packet downwards and upwards, both told by the rate at which
/// the UE's packets leave and come in.
///
/// A window in which nothing could be sent has no transmission time: the last one stays, as in the
/// authors' program.
#[derive(Debug, Clone)]
pub struct MinRtt {
    config: MinRttConfig,
    downlink: Option<Span>,
    uplink: Option<Span>,
}

impl MinRtt {
    /// Nothing is known yet.
    pub fn new(config: MinRttConfig) -> MinRtt {
        MinRtt { config, downlink: None, uplink: None }
    }

    /// Notes what the two directions can carry; None where that is not known.
    pub fn observe(&mut self, downlink: Option<Rate>, uplink: Option<Rate>) {
        let part = |rate: Option<Rate>, packet: u64, last: Option<Span>| match rate {
            Some(rate) if rate > Rate::from_bps(0) => {
                Some(rate.time_for(packet).min(self.config.longest))
            }
            _ => last,
        };
        self.downlink = part(downlink, self.config.downlink_packet, self.downlink);
        self.uplink = part(uplink, self.config.uplink_packet, self.uplink);
    }

    /// The sum of the parts, with `network` from a probe or else as configured. None before the
    /// downlink is known.
    pub fn value(&self, network: Option<Span>) -> Option<Span> {
        let network = network.unwrap_or(self.config.network);
        Some(network + self.downlink? + self.uplink.unwrap_or(self.config.uplink))
    }
}

/// The least of what a probe measured within a time: the network part without its queues. (The
/// paper's probes have priority and meet no queue; without priority the least is the best there is.)
#[derive(Debug, Clone)]
pub struct Floor {
    memory: Span,
    /// Ever later and ever greater.
    samples: VecDeque<(Time, Span)>,
}

impl Floor {
    /// Over the last `memory`.
    pub fn new(memory: Span) -> Floor {
        Floor { memory, samples: VecDeque::new() }
    }

    /// Notes a round trip.
    pub fn add(&mut self, now: Time, round_trip: Span) {
        while self.samples.back().is_some_and(|(_, other)| *other >= round_trip) {
            self.samples.pop_back();
        }
        self.samples.push_back((now, round_trip));
        self.forget(now);
    }

    /// The least; None if there was nothing within the memory.
    pub fn value(&mut self, now: Time) -> Option<Span> {
        self.forget(now);
        self.samples.front().map(|(_, least)| *least)
    }

    fn forget(&mut self, now: Time) {
        while self.samples.front().is_some_and(|(at, _)| now.since(*at) > self.memory) {
            self.samples.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mbps(rate: f64) -> Option<Rate> {
        Some(Rate::from_bps((rate * 1e6) as u64))
    }

    /// Section 2.3: "When link capacity is 1.2 Mbps the transmission delay for a packet of size
    /// 1500 B becomes 10 ms alone", on a network of 10 ms.
    #[test]
    fn the_papers_example() {
        let config = MinRttConfig { uplink_packet: 0, ..MinRttConfig::default() };
        let mut min_rtt = MinRtt::new(config);
        assert_eq!(min_rtt.value(None), None);
        min_rtt.observe(mbps(1.2), None);
        assert_eq!(min_rtt.value(None), Some(Span::from_millis(20)));
    }

    #[test]
    fn all_three_parts_add_up() {
        let mut min_rtt = MinRtt::new(MinRttConfig::default());
        min_rtt.observe(mbps(12.0), mbps(6.0));
        let (down, up) = (Span::from_millis(1), Span::from_millis(2));
        assert_eq!(min_rtt.value(None), Some(Span::from_millis(10) + down + up));
        assert_eq!(
            min_rtt.value(Some(Span::from_millis(4))),
            Some(Span::from_millis(4) + down + up)
        );
    }

    #[test]
    fn a_window_that_carries_nothing_keeps_the_last_transmission_time() {
        let mut min_rtt = MinRtt::new(MinRttConfig::default());
        min_rtt.observe(mbps(12.0), mbps(6.0));
        let before = min_rtt.value(None);
        min_rtt.observe(mbps(0.0), mbps(0.0));
        assert_eq!(min_rtt.value(None), before);
        min_rtt.observe(None, None);
        assert_eq!(min_rtt.value(None), before);
    }

    proptest! {
        #[test]
        fn never_zero_never_endless(
            rates in prop::collection::vec((any::<u64>(), any::<u64>()), 1..20),
        ) {
            let config = MinRttConfig::default();
            let mut min_rtt = MinRtt::new(config);
            for (down, up) in rates {
                min_rtt.observe(Some(Rate::from_bps(down)), Some(Rate::from_bps(up)));
                if let Some(value) = min_rtt.value(None) {
                    prop_assert!(value > config.network);
                    prop_assert!(value <= config.network + config.longest * 2);
                }
            }
        }

        /// Against a model that keeps all samples.
        #[test]
        fn the_floor_is_the_least_within_memory(
            samples in prop::collection::vec((0u64..40, 1u64..1_000), 1..200),
        ) {
            let memory = Span::from_millis(100);
            let (mut floor, mut all, mut now) = (Floor::new(memory), Vec::new(), Time::ZERO);
            for (pause, micros) in samples {
                now += Span::from_millis(pause);
                floor.add(now, Span::from_micros(micros));
                all.push((now, Span::from_micros(micros)));
                let later = now + Span::from_millis(30);
                let least = all.iter().filter(|(at, _)| later.since(*at) <= memory).map(|(_, rtt)| *rtt).min();
                prop_assert_eq!(floor.clone().value(later), least);
            }
        }
    }
}
