//! Packets that leave in one write.
//!
//! Wire packets that fell due while the thread slept are put out back to back. Those that follow on
//! each other in one TCP super-packet can be put out as one again, as a network card whose
//! interrupts are as far apart hands them to its host (generic receive offload): the host then
//! handles and acknowledges them together. What one write costs, the host's own work included, is
//! most of what an emulator costs, so this more than halves it (numbers in `docs/explanation/emu.md`).
//!
//! Elements have long decided about each packet. A packet that one of them marked does not travel
//! with one that was not.

use std::io::IoSlice;

use midspan_path::Packet;
use midspan_units::Time;

use crate::packet::WirePacket;
use crate::segment::{self, SEQUENCE};
use crate::vnet::{Gso, Transport, VnetHeader};

/// One packet, or several that are consecutive segments of a TCP super-packet. With each the time at
/// which it was to leave.
#[derive(Debug, Default)]
pub(crate) struct GroBatch {
    packets: Vec<(Time, WirePacket)>,
    bytes: usize,
}

impl GroBatch {
    /// Most packets in one.
    pub(crate) const LONGEST: usize = 32;

    /// Whether `packet` may join.
    pub(crate) fn admits(&self, packet: &WirePacket) -> bool {
        let Some((_, last)) = self.packets.last() else { return true };
        let (Some(ours), Some(theirs)) = (last.segment, packet.segment) else { return false };
        let full = last.ip().len() - usize::from(ours.payload_at) == usize::from(ours.size);
        let next = last.word(SEQUENCE + ours.transport_at).wrapping_add(u32::from(ours.size));
        full && packet.burst() == last.burst()
            && packet.word(SEQUENCE + theirs.transport_at) == next
            && packet.ecn() == last.ecn()
            && self.packets.len() < GroBatch::LONGEST
            && self.bytes + packet.ip().len() <= usize::from(u16::MAX)
    }

    pub(crate) fn push(&mut self, intended: Time, packet: WirePacket) {
        self.bytes += packet.ip().len();
        self.packets.push((intended, packet));
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.bytes = 0;
    }

    /// The packets in it; each whole until [`GroBatch::coalesce`].
    pub(crate) fn packets(&self) -> impl Iterator<Item = &WirePacket> {
        self.packets.iter().map(|(_, packet)| packet)
    }

    /// When each packet was to leave.
    pub(crate) fn intended(&self) -> impl Iterator<Item = Time> {
        self.packets.iter().map(|(intended, _)| *intended)
    }

    /// Makes the first packet's headers those of the whole, once all are in it.
    pub(crate) fn coalesce(&mut self) {
        let [(_, first), rest @ ..] = &mut self.packets[..] else { return };
        let (Some((_, last)), Some(segment)) = (rest.last(), first.segment) else { return };
        let payload_at = usize::from(segment.payload_at);
        let more: usize = rest.iter().map(|(_, packet)| packet.ip().len() - payload_at).sum();
        let flags = segment::last_flags(last.ip(), segment);
        segment::lengthen(first.ip_mut(), segment, more, flags);
    }

    /// The first packet's headers: those of the batch. There must be one.
    pub(crate) fn head(&self) -> &WirePacket {
        &self.packets[0].1
    }

    /// What the kernel has to know of it.
    pub(crate) fn header(&self) -> VnetHeader {
        let head = self.head();
        let gso = head
            .segment
            .filter(|_| self.len() > 1)
            .map(|segment| Gso { transport: Transport::Tcp, size: segment.size });
        VnetHeader { partial: head.partial, gso }
    }

    /// Bytes of headers before the payload, if it is a super-packet.
    pub(crate) fn headers(&self) -> u16 {
        self.head().segment.map_or(0, |segment| segment.payload_at)
    }

