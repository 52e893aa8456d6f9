use midspan_units::{Rate, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use crate::queue::Queue;
use crate::random::Random;
use crate::{AqmSpec, Counters, Packet, QueueSpec};

/// A link of a fixed rate with a queue before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
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
        let aqm = spec.aqm.map(|aqm| aqm.build(|bytes| spec.rate.time_for(bytes), random));
        RateLink {
            rate: spec.rate.as_bps(),
            queue: Queue::new(spec.queue, aqm),
            done: Time::MAX,
            early: 0,
        }
    }

    /// The packet at the head begins to be sent at `now` less [`Self::early`].
    fn send_head(&mut self, now: Time) {
        let Some(packet) = self.queue.front() else {
            self.done = Time::MAX;
            return;
        };
        let rate = u128::from(self.rate);
        let work = u128::from(packet.wire_bytes()) * BYTE;
        let rest = work.saturating_sub(u128::from(self.early));
        let nanos = rest.div_ceil(rate);
        self.early = (nanos * rate - rest) as u64;
        self.done = now + midspan_units::Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
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
