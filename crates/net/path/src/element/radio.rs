use std::collections::VecDeque;
use std::sync::Arc;

use midspan_units::{ByteSize, Rate, Span, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use super::slots::{self, Slots};
use crate::radio::{Bearer, Channel, ChannelSpec, Modulation, Soft};
use crate::random::Random;
use crate::{Counters, Packet};

/// A radio bearer over a fading channel, with HARQ below it and nothing that repairs what HARQ gives
/// up (RLC unacknowledged mode, 3GPP TS 36.322; IEEE 802.16 without ARQ).
///
/// Slots begin at multiples of `slot`; each carries one block of `rate x slot` bytes, filled with
/// packets that came before it began. Whether the block is received when the slot ends is decided by
/// the channel at that moment and by `modulation`; what was received of it before helps. One that was
/// not is sent again in the next slot, up to `retransmissions` times, and then it is lost, and with it
/// every packet of which it had a part. There is one block at a time, so packets stay in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RadioSpec {
    /// What a slot carries, as a rate; counted on IP packets with their headers.
    pub rate: Rate,
    /// Length of a slot. Default 5 ms, the frame of mobile WiMAX.
    #[serde(default = "default_slot")]
    pub slot: Span,
    /// How blocks are sent, which decides what SNR they take.
    pub modulation: Modulation,
    /// What they are sent over.
    pub channel: ChannelSpec,
    /// How often HARQ sends a block again before it gives up: lambda of the TCP-ME paper. Default 4.
    #[serde(default = "default_retransmissions")]
    pub retransmissions: u32,
    /// Most bytes that wait for being received; a packet that would not fit whole is dropped on
    /// arrival. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<ByteSize>,
}

fn default_slot() -> Span {
    Span::from_millis(5)
}

fn default_retransmissions() -> u32 {
    4
}

impl RadioSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        slots::check(self.slot, self.rate)?;
        self.channel.check()?;
        if self.retransmissions == 0 {
            return Err(
                "HARQ sends a failed block again: give 1 or more retransmissions".to_owned()
            );
        }
        if self.buffer == Some(ByteSize::from_bytes(0)) {
            return Err("a buffer that holds nothing passes nothing: \
                        give a size above zero, or none at all"
                .to_owned());
        }
        Ok(())
    }
}

pub(crate) struct Radio<P> {
    spec: RadioSpec,
    slots: Slots,
    channel: Channel,
    random: Random,
    bearer: Arc<Bearer>,
    /// When the channel's time began: with the first packet.
    began: Option<Time>,
    /// Packets not yet received, oldest first.
    packets: VecDeque<P>,
    bytes: u64,
    /// How much of the packet behind those that the block completes is in blocks.
    cut: u64,
    /// That packet was begun in a block that was lost.
    spoilt: bool,
    block: Option<Block>,
    /// When a slot next begins or ends for which there is something to do.
    boundary: Time,
    /// Packets that were received and leave at `received_at`.
    received: VecDeque<P>,
    received_at: Time,
    /// Retransmissions since a block was last received at once.
    consecutive: u32,
    lost: u64,
    overflowed: u64,
}

/// The block that is on the air. No other is begun before it is received or lost.
struct Block {
    bytes: u64,
    /// Packets whose last byte is in it.
    completes: usize,
    /// The first of these, or the one that it continues, had a part in a lost block.
    begins_spoilt: bool,
    retransmissions: u32,
    soft: Soft,
}

impl<P: Packet> Radio<P> {
    pub(crate) fn new(spec: RadioSpec, mut random: Random) -> Self {
        Radio {
            spec,
            slots: Slots::new(spec.slot, spec.rate),
            channel: Channel::new(&spec.channel, &mut random),
            random,
            bearer: Arc::new(Bearer::new(spec.retransmissions)),
            began: None,
            packets: VecDeque::new(),
            bytes: 0,
            cut: 0,
            spoilt: false,
            block: None,
            boundary: Time::MAX,
            received: VecDeque::new(),
            received_at: Time::MAX,
            consecutive: 0,
            lost: 0,
            overflowed: 0,
        }
    }

    /// What a `wla` looks at.
    pub(crate) fn bearer(&self) -> &Arc<Bearer> {
        &self.bearer
    }

