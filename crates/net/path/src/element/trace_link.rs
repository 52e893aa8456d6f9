use midspan_units::Time;
use serde::{Deserialize, Serialize};

use super::Element;
use crate::queue::Queue;
use crate::random::Random;
use crate::trace::{CHANCE_BYTES, Trace};
use crate::{AqmSpec, Counters, Packet, QueueSpec};

/// A link that sends when a recording says so, with a queue before it: what Mahimahi's `mm-link`
/// does.
///
/// Each line of the recording is a chance to send 1504 bytes at that millisecond, and a packet
/// costs its bytes and four more (the TUN header that the recordings counted). Several small
/// packets share a chance; a packet that does not fit in what is left of one goes on in the next,
/// and has left when its last byte has. A chance that finds the queue empty is lost, and so is the
/// rest of one that empties it. A packet that comes in the very moment of a chance is too late for
/// it. After its last chance the recording starts over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSpec {
    /// The recording: a file in Mahimahi's format, plain or gzipped.
    pub file: String,
    /// What the queue holds. Default: no limit.
    #[serde(default)]
    pub queue: QueueSpec,
    /// Active management of the queue. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aqm: Option<AqmSpec>,
}

impl TraceSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.file.is_empty() {
            return Err("`file` is empty: name a trace in Mahimahi's format".to_owned());
        }
        self.queue.check()?;
        self.aqm.map_or(Ok(()), |aqm| aqm.check())
    }
}

/// What a packet costs beyond its own bytes.
const TUN_HEADER: u32 = 4;

pub(crate) struct TraceLink<P> {
    trace: Trace,
    queue: Queue<P>,
    /// How often the recording has started over, and the place in it of the next chance.
    cycle: u64,
    place: usize,
    /// What that chance has left.
    chance: u32,
    /// What the packet at the head still needs; none before a chance has come to it.
    head: Option<u32>,
}

impl<P: Packet> TraceLink<P> {
    pub(crate) fn new(spec: &TraceSpec, trace: Trace, random: Random) -> Self {
        let mean = trace.mean_rate();
        let aqm = spec.aqm.and_then(|aqm| aqm.build(|bytes| mean.time_for(bytes), random));
        TraceLink {
            trace,
            queue: Queue::new(spec.queue, aqm),
            cycle: 0,
            place: 0,
            chance: CHANCE_BYTES,
            head: None,
        }
    }

    /// What the packet needs that a chance comes to at `now`.
    fn start_head(&mut self, now: Time) -> u32 {
        self.queue.head(now).map_or(0, |packet| packet.wire_bytes().saturating_add(TUN_HEADER))
    }

    /// Goes to the first chance after `now`.
    fn seek(&mut self, now: Time) {
        const MILLISECOND: u64 = 1_000_000;
        let period = u64::from(self.trace.period());
        let elapsed = now.as_nanos() / MILLISECOND;
        self.cycle = elapsed / period;
        let offset = elapsed % period;
        // The last chance is at `period`, so there is one after `offset` in this cycle.
        self.place = self.trace.chances().partition_point(|at| u64::from(*at) <= offset);
        self.chance = CHANCE_BYTES;
    }

    fn next_chance(&mut self) {
        self.chance = CHANCE_BYTES;
        self.place += 1;
        if self.place == self.trace.chances().len() {
            self.place = 0;
            self.cycle += 1;
        }
    }
}

impl<P: Packet> Element<P> for TraceLink<P> {
    fn enter(&mut self, now: Time, packet: P) -> Option<P> {
        let idle = self.queue.is_empty();
        self.queue.offer(now, packet);
        if idle {
            self.seek(now);
        }
        None
    }

    fn due(&self) -> Time {
        if self.queue.is_empty() {
            return Time::MAX;
        }
        let at = u64::from(self.trace.chances()[self.place]);
        let millis = self.cycle.saturating_mul(u64::from(self.trace.period())).saturating_add(at);
        Time::from_nanos(millis.saturating_mul(1_000_000))
    }

    fn run(&mut self, now: Time) -> Option<P> {
        let need = self.head.take().unwrap_or_else(|| self.start_head(now));
        let sent = need.min(self.chance);
        self.chance -= sent;
        let packet = if sent == need {
            self.queue.pop(now)
        } else {
            self.head = Some(need - sent);
            None
        };
        if self.chance == 0 {
            self.next_chance();
        }
        packet
    }

    fn report(&self, counters: &mut Counters) {
        self.queue.report(counters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestPacket, cross, refusal, specs};
    use crate::{Direction, Traces};

    fn link(trace: &[u8], settings: &str) -> Direction<TestPacket> {
        let traces = Traces::from([("t".to_owned(), Trace::parse(trace).unwrap())]);
        Direction::new(&specs(&format!("{{ trace = {{ file = 't'{settings} }} }}")), &traces, 1)
            .unwrap()
    }

    #[test]
    fn a_full_packet_takes_a_chance_and_the_recording_starts_over() {
        let mut link = link(b"2\n2\n5\n", "");
        let out = cross(&mut link, &[(0, 1500); 7]);
        let millis: Vec<u64> = out.iter().map(|(at, _)| at / 1000).collect();
        assert_eq!(millis, [2, 2, 5, 7, 7, 10, 12]);
    }

    #[test]
    fn a_start_at_zero_is_the_end_of_the_round_before() {
        let mut link = link(b"0\n4\n", "");
        let out = cross(&mut link, &[(0, 1500); 5]);
        let millis: Vec<u64> = out.iter().map(|(at, _)| at / 1000).collect();
        assert_eq!(millis, [4, 4, 8, 8, 12]);
    }

    #[test]
    fn chances_that_find_nothing_are_lost() {
        let mut link = link(b"1\n2\n3\n3\n10\n", "");
        // The moment of a chance is too late for it.
        let out = cross(&mut link, &[(2_000, 1500), (3_500, 1500), (10_000, 1500), (31_999, 1500)]);
        assert_eq!(out, [(3_000, 0), (10_000, 1), (11_000, 2), (32_000, 3)]);
    }

    #[test]
    fn small_packets_share_a_chance_and_large_ones_span_several() {
        // With four bytes each: 1000 + 504 fill the first chance, 3000 take the second and third
        // but 8 bytes, which the next 8 of 44 use.
        let mut link = link(b"1\n", "");
        let out = cross(&mut link, &[(0, 996), (0, 500), (0, 2996), (0, 40), (0, 1496)]);
        assert_eq!(out, [(1_000, 0), (1_000, 1), (3_000, 2), (4_000, 3), (5_000, 4)]);
    }

    #[test]
    fn the_rest_of_a_chance_that_empties_the_queue_is_lost() {
        let mut link = link(b"1\n", "");
        let out = cross(&mut link, &[(0, 40), (1_000, 1500)]);
        assert_eq!(out, [(1_000, 0), (2_000, 1)]);
    }

    #[test]
    fn a_full_queue_drops() {
        let mut link = link(b"5\n", ", queue = { packets = 2 }");
        assert_eq!(cross(&mut link, &[(0, 1500); 3]), [(5_000, 0), (10_000, 1)]);
        assert_eq!(link.counters().dropped["queue"], 1);
    }

    #[test]
    fn a_trace_that_nobody_gave_is_refused() {
        let specs = specs("{ trace = { file = 'lte.gz' } }");
        let error = Direction::<TestPacket>::new(&specs, &Traces::new(), 1).err().unwrap();
        assert_eq!(error.to_string(), "element 1 (trace): no trace `lte.gz` was given");
        assert!(refusal("{ trace = { file = '' } }").contains("name a trace"));
    }
}
