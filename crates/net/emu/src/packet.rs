//! A packet as it is on the wire, in a buffer that is used again.

use std::cell::RefCell;
use std::net::IpAddr;

use midspan_path::{Ecn, Packet};

use crate::vnet::Partial;
use midspan_sys::checksum;

/// Room before the IP header for what a port writes there: virtio-net and Ethernet headers.
pub(crate) const HEADROOM: usize = 24;

/// Bytes that the packets of one emulator thread may hold together. A path with queues that have
/// limits stays far below; this one keeps a path without from taking the machine's memory.
const MEMORY_LIMIT: usize = 1 << 30;

/// Room for an ordinary packet, so that a buffer that held an acknowledgement can hold data next.
const LEAST_CAPACITY: usize = 2048;

/// One wire packet: an IPv4 or IPv6 packet no larger than the link's MTU.
///
/// Its transport checksum may be partial (the pseudo-header's sum only), as offloading network
/// cards have it; whoever writes it out says so to the kernel.
#[derive(Debug)]
pub struct WirePacket {
    /// [`HEADROOM`], then the packet.
    buffer: Vec<u8>,
    pub(crate) partial: Option<Partial>,
    /// Its place in the TCP super-packet that it was cut from, if it was.
    pub(crate) segment: Option<Segment>,
    burst: u64,
}

/// What the segments of one TCP super-packet have in common. Offsets count from the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where the TCP header begins.
    pub(crate) transport_at: u16,
    /// Where the payload begins.
    pub(crate) payload_at: u16,
    /// Payload bytes of each segment but the last.
    pub(crate) size: u16,
}

impl WirePacket {
    /// A packet that consists of `head` followed by `body`, which must begin with at least an
    /// IPv4 header or an IPv6 header. `None` when packets hold too much memory already.
    pub(crate) fn new(
        head: &[u8],
        body: &[u8],
        partial: Option<Partial>,
        burst: u64,
    ) -> Option<WirePacket> {
        let bytes = HEADROOM + head.len() + body.len();
        let mut buffer = POOL.with_borrow_mut(|pool| pool.take(bytes))?;
        buffer.extend_from_slice(&[0; HEADROOM]);
        buffer.extend_from_slice(head);
        buffer.extend_from_slice(body);
        Some(WirePacket { buffer, partial, segment: None, burst })
    }

    /// The packet, from its IP header on.
    pub(crate) fn ip(&self) -> &[u8] {
        &self.buffer[HEADROOM..]
    }

    /// The packet, from its IP header on.
    pub(crate) fn ip_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[HEADROOM..]
    }

    /// The packet with `framing` (at most [`HEADROOM`] bytes) before it, in one piece.
    pub(crate) fn framed(&mut self, framing: &[u8]) -> &[u8] {
        let start = HEADROOM - framing.len();
        self.buffer[start..HEADROOM].copy_from_slice(framing);
        &self.buffer[start..]
    }

    /// The 32-bit word at `at`.
    pub(crate) fn word(&self, at: u16) -> u32 {
        let at = usize::from(at);
        let bytes = &self.ip()[at..at + 4];
        u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// Whom it is from.
    pub(crate) fn source(&self) -> IpAddr {
        self.address(12, 8)
    }

    /// Whom it is to.
    pub(crate) fn destination(&self) -> IpAddr {
        self.address(16, 24)
    }

    /// An address that stands there in an IPv4 header, or there in an IPv6 one.
    fn address(&self, v4: u16, v6: u16) -> IpAddr {
        if self.is_ipv6() {
            let words: [u32; 4] = std::array::from_fn(|at| self.word(v6 + 4 * at as u16));
            let bits = words.into_iter().fold(0, |bits, word| bits << 32 | u128::from(word));
            return IpAddr::V6(bits.into());
        }
        IpAddr::V4(self.word(v4).into())
    }

    pub(crate) fn is_ipv6(&self) -> bool {
        self.ip()[0] >> 4 == 6
    }
}

impl Packet for WirePacket {
    fn wire_bytes(&self) -> u32 {
        self.ip().len() as u32
    }

    fn burst(&self) -> u64 {
        self.burst
    }

