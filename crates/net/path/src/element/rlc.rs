use std::cmp::Reverse;
use std::collections::BinaryHeap;

use midspan_units::{ByteSize, Rate, Share, Span, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use super::slots::{self, FRAME, Slots};
use crate::radio::Acknowledged;
use crate::random::Random;
use crate::{Counters, Packet};

/// A radio bearer in RLC acknowledged mode (3GPP TS 36.322, TS 38.322) with HARQ below it
/// (TS 36.321, TS 38.321), for one UE that has the cell's `rate` to itself.
///
/// Slots begin at multiples of `slot`. In each, one transport block of `rate x slot` bytes is
/// sent, filled with packets that came before the slot began; packets are cut and joined to fill
/// it. It is received, or not, when the slot ends. A block that was not received is sent again
/// when `retransmit` says, before new data and taking a whole slot of it. One that failed
/// `transmissions` times is found missing by the receiver's RLC and sent as new after
/// `status_delay`. So nothing is lost on the air. A packet is delivered when all of it and all
/// before it have been received: one late block holds up those behind it, which then leave in one
/// burst. What is left out: overhead of headers, and the radio link failure that a real RLC
/// declares after many retransmissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RlcSpec {
    /// What a slot carries, as a rate; counted on IP packets with their headers.
    pub rate: Rate,
    /// Length of a slot (LTE: 1 ms; NR: 1 ms, 0.5, 0.25, 0.125 ms). Default 1 ms.
    #[serde(default = "default_slot")]
    pub slot: Span,
    /// Share of transmissions of a block that fail, retransmissions like first ones.
    pub failure: Share,
    /// When a failed block is sent again. Default `slot`.
    #[serde(default)]
    pub retransmit: Retransmit,
    /// How often HARQ sends a block before it gives up. Default 4.
    #[serde(default = "default_transmissions")]
    pub transmissions: u32,
    /// From HARQ's last failure of a block until RLC sends it again: the receiver's reassembly
    /// timer and its status report. Default 40 ms.
    #[serde(default = "default_status_delay")]
    pub status_delay: Span,
    /// Most bytes that the RLC buffer holds; a packet counts until it is delivered, and one that
    /// would not fit whole is dropped on arrival. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<ByteSize>,
}

/// When a block that was not received is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Retransmit {
    /// In the slot that begins when the failed one ends.
    #[default]
    Slot,
    /// In the same slot of the next frame: 10 ms after it was sent, as on a loaded cell that
    /// grants a UE its slot once a frame.
    Frame,
}

fn default_slot() -> Span {
    Span::from_millis(1)
}

fn default_transmissions() -> u32 {
    4
}

fn default_status_delay() -> Span {
    Span::from_millis(40)
}

impl RlcSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        slots::check(self.slot, self.rate)?;
        if self.failure == Share::ONE {
            return Err("if 100 % of transmissions fail nothing ever arrives: \
                        give a share below that"
                .to_owned());
        }
        if self.transmissions == 0 {
            return Err("HARQ must send a block at least once: \
                        give 1 or more transmissions"
                .to_owned());
        }
        if self.buffer == Some(ByteSize::from_bytes(0)) {
            return Err("an RLC buffer that holds nothing passes nothing: \
                        give a size above zero, or none at all"
                .to_owned());
        }
        Ok(())
    }
}

pub(crate) struct Rlc<P> {
    spec: RlcSpec,
    random: Random,
    queue: Acknowledged<P>,
    /// When the deliverable packets leave.
    delivered_at: Time,
    slots: Slots,
    /// The block in the slot that is going on.
    on_air: Option<Block>,
    /// Blocks to send again, by the time from which they may be.
    again: BinaryHeap<Reverse<(Time, Block)>>,
    /// When a slot next begins or ends for which there is something to do.
    boundary: Time,
    overflowed: u64,
}

/// A block that was not yet received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    number: u64,
    bytes: u64,
    /// How often HARQ has sent it since RLC last did.
    transmissions: u32,
}

impl<P: Packet> Rlc<P> {
    pub(crate) fn new(spec: RlcSpec, random: Random) -> Self {
        Rlc {
            spec,
            random,
            queue: Acknowledged::new(0),
            delivered_at: Time::MAX,
            slots: Slots::new(spec.slot, spec.rate),
            on_air: None,
            again: BinaryHeap::new(),
            boundary: Time::MAX,
            overflowed: 0,
        }
    }

    /// Transmissions fail so often from now on, the one under way included.
    pub(crate) fn set_failure(&mut self, failure: Share) {
        self.spec.failure = failure;
    }