    /// Hands `framing` and the batch, in pieces, to `write`.
    pub(crate) fn write<T>(
        &mut self,
        framing: &[u8],
        write: impl FnOnce(&[IoSlice<'_>]) -> T,
    ) -> T {
        let mut pieces = [IoSlice::new(&[]); GroBatch::LONGEST];
        let count = self.len();
        let [(_, first), rest @ ..] = &mut self.packets[..] else { return write(&[]) };
        let payload_at = first.segment.map_or(0, |segment| usize::from(segment.payload_at));
        pieces[0] = IoSlice::new(first.framed(framing));
        for (piece, (_, packet)) in pieces[1..].iter_mut().zip(rest) {
            *piece = IoSlice::new(&packet.ip()[payload_at..]);
        }
        write(&pieces[..count])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::segment::split;
    use crate::vnet::Partial;

    const HEADERS: usize = 52;

    /// A TCP super-packet over IPv4 that ends with FIN and PSH, with its partial checksum.
    fn super_packet(payload: usize, size: u16) -> (Vec<u8>, VnetHeader) {
        let mut bytes = vec![0; HEADERS + payload];
        bytes[0] = 0x45;
        bytes[1] = 0x02; // ECT(0)
        let total = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes[9] = 6;
        let sum = midspan_sys::checksum::sum(&bytes[..20]);
        bytes[10..12].copy_from_slice(&(!sum).to_be_bytes());
        bytes[32] = 0x80;
        bytes[33] = 0x19; // ACK, PSH, FIN
        bytes[36..38].copy_from_slice(&(total - 20 + 6).to_be_bytes());
        bytes[HEADERS..].iter_mut().zip(0u8..=250).for_each(|(byte, i)| *byte = i);
        let partial = Some(Partial { start: 20, field: 16 });
        (bytes, VnetHeader { partial, gso: Some(Gso { transport: Transport::Tcp, size }) })
    }

    fn segments(payload: usize, size: u16, burst: u64) -> Vec<WirePacket> {
        let (bytes, header) = super_packet(payload, size);
        let mut segments = Vec::new();
        split(&bytes, header, burst, |segment| segments.push(segment)).unwrap();
        segments
    }

    /// What the batch puts out, without framing.
    fn bytes_of(batch: &mut GroBatch) -> Vec<u8> {
        batch.coalesce();
        batch.write(&[], |pieces| pieces.iter().flat_map(|piece| piece.to_vec()).collect())
    }

    proptest! {
        #[test]
        fn what_was_cut_and_coupled_is_what_it_was(payload in 1usize..40_000, size in 1300u16..9000) {
            let (whole, header) = super_packet(payload, size);
            let mut batch = GroBatch::default();
            for segment in segments(payload, size, 1) {
                prop_assert!(batch.admits(&segment));
                batch.push(Time::ZERO, segment);
            }
            prop_assert!(bytes_of(&mut batch) == whole);
            let single = payload <= usize::from(size);
            let expected = VnetHeader { gso: header.gso.filter(|_| !single), ..header };
            prop_assert_eq!(batch.header(), expected);
        }
    }

    #[test]
    fn only_the_next_segment_of_the_same_kind_may_join() {
        let mut batch = GroBatch::default();
        let first = || segments(10_000, 1448, 1).swap_remove(0);
        batch.push(Time::ZERO, first());
        assert!(batch.admits(&segments(10_000, 1448, 1)[1]));
        assert!(!batch.admits(&first()), "the same again");
        assert!(!batch.admits(&segments(10_000, 1448, 1)[2]), "one was dropped in between");
        assert!(!batch.admits(&segments(10_000, 1448, 2)[1]), "another super-packet");
        let mut marked = segments(10_000, 1448, 1).swap_remove(1);
        marked.mark_ce();
        assert!(!batch.admits(&marked), "marked");
        batch.clear();
        batch.push(Time::ZERO, segments(2000, 1448, 1).swap_remove(1));
        assert!(!batch.admits(&segments(2000, 1448, 1)[1]), "nothing follows the last");
    }

    #[test]
    fn a_train_has_an_end() {
        let mut batch = GroBatch::default();
        let mut departed = 0;
        for segment in segments(60_000, 1448, 1) {
            if !batch.admits(&segment) {
                departed += batch.len();
                batch.clear();
            }
            batch.push(Time::ZERO, segment);
        }
        assert_eq!((departed, departed + batch.len()), (GroBatch::LONGEST, 42));
    }
}