    /// The slot that ends at `now` had a block in it, which is received, lost, or sent again.
    fn end_slot(&mut self, now: Time) {
        let Some(mut block) = self.block.take() else { return };
        let after = now.since(self.began.unwrap_or(now));
        block.soft.add(&self.channel.snr(after));
        let draw = self.random.draw();
        if block.soft.is_received(self.spec.modulation, block.bytes, draw) {
            if block.retransmissions == 0 {
                self.count_consecutive(0);
            }
            self.deliver(now, &block);
        } else if block.retransmissions < self.spec.retransmissions {
            block.retransmissions += 1;
            self.count_consecutive(self.consecutive.saturating_add(1));
            self.block = Some(block);
        } else {
            self.lose(&block);
        }
    }

    fn count_consecutive(&mut self, consecutive: u32) {
        self.consecutive = consecutive;
        self.bearer.set_consecutive(consecutive);
    }

    fn deliver(&mut self, now: Time, block: &Block) {
        for index in 0..block.completes {
            let Some(packet) = self.take_first() else { return };
            if index == 0 && block.begins_spoilt {
                self.lost += 1;
            } else {
                self.received.push_back(packet);
                self.received_at = now;
            }
        }
    }

    fn lose(&mut self, block: &Block) {
        for _ in 0..block.completes {
            self.lost += u64::from(self.take_first().is_some());
        }
        // What is still to come of a packet is sent all the same, and in vain.
        self.spoilt = self.cut > 0;
    }

    fn take_first(&mut self) -> Option<P> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.wire_bytes());
        self.bearer.set_queued(self.bytes);
        Some(packet)
    }

    /// A slot begins: the block that failed, or a new one, if something waits.
    fn begin_slot(&mut self, now: Time) {
        if self.block.is_none() {
            self.block = self.new_block();
        }
        self.boundary = if self.block.is_some() { now + self.spec.slot } else { Time::MAX };
    }

    fn new_block(&mut self) -> Option<Block> {
        if self.packets.is_empty() {
            return None;
        }
        let most = self.slots.block_bytes();
        let mut room = most;
        let begins_spoilt = std::mem::take(&mut self.spoilt);
        let mut completes = 0;
        for packet in &self.packets {
            let rest = u64::from(packet.wire_bytes()) - self.cut;
            if rest > room {
                self.cut += room;
                room = 0;
                break;
            }
            room -= rest;
            self.cut = 0;
            completes += 1;
        }
        // A packet longer than the block goes on as it was.
        self.spoilt = begins_spoilt && completes == 0;
        Some(Block {
            bytes: most - room,
            completes,
            begins_spoilt,
            retransmissions: 0,
            soft: Soft::default(),
        })
    }
}

impl<P: Packet> Element<P> for Box<Radio<P>> {
    fn enter(&mut self, now: Time, packet: P) -> Option<P> {
        self.began.get_or_insert(now);
        let bytes = self.bytes + u64::from(packet.wire_bytes());
        if self.spec.buffer.is_some_and(|buffer| bytes > buffer.as_bytes()) {
            self.overflowed += 1;
            return None;
        }
        self.bytes = bytes;
        self.bearer.set_queued(bytes);
        self.packets.push_back(packet);
        if self.block.is_none() {
            self.boundary = self.boundary.min(self.slots.after(now));
        }
        None
    }

    fn due(&self) -> Time {
        if self.received.is_empty() { self.boundary } else { self.received_at }
    }

    fn run(&mut self, now: Time) -> Option<P> {
        if self.received.is_empty() {
            self.end_slot(now);
            self.begin_slot(now);
            return None;
        }
        self.received.pop_front()
    }