    fn ecn(&self) -> Ecn {
        let ip = self.ip();
        match if self.is_ipv6() { ip[1] >> 4 } else { ip[1] } & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    fn mark_ce(&mut self) {
        let ipv6 = self.is_ipv6();
        let ip = self.ip_mut();
        if ipv6 {
            ip[1] |= 0x30;
            return;
        }
        let old = u16::from_be_bytes([ip[0], ip[1]]);
        ip[1] |= 3;
        let new = u16::from_be_bytes([ip[0], ip[1]]);
        let sum = !u16::from_be_bytes([ip[10], ip[11]]);
        ip[10..12].copy_from_slice(&(!checksum::replace(sum, old, new)).to_be_bytes());
    }

    fn is_pure_ack(&self) -> bool {
        is_pure_ack(self.ip()).unwrap_or(false)
    }
}

/// IPv6 extension headers do not occur on acknowledgements.
fn is_pure_ack(ip: &[u8]) -> Option<bool> {
    const TCP: u8 = 6;
    /// FIN, SYN, RST and ACK.
    const LOOKED_AT: u8 = 0x17;
    const ACK: u8 = 0x10;
    let (protocol, header) = match ip.first()? >> 4 {
        4 => (*ip.get(9)?, usize::from(ip[0] & 0xf) * 4),
        _ => (*ip.get(6)?, 40),
    };
    let (offset, flags) = (ip.get(header + 12)?, ip.get(header + 13)?);
    let data_at = header + usize::from(offset >> 4) * 4;
    Some(protocol == TCP && flags & LOOKED_AT == ACK && data_at == ip.len())
}

impl Drop for WirePacket {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        // A thread that is ending has no pool any more; then the buffer is simply freed.
        let _ = POOL.try_with(|pool| pool.borrow_mut().put_back(buffer));
    }
}

thread_local! {
    /// Packets live and die on their emulator's thread, so their pool needs no lock.
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { free: Vec::new(), held: 0 }) };
}

/// Buffers used before, the most recent (and so the likeliest still in cache) last.
struct Pool {
    free: Vec<Vec<u8>>,
    /// Bytes in packets that are alive.
    held: usize,
}

impl Pool {
    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        if self.held >= MEMORY_LIMIT {
            return None;
        }
        let mut buffer = self.free.pop().unwrap_or_default();
        buffer.reserve(bytes.max(LEAST_CAPACITY));
        self.held += buffer.capacity();
        Some(buffer)
    }

    fn put_back(&mut self, mut buffer: Vec<u8>) {
        self.held = self.held.saturating_sub(buffer.capacity());
        buffer.clear();
        self.free.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 or IPv6 packet with a TCP header of 32 bytes.
    fn packet(v6: bool, protocol: u8, flags: u8, payload: usize) -> WirePacket {
        let mut bytes = if v6 { vec![0; 40] } else { vec![0; 20] };
        let header = bytes.len();
        if v6 {
            bytes[0] = 0x60;
            bytes[6] = protocol;
        } else {
            bytes[0] = 0x45;
            bytes[9] = protocol;
        }
        bytes.extend([0; 32]);
        bytes[header + 12] = 8 << 4;
        bytes[header + 13] = flags;
        bytes.extend(vec![0; payload]);
        WirePacket::new(&bytes, &[], None, 0).unwrap()
    }

    #[test]
    fn only_what_acknowledges_and_no_more_is_a_pure_acknowledgement() {
        for v6 in [false, true] {
            assert!(packet(v6, 6, 0x10, 0).is_pure_ack());
            // ECN-Echo, CWR and PSH change nothing.
            assert!(packet(v6, 6, 0xd8, 0).is_pure_ack());
            assert!(!packet(v6, 6, 0x10, 1).is_pure_ack());
            for flags in [0x12, 0x11, 0x14, 0x04, 0x00] {
                assert!(!packet(v6, 6, flags, 0).is_pure_ack(), "{flags:#x}");
            }
            assert!(!packet(v6, 17, 0x10, 0).is_pure_ack());
        }
        assert!(!WirePacket::new(&[0x45, 0, 0], &[], None, 0).unwrap().is_pure_ack());
    }

    #[test]
    fn a_packet_says_whom_it_is_from_and_to() {
        let mut four = packet(false, 6, 0x10, 0);
        four.ip_mut()[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(four.source(), IpAddr::from([10, 0, 0, 1]));
        assert_eq!(four.destination(), IpAddr::from([10, 0, 0, 2]));
        let mut six = packet(true, 6, 0x10, 0);
        let (from, to): ([u8; 16], [u8; 16]) =
            (std::array::from_fn(|at| at as u8), std::array::from_fn(|at| 255 - at as u8));
        six.ip_mut()[8..40].copy_from_slice(&[from, to].concat());
        assert_eq!((six.source(), six.destination()), (from.into(), to.into()));
    }

    #[test]
    fn a_mark_keeps_the_header_checksum_right() {
        let mut marked = packet(false, 6, 0x10, 0);
        let sum = !checksum::sum(&marked.ip()[..20]);
        marked.ip_mut()[10..12].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(checksum::sum(&marked.ip()[..20]), 0xffff);
        marked.mark_ce();
        assert_eq!(marked.ecn(), Ecn::Ce);
        assert_eq!(checksum::sum(&marked.ip()[..20]), 0xffff);
    }
}