    /// Whether the buffer has room for a packet.
    pub(crate) fn has_room(&self, bytes: u32) -> bool {
        let bytes = self.queue.held().1 + u64::from(bytes);
        self.spec.buffer.is_none_or(|buffer| bytes <= buffer.as_bytes())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.held().0 == 0
    }

    /// Gives up all that was not received: the packets, in their order.
    pub(crate) fn give_up(&mut self) -> impl Iterator<Item = P> {
        self.on_air = None;
        self.again.clear();
        self.boundary = Time::MAX;
        self.queue.give_up()
    }

    /// The slot that ends at `now` had a block in it, which is received or not.
    fn end_slot(&mut self, now: Time) {
        let Some(mut block) = self.on_air.take() else { return };
        if !self.spec.failure.takes(self.random.draw()) {
            self.queue.received(block.number, block.bytes);
            self.delivered_at = now;
            return;
        }
        let given_up = block.transmissions == self.spec.transmissions;
        if given_up {
            block.transmissions = 0;
        }
        let wait = match self.spec.retransmit {
            _ if given_up => self.spec.status_delay,
            Retransmit::Slot => Span::ZERO,
            Retransmit::Frame => FRAME.saturating_sub(self.spec.slot),
        };
        self.again.push(Reverse((now + wait, block)));
    }

    /// A slot begins at `now`: sends a block again or, failing that, a new one.
    fn begin_slot(&mut self, now: Time) {
        self.on_air = self.failed_block(now).or_else(|| self.new_block());
        self.boundary = match &mut self.on_air {
            Some(block) => {
                block.transmissions += 1;
                now + self.spec.slot
            }
            None => self.again.peek().map_or(Time::MAX, |Reverse((at, _))| self.slots.from(*at)),
        };
    }

    /// The block that has waited longest to be sent again, if it may be by `now`.
    fn failed_block(&mut self, now: Time) -> Option<Block> {
        self.again.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.again.pop().map(|Reverse((_, block))| block)
    }

    /// Fills a block with what waits, if something does.
    fn new_block(&mut self) -> Option<Block> {
        if self.queue.waiting() == 0 {
            return None;
        }
        let (number, bytes) = self.queue.fill(self.slots.block_bytes())?;
        Some(Block { number, bytes, transmissions: 0 })
    }
}

impl<P: Packet> Element<P> for Rlc<P> {
    fn enter(&mut self, now: Time, packet: P) -> Option<P> {
        if !self.has_room(packet.wire_bytes()) {
            self.overflowed += 1;
            return None;
        }
        self.queue.push(packet);
        if self.on_air.is_none() {
            self.boundary = self.boundary.min(self.slots.after(now));
        }
        None
    }

    fn due(&self) -> Time {
        if self.queue.deliverable() > 0 { self.delivered_at } else { self.boundary }
    }

    fn run(&mut self, now: Time) -> Option<P> {
        if self.queue.deliverable() == 0 {
            self.end_slot(now);
            self.begin_slot(now);
            return None;
        }
        self.queue.pop()
    }

