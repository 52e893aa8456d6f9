use std::collections::VecDeque;

use crate::Packet;

/// A radio bearer's queue in RLC acknowledged mode (3GPP TS 36.322, TS 38.322): packets are cut and
/// joined to fill blocks, blocks are received in any order, and packets are delivered in theirs, each
/// when all of it and all before it have been received.
///
/// Which block is sent when, and how often, is the user's choice.
#[derive(Debug)]
pub(crate) struct Acknowledged<P> {
    /// Put before each packet.
    header: u64,
    /// Packets not yet delivered, oldest first.
    packets: VecDeque<P>,
    bytes: u64,
    /// How many of these, from the front, were received in order.
    deliverable: usize,
    /// How many of these, from the front, are wholly in blocks (the deliverable ones included).
    cut: usize,
    /// How much of the next one is in a block, header included.
    cut_bytes: u64,
    /// What is in no block yet, headers included.
    waiting: u64,
    /// Blocks from the oldest that was not received on; that one's number is `first_block`.
    blocks: VecDeque<Block>,
    first_block: u64,
}

#[derive(Debug)]
struct Block {
    /// Packets whose last byte is in it.
    completes: usize,
    /// Bytes of it that were not received.
    missing: u64,
}

impl<P: Packet> Acknowledged<P> {
    /// Empty; so many bytes are put before each packet.
    pub(crate) fn new(header: u64) -> Self {
        Acknowledged {
            header,
            packets: VecDeque::new(),
            bytes: 0,
            deliverable: 0,
            cut: 0,
            cut_bytes: 0,
            waiting: 0,
            blocks: VecDeque::new(),
            first_block: 0,
        }
    }

    /// Packets that were not yet taken out, and their bytes.
    pub(crate) fn held(&self) -> (usize, u64) {
        (self.packets.len(), self.bytes)
    }

