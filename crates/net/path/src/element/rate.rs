use midspan_units::{Rate, Span, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use crate::queue::Queue;
use crate::random::Random;
use crate::{AqmSpec, Counters, Packet, QueueSpec};

/// A link of a fixed rate with a queue before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateSpec {
    /// The link's rate, counted on IP packets with their headers.
    pub rate: Rate,
    /// What the queue holds. Default: no limit.
    #[serde(default)]
    pub queue: QueueSpec,
    /// Active management of the queue. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aqm: Option<AqmSpec>,
}

impl RateSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.rate == Rate::from_bps(0) {
            return Err("the rate must be above zero, such as `1 Gbit/s`".to_owned());
        }
        self.queue.check()?;
        self.aqm.map_or(Ok(()), |aqm| aqm.check())
    }
}

/// Bits per byte times nanoseconds per second.
const BYTE: u128 = 8_000_000_000;

pub(crate) struct RateLink<P> {
    rate: u64,
    queue: Queue<P>,
    /// When the last bit of the packet at the head leaves, rounded up to a nanosecond.
    done: Time,
    /// By how much `done` is rounded up, in nanoseconds times the rate: carried from packet to
    /// packet so that a busy link runs at its rate exactly.
    early: u64,
}

impl<P: Packet> RateLink<P> {
    pub(crate) fn new(spec: RateSpec, random: Random) -> Self {
        let aqm = spec.aqm.and_then(|aqm| aqm.build(|bytes| spec.rate.time_for(bytes), random));
        RateLink {
            rate: spec.rate.as_bps(),
            queue: Queue::new(spec.queue, aqm),
            done: Time::MAX,
            early: 0,
        }
    }

    /// The packet at the head begins to be sent at `now` less [`Self::early`].
    fn send_head(&mut self, now: Time) {
        let Some(packet) = self.queue.head(now) else {
            self.done = Time::MAX;
            return;
        };
        let rate = u128::from(self.rate);
        let work = u128::from(packet.wire_bytes()) * BYTE;
        let rest = work.saturating_sub(u128::from(self.early));
        let nanos = rest.div_ceil(rate);
        self.early = (nanos * rate - rest) as u64;
        self.done = now + Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    }
}

impl<P: Packet> Element<P> for RateLink<P> {
    fn enter(&mut self, now: Time, packet: P) -> Option<P> {
        let idle = self.queue.is_empty();
        self.queue.offer(now, packet);
        if idle {
            self.early = 0;
            self.send_head(now);
        }
        None
    }

    fn due(&self) -> Time {
        self.done
    }

    fn run(&mut self, now: Time) -> Option<P> {
        let packet = self.queue.pop(now);
        self.send_head(now);
        packet
    }

    fn report(&self, counters: &mut Counters) {
        self.queue.report(counters);
    }
}

#[cfg(test)]
mod tests {
    use crate::Ecn;
    use crate::testing::{TestPacket, cross, direction, drain, micros, refusal};

    #[test]
    fn packets_leave_one_after_the_other_at_the_rate() {
        let mut link = direction("{ rate = { rate = '1 Gbit/s' } }");
        let out = cross(&mut link, &[(0, 1500), (0, 1500), (5, 750), (100, 1500)]);
        assert_eq!(out, [(12, 0), (24, 1), (30, 2), (112, 3)]);
    }

    #[test]
    fn fractions_of_a_nanosecond_do_not_add_up() {
        // 1000 bytes take 2,666,666.67 ns: each third packet ends on a whole millisecond.
        let mut link = direction("{ rate = { rate = '3 Mbit/s' } }");
        (0..9).for_each(|number| link.enqueue(micros(0), TestPacket::new(number, 1000)));
        let times: Vec<u64> = drain(&mut link).iter().map(|(at, _)| at.as_nanos()).collect();
        assert_eq!(times[..3], [2_666_667, 5_333_334, 8_000_000]);
        assert_eq!(times[8], 24_000_000);
    }

    #[test]
    fn an_idle_link_begins_afresh() {
        // 2000 bytes take 5,333,333.33 ns: no third of a nanosecond is owed to what comes later.
        let mut link = direction("{ rate = { rate = '3 Mbit/s' } }");
        link.enqueue(micros(0), TestPacket::new(0, 2000));
        link.enqueue(micros(6_000), TestPacket::new(1, 1000));
        let times: Vec<u64> = drain(&mut link).iter().map(|(at, _)| at.as_nanos()).collect();
        assert_eq!(times, [5_333_334, 8_666_667]);
    }

    #[test]
    fn a_full_queue_drops_what_comes_and_counts_the_packet_being_sent() {
        let mut link = direction("{ rate = { rate = '1 Gbit/s', queue = { bytes = '3000 B' } } }");
        // At 12 us the first has left before the last comes.
        let out = cross(&mut link, &[(0, 1500), (0, 1500), (11, 40), (12, 1500), (12, 40)]);
        assert_eq!(out, [(12, 0), (24, 1), (36, 3)]);
        assert_eq!(link.counters().dropped["queue"], 2);

        let mut link = direction("{ rate = { rate = '1 Gbit/s', queue = { packets = 2 } } }");
        let out = cross(&mut link, &[(0, 1500), (0, 40), (0, 40), (12, 40)]);
        assert_eq!(out.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [0, 1, 3]);
    }

    #[test]
    fn active_management_drops_or_marks_before_the_queue_is_full() {
        let aqm = "aqm = { ecn-threshold = \
                   { threshold = '2000 B', weight = '100 %', drop_not_ect = true } }";
        let mut link = direction(&format!("{{ rate = {{ rate = '1 Mbit/s', {aqm} }} }}"));
        for (number, ecn) in
            [Ecn::Ect0, Ecn::Ect0, Ecn::Ect0, Ecn::NotEct, Ecn::Ce].into_iter().enumerate()
        {
            link.enqueue(micros(0), TestPacket { ecn, ..TestPacket::new(number as u64, 1500) });
        }
        let out: Vec<Ecn> = drain(&mut link).into_iter().map(|(_, packet)| packet.ecn).collect();
        assert_eq!(out, [Ecn::Ect0, Ecn::Ect0, Ecn::Ce, Ecn::Ce]);
        let counters = link.counters();
        assert_eq!((counters.marked, counters.dropped["ecn-threshold"]), (1, 1));
    }

    #[test]
    fn impossible_links_are_refused() {
        assert_eq!(
            refusal("{ delay = '1 ms' }, { rate = { rate = '0 bit/s' } }"),
            "element 2 (rate): the rate must be above zero, such as `1 Gbit/s`"
        );
        let error = refusal("{ rate = { rate = '1 Gbit/s', queue = { packets = 0 } } }");
        assert!(error.contains("holds nothing"), "{error}");
        let red = "{ red = { min = '3 KB', max = '2 KB' } }";
        let error = refusal(&format!("{{ rate = {{ rate = '1 Gbit/s', aqm = {red} }} }}"));
        assert!(error.contains("min threshold (3 KB) must be below"), "{error}");
    }
}
