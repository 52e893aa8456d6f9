use std::collections::VecDeque;

use midspan_units::{ByteSize, Time};
use serde::{Deserialize, Serialize};

use crate::aqm::{Aqm, AqmDecision};
use crate::{Counters, Ecn, Packet};

/// How much a queue holds. A packet counts until its last bit has left, so the one being sent
/// counts too; one that would not fit whole is dropped on arrival (droptail).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSpec {
    /// Most bytes, IP headers included. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<ByteSize>,
    /// Most packets. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
}

impl QueueSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.bytes == Some(ByteSize::from_bytes(0)) || self.packets == Some(0) {
            return Err("a queue that holds nothing passes nothing: \
                        give a limit above zero, or none at all"
                .to_owned());
        }
        Ok(())
    }

    fn fits(&self, packets: u64, bytes: u64) -> bool {
        self.packets.is_none_or(|limit| packets <= limit)
            && self.bytes.is_none_or(|limit| bytes <= limit.as_bytes())
    }
}

/// A first-in first-out queue with a limit and, if wanted, active management.
pub(crate) struct Queue<P> {
    /// Each with the time at which it came.
    packets: VecDeque<(Time, P)>,
    bytes: u64,
    limit: QueueSpec,
    aqm: Option<Aqm>,
    overflowed: u64,
    managed_away: u64,
    marked: u64,
}

impl<P: Packet> Queue<P> {
    pub(crate) fn new(limit: QueueSpec, aqm: Option<Aqm>) -> Self {
        Queue {
            packets: VecDeque::new(),
            bytes: 0,
            limit,
            aqm,
            overflowed: 0,
            managed_away: 0,
            marked: 0,
        }
    }

    /// Takes `packet` in or drops it. Active management judges first, as it counts every arrival.
    pub(crate) fn offer(&mut self, now: Time, mut packet: P) {
        let ecn = packet.ecn();
        let decision = match &mut self.aqm {
            Some(aqm) => aqm.arrival(now, self.bytes, ecn),
            None => AqmDecision::Pass,
        };
        if decision == AqmDecision::Drop {
            self.managed_away += 1;
            return;
        }
        let bytes = self.bytes + u64::from(packet.wire_bytes());
        if !self.limit.fits(self.packets.len() as u64 + 1, bytes) {
            self.overflowed += 1;
            return;
        }
        if decision == AqmDecision::Mark && ecn != Ecn::Ce {
            packet.mark_ce();
            self.marked += 1;
        }
        self.bytes = bytes;
        self.packets.push_back((now, packet));
    }

    /// The packet to be sent from `now` on. Call once before it is: active management may drop some
    /// that were before it.
    pub(crate) fn head(&mut self, now: Time) -> Option<&P> {
        while let (Some(aqm), Some((since, packet))) = (&mut self.aqm, self.packets.front_mut()) {
            let (bytes, ecn) = (u64::from(packet.wire_bytes()), packet.ecn());
            match aqm.departure(now, now.since(*since), self.bytes - bytes, ecn) {
                AqmDecision::Pass => break,
                AqmDecision::Mark => {
                    if ecn != Ecn::Ce {
                        packet.mark_ce();
                        self.marked += 1;
                    }
                    break;
                }
                AqmDecision::Drop => {
                    self.managed_away += 1;
                    self.bytes -= bytes;
                    self.packets.pop_front();
                }
            }
        }
        Some(&self.packets.front()?.1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The packet at the head, whose last bit has left at `now`.
    pub(crate) fn pop(&mut self, now: Time) -> Option<P> {
        let (_, packet) = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.wire_bytes());
        if self.packets.is_empty()
            && let Some(aqm) = &mut self.aqm
        {
            aqm.emptied(now);
        }
        Some(packet)
    }

    pub(crate) fn report(&self, counters: &mut Counters) {
        counters.packets_queued += self.packets.len() as u64;
        counters.bytes_queued += self.bytes;
        counters.marked += self.marked;
        counters.add_dropped("queue", self.overflowed);
        if let Some(aqm) = &self.aqm {
            counters.add_dropped(aqm.cause(), self.managed_away);
        }
    }
}