    /// Bytes that are in no block yet, headers included.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    pub(crate) fn push(&mut self, packet: P) {
        let bytes = u64::from(packet.wire_bytes());
        self.bytes += bytes;
        self.waiting += bytes + self.header;
        self.packets.push_back(packet);
    }

    /// Fills a block of at most so many bytes with what waits, if something does: its number and its
    /// bytes.
    pub(crate) fn fill(&mut self, room: u64) -> Option<(u64, u64)> {
        if self.waiting == 0 || room == 0 {
            return None;
        }
        let mut left = room;
        let first = self.cut;
        while let Some(packet) = self.packets.get(self.cut) {
            let rest = u64::from(packet.wire_bytes()) + self.header - self.cut_bytes;
            if rest > left {
                self.cut_bytes += left;
                left = 0;
                break;
            }
            left -= rest;
            self.cut += 1;
            self.cut_bytes = 0;
        }
        let bytes = room - left;
        self.waiting -= bytes;
        self.blocks.push_back(Block { completes: self.cut - first, missing: bytes });
        Some((self.first_block + self.blocks.len() as u64 - 1, bytes))
    }

    /// So many bytes of a block have been received that were not before.
    pub(crate) fn received(&mut self, number: u64, bytes: u64) {
        let Some(index) = number.checked_sub(self.first_block) else { return };
        let Some(block) = self.blocks.get_mut(index as usize) else { return };
        block.missing = block.missing.saturating_sub(bytes);
        while let Some(block) = self.blocks.front().filter(|block| block.missing == 0) {
            self.deliverable += block.completes;
            self.first_block += 1;
            self.blocks.pop_front();
        }
    }

    /// Packets that [`Acknowledged::pop`] has.
    pub(crate) fn deliverable(&self) -> usize {
        self.deliverable
    }

    /// The next packet that has been received, all before it too.
    pub(crate) fn pop(&mut self) -> Option<P> {
        self.deliverable = self.deliverable.checked_sub(1)?;
        self.cut -= 1;
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.wire_bytes());
        Some(packet)
    }

    /// Gives up all blocks, and the packets that were not received, in their order.
    pub(crate) fn give_up(&mut self) -> impl Iterator<Item = P> {
        self.restart();
        let rest = self.packets.split_off(self.deliverable);
        self.bytes -= rest.iter().map(|packet| u64::from(packet.wire_bytes())).sum::<u64>();
        self.waiting = 0;
        rest.into_iter()
    }

    /// Gives up all blocks: what was not delivered is to be sent anew, whole (re-establishment at
    /// handover: TS 36.322, section 5.4, and TS 36.323, section 5.2).
    pub(crate) fn restart(&mut self) {
        self.first_block += self.blocks.len() as u64;
        self.blocks.clear();
        self.cut = self.deliverable;
        self.cut_bytes = 0;
        let rest = self.packets.iter().skip(self.cut);
        self.waiting = rest.map(|packet| u64::from(packet.wire_bytes()) + self.header).sum();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::TestPacket;

    fn popped(queue: &mut Acknowledged<TestPacket>) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop()).map(|packet| packet.number).collect()
    }

    /// Blocks of 1000 bytes; 2 bytes before each packet.
    #[test]
    fn packets_are_cut_and_joined_and_come_in_order() {
        let mut queue = Acknowledged::new(2);
        [300, 1200, 40].into_iter().enumerate().for_each(|(number, bytes)| {
            queue.push(TestPacket::new(number as u64, bytes));
        });
        assert_eq!(queue.waiting(), 1546);
        assert_eq!(queue.fill(1000), Some((0, 1000)));
        assert_eq!(queue.fill(1000), Some((1, 546)));
        assert_eq!(queue.fill(1000), None);
        queue.received(1, 546);
        assert_eq!(popped(&mut queue), []);
        queue.received(0, 400);
        assert_eq!(popped(&mut queue), []);
        queue.received(0, 600);
        assert_eq!(popped(&mut queue), [0, 1, 2]);
        assert_eq!((queue.held(), queue.waiting()), ((0, 0), 0));
    }

    #[test]
    fn what_was_not_delivered_is_sent_anew_after_a_restart() {
        let mut queue = Acknowledged::new(0);
        (0..3).for_each(|number| queue.push(TestPacket::new(number, 100)));
        let first = queue.fill(150).unwrap();
        queue.fill(100);
        queue.received(first.0, first.1);
        queue.restart();
        assert_eq!(queue.waiting(), 200);
        // News of blocks from before count for nothing.
        queue.received(1, 100);
        assert_eq!(popped(&mut queue), [0]);
        let (number, bytes) = queue.fill(1000).unwrap();
        assert_eq!(bytes, 200);
        queue.received(number, bytes);
        assert_eq!(popped(&mut queue), [1, 2]);
    }

    proptest! {
        /// Whatever is lost, late or restarted, every packet comes once and in order.
        #[test]
        fn every_packet_comes_once_and_in_order(
            steps in prop::collection::vec((1u32..3000, 1u64..4000, 0u8..8), 1..60),
        ) {
            let mut queue = Acknowledged::new(2);
            let (mut sent, mut out, mut lost) = (0, Vec::new(), Vec::new());
            for (bytes, room, fate) in steps {
                queue.push(TestPacket::new(sent, bytes));
                sent += 1;
                if let Some(block) = queue.fill(room) {
                    match fate {
                        0 => { queue.restart(); lost.clear(); }
                        1 | 2 => lost.push(block),
                        _ => queue.received(block.0, block.1),
                    }
                }
                out.extend(popped(&mut queue));
            }
            lost.into_iter().for_each(|(number, bytes)| queue.received(number, bytes));
            while let Some((number, bytes)) = queue.fill(1500) {
                queue.received(number, bytes);
            }
            out.extend(popped(&mut queue));
            prop_assert_eq!(out, (0..sent).collect::<Vec<_>>());
            prop_assert_eq!(queue.held(), (0, 0));
        }
    }
}