    fn report(&self, counters: &mut Counters) {
        let received: u64 = self.received.iter().map(|packet| u64::from(packet.wire_bytes())).sum();
        counters.packets_queued += (self.packets.len() + self.received.len()) as u64;
        counters.bytes_queued += self.bytes + received;
        counters.add_dropped("radio", self.lost);
        counters.add_dropped("radio-buffer", self.overflowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;
    use crate::testing::{TestPacket, cross, direction, refusal};

    /// A bearer of 1500 bytes a slot of 1 ms, whose channel gives `power` dBm against -100 of noise
    /// and 100.4 dB of loss, and stands still.
    fn still(power: i32, more: &str) -> Direction<TestPacket> {
        direction(&format!(
            "{{ radio = {{ rate = '12 Mbit/s', slot = '1 ms', modulation = 'qpsk 1/2'{more}, \
             channel = {{ frequency = '2.5 GHz', bandwidth = '5 MHz', distance = '1 km', \
             power = '{power} dBm', speed = '0 km/h' }} }} }}"
        ))
    }

    #[test]
    fn with_a_strong_signal_it_is_slots_alone() {
        let mut link = still(60, "");
        // The slot at 1 ms takes 0 to 2 and 300 bytes of 3; that at 2 ms the rest, and 4.
        let out = cross(&mut link, &[(0, 400), (1, 400), (999, 400), (999, 1200), (1_000, 600)]);
        assert_eq!(out, [(2_000, 0), (2_000, 1), (2_000, 2), (3_000, 3), (3_000, 4)]);
    }

    #[test]
    fn without_a_signal_everything_is_lost_after_its_retransmissions() {
        let mut link = still(-60, ", retransmissions = 2");
        assert_eq!(cross(&mut link, &[(0, 1500), (0, 1500)]), []);
        assert_eq!(link.counters().dropped["radio"], 2);
        assert_eq!(link.counters().packets_queued, 0);
    }

    #[test]
    fn a_retransmission_takes_a_slot_and_combines() {
        // At 0 dB a block fails, with a gain below 1.29 surely; two of them add up to more.
        let out = (0..60)
            .map(|power| cross(&mut still(power - 30, ""), &[(0, 1500)]))
            .filter_map(|out| out.first().map(|(at, _)| *at))
            .collect::<Vec<_>>();
        // The stronger the signal the earlier: after 5 transmissions at most, and at once at last.
        assert!(out.is_sorted_by(|a, b| a >= b), "{out:?}");
        assert!(out.first().unwrap() > &3_000 && out.first().unwrap() <= &6_000, "{out:?}");
        assert_eq!(out.last().unwrap(), &2_000);
    }

    /// Packets of which a lost block had a part are lost, whole.
    #[test]
    fn a_lost_block_takes_along_what_it_had_a_part_of() {
        let spec = RadioSpec {
            retransmissions: 1,
            ..toml::from_str(
                "rate = '12 Mbit/s'\nslot = '1 ms'\nmodulation = 'qpsk 1/2'\n\
                 channel = { frequency = '2.5 GHz', bandwidth = '5 MHz', distance = '1 km', \
                 power = '60 dBm', speed = '0 km/h' }",
            )
            .unwrap()
        };
        let mut radio = Box::new(Radio::new(spec, Random::new(1, 0)));
        let millis = |millis| Time::ZERO + Span::from_millis(millis);
        for (number, bytes) in [(0, 1000), (1, 2500), (2, 700)] {
            radio.enter(Time::ZERO, TestPacket::new(number, bytes));
        }
        // Blocks: 0 and 500 of 1; 1500 of 1; 500 of 1 and all of 2.
        radio.run(millis(1));
        let first = radio.block.take().unwrap();
        assert_eq!((first.bytes, first.completes, radio.cut), (1500, 1, 500));
        radio.lose(&first);
        radio.begin_slot(millis(2));
        let second = radio.block.take().unwrap();
        assert_eq!((second.bytes, second.completes, second.begins_spoilt), (1500, 0, true));
        radio.deliver(millis(3), &second);
        radio.begin_slot(millis(3));
        let third = radio.block.take().unwrap();
        assert_eq!((third.bytes, third.completes, third.begins_spoilt), (1200, 2, true));
        radio.deliver(millis(4), &third);
        let left: Vec<u64> = radio.received.iter().map(|packet| packet.number).collect();
        assert_eq!((left, radio.lost, radio.bytes), (vec![2], 2, 0));
        assert!(!radio.spoilt);
    }

    #[test]
    fn retransmissions_are_consecutive_until_one_block_is_received_at_once() {
        let mut link = still(60, "");
        let bearer = link.bearer().unwrap().clone();
        bearer.set_consecutive(4);
        assert!(bearer.alarms(u64::MAX));
        cross(&mut link, &[(0, 100)]);
        assert!(!bearer.alarms(1));
        let mut link = still(-60, ", retransmissions = 3");
        let bearer = link.bearer().unwrap().clone();
        cross(&mut link, &[(0, 100)]);
        assert!(bearer.alarms(u64::MAX));
    }

    #[test]
    fn impossible_bearers_are_refused() {
        let radio = |more: &str| {
            refusal(&format!(
                "{{ radio = {{ rate = '1 Mbit/s', modulation = 'qpsk 1/2'{more}, channel = {{ \
                 frequency = '2.5 GHz', bandwidth = '5 MHz', distance = '1 km', power = '43 dBm' \
                 }} }} }}"
            ))
        };
        assert!(radio(", slot = '3 ms'").contains("whole number of slots"));
        assert!(radio(", retransmissions = 0").contains("1 or more"));
        assert!(radio(", buffer = '0 B'").contains("above zero"));
    }
}