    fn report(&self, counters: &mut Counters) {
        let (packets, bytes) = self.queue.held();
        counters.packets_queued += packets as u64;
        counters.bytes_queued += bytes;
        counters.add_dropped("rlc-buffer", self.overflowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestPacket, cross, refusal, specs};
    use crate::{Direction, Traces};

    /// A bearer of 1500 bytes a slot of 1 ms whose first transmissions fail where `failures` says.
    fn link(failures: &[bool], settings: &str) -> Direction<TestPacket> {
        let half = Share::from_fraction(0.5);
        let fails_so = |seed: &u64| {
            let mut random = Random::new(*seed, 0);
            failures.iter().all(|failure| half.takes(random.draw()) == *failure)
        };
        let seed = (0..).find(fails_so).unwrap();
        let failure = if failures.is_empty() { "0 %" } else { "50 %" };
        let text = format!("{{ rlc = {{ rate = '12 Mbit/s', failure = '{failure}'{settings} }} }}");
        Direction::new(&specs(&text), &Traces::new(), seed).unwrap()
    }

    #[test]
    fn packets_leave_at_the_end_of_the_slot_that_took_the_rest_of_them() {
        let mut link = link(&[], "");
        // The slot at 1 ms takes 0 to 2 and 300 bytes of 3; that at 2 ms the rest, and 4.
        let out = cross(&mut link, &[(0, 400), (1, 400), (999, 400), (999, 1200), (1_000, 600)]);
        assert_eq!(out, [(2_000, 0), (2_000, 1), (2_000, 2), (3_000, 3), (3_000, 4)]);
    }

    #[test]
    fn what_comes_as_a_slot_begins_waits_for_the_next() {
        assert_eq!(
            cross(&mut link(&[], ""), &[(5_000, 40), (7_001, 40)]),
            [(7_000, 0), (9_000, 1)]
        );
    }

    #[test]
    fn a_failed_block_takes_the_next_slot_and_holds_up_the_others() {
        let mut link = link(&[true, false, false, false], "");
        let out = cross(&mut link, &[(0, 1500); 3]);
        assert_eq!(out, [(3_000, 0), (4_000, 1), (5_000, 2)]);
    }

    #[test]
    fn a_block_that_waits_for_the_next_frame_is_followed_by_a_burst() {
        let mut link = link(&[true, false, false, false], ", retransmit = 'frame'");
        let out = cross(&mut link, &[(0, 1500); 3]);
        // Sent at 1 ms and again at 11 ms; the others were sent at 2 and 3 ms.
        assert_eq!(out, [(12_000, 0), (12_000, 1), (12_000, 2)]);
    }

    #[test]
    fn a_retransmission_goes_before_new_data() {
        let mut link = link(&[true, false, false, false], ", retransmit = 'frame'");
        // The first is sent at 1 and 11 ms and the second at 10: the third must wait for 12.
        let out = cross(&mut link, &[(0, 1500), (9_500, 1500), (10_500, 1500)]);
        assert_eq!(out, [(12_000, 0), (12_000, 1), (13_000, 2)]);
    }

    #[test]
    fn what_harq_gives_up_rlc_sends_again() {
        let settings = ", transmissions = 2, status_delay = '5.5 ms'";
        let mut link = link(&[true, true, false], settings);
        // Sent at 1 and 2 ms; found missing 5.5 ms after 3 ms, so sent at 9 ms.
        assert_eq!(cross(&mut link, &[(0, 1500)]), [(10_000, 0)]);
    }

    #[test]
    fn a_rate_that_fills_no_whole_bytes_is_kept_nonetheless() {
        let text = "{ rlc = { rate = '100 kbit/s', slot = '0.125 ms', failure = '0 %' } }";
        let mut link = crate::testing::direction(text);
        // 1.5625 bytes a slot: 1000 bytes take 640 slots, 80 ms, and the slot before.
        assert_eq!(cross(&mut link, &[(0, 1000)]), [(80_125, 0)]);
    }

    #[test]
    fn the_buffer_counts_a_packet_until_it_is_delivered() {
        let mut link = link(&[], ", buffer = '3 KB'");
        let out = cross(&mut link, &[(0, 1500), (0, 1500), (1_999, 40), (2_000, 1500)]);
        assert_eq!(out, [(2_000, 0), (3_000, 1), (4_000, 3)]);
        assert_eq!(link.counters().dropped["rlc-buffer"], 1);
    }

    #[test]
    fn retransmissions_take_their_share_of_the_rate() {
        for when in ["slot", "frame"] {
            let text = format!("rate = '12 Mbit/s', failure = '20 %', retransmit = '{when}'");
            let mut link = crate::testing::direction(&format!("{{ rlc = {{ {text} }} }}"));
            let out = cross(&mut link, &[(0, 1500); 8_000]);
            // Eight of ten slots bring something new: 8000 packets take 10 s.
            let seconds = out.last().unwrap().0 as f64 / 1e6;
            assert!((seconds - 10.0).abs() < 0.2, "{when}: {seconds} s");
        }
    }

    #[test]
    fn impossible_bearers_are_refused() {
        let refusal = |settings: &str| refusal(&format!("{{ rlc = {{ {settings} }} }}"));
        let error = refusal("rate = '1 Gbit/s', failure = '1 %', slot = '3 ms'");
        assert!(error.contains("not a whole number of slots of 3 ms"), "{error}");
        let error = refusal("rate = '1 kbit/s', failure = '1 %'");
        assert!(error.contains("carries less than a byte"), "{error}");
        let error = refusal("rate = '1 Gbit/s', failure = '100 %'");
        assert!(error.contains("nothing ever arrives"), "{error}");
        let error = refusal("rate = '1 Gbit/s', failure = '1 %', transmissions = 0");
        assert!(error.contains("at least once"), "{error}");
        let error = refusal("rate = '1 Gbit/s', failure = '1 %', buffer = '0 B'");
        assert!(error.contains("holds nothing"), "{error}");
    }
}
