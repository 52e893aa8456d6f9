//! What of a captured packet matters.

use core::net::{IpAddr, SocketAddr};

use etherparse::{LaxNetSlice, LaxSlicedPacket, TcpOptionElement, TransportSlice};

/// What packets of a capture begin with (the `LINKTYPE_` values of draft-ietf-opsawg-pcaplinktype).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// Ethernet, with or without VLAN tags.
    Ethernet,
    /// IPv4 or IPv6 at once.
    Raw,
    /// So many bytes, then IPv4 or IPv6: BSD's loopback (4), Linux' cooked captures (16 and 20).
    Cooked(usize),
}

impl LinkType {
    /// By number; none for a type that is not read.
    pub fn of(number: i32) -> Option<LinkType> {
        match number {
            1 => Some(LinkType::Ethernet),
            12 | 101 | 228 | 229 => Some(LinkType::Raw),
            0 | 108 => Some(LinkType::Cooked(4)),
            113 => Some(LinkType::Cooked(16)),
            276 => Some(LinkType::Cooked(20)),
            _ => None,
        }
    }
}

/// Who sent a packet, and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
}

impl Ends {
    pub(super) fn turned(self) -> Ends {
        Ends { from: self.to, to: self.from }
    }
}

/// A TCP segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    pub(super) ends: Ends,
    pub(super) is_syn: bool,
    pub(super) is_ack: bool,
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    /// Bytes of data, by the IP header: a capture may have cut them off.
    pub(super) payload: u32,
    /// Bytes before it, from the IP header on.
    pub(super) headers: u32,
    /// TSval (RFC 7323).
    pub(super) stamp: Option<u32>,
    /// The first SACK block (RFC 2018).
    pub(super) sack: Option<(u32, u32)>,
    /// The second one, within which a first one is a D-SACK as well (RFC 2883).
    pub(super) second_sack: Option<(u32, u32)>,
}

/// Reads a packet; none if it is not TCP, or cut before its header ends.
pub(super) fn read(link: LinkType, bytes: &[u8]) -> Option<Packet> {
    let sliced = match link {
        LinkType::Ethernet => LaxSlicedPacket::from_ethernet(bytes).ok()?,
        LinkType::Raw => LaxSlicedPacket::from_ip(bytes).ok()?,
        LinkType::Cooked(header) => LaxSlicedPacket::from_ip(bytes.get(header..)?).ok()?,
    };
    let (from, to, length) = match sliced.net? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            let (from, to) = (header.source_addr(), header.destination_addr());
            let total = u32::from(header.total_len());
            let before = u32::from(header.ihl()) * 4;
            (IpAddr::V4(from), IpAddr::V4(to), (total.checked_sub(before)?, before))
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let extensions = u32::try_from(ip.extensions().slice().len()).ok()?;
            let (from, to) = (header.source_addr(), header.destination_addr());
            let behind = u32::from(header.payload_length()).checked_sub(extensions)?;
            (IpAddr::V6(from), IpAddr::V6(to), (behind, 40 + extensions))
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let TransportSlice::Tcp(tcp) = sliced.transport? else { return None };
    let (behind_ip, before) = length;
    let header = u32::from(tcp.data_offset()) * 4;
    let mut packet = Packet {
        ends: Ends {
            from: SocketAddr::new(from, tcp.source_port()),
            to: SocketAddr::new(to, tcp.destination_port()),
        },
        is_syn: tcp.syn(),
        is_ack: tcp.ack(),
        sequence: tcp.sequence_number(),
        acknowledged: tcp.acknowledgment_number(),
        payload: behind_ip.checked_sub(header)?,
        headers: before + header,
        stamp: None,
        sack: None,
        second_sack: None,
    };
    for option in tcp.options_iterator() {
        match option {
            Ok(TcpOptionElement::Timestamp(stamp, _)) => packet.stamp = Some(stamp),
            Ok(TcpOptionElement::SelectiveAcknowledgement(first, others)) => {
                packet.sack = Some(first);
                packet.second_sack = others[0];
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Some(packet)
}

#[cfg(test)]
pub(crate) mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    /// A segment of `sizes` bytes of data from one port to another, from its IP header on.
    pub(crate) fn segment(
        (from, to): (u16, u16),
        set: impl FnOnce(&mut etherparse::TcpHeader),
        payload: usize,
    ) -> Vec<u8> {
        let mut header = etherparse::TcpHeader::new(from, to, 0, 65_000);
        set(&mut header);
        let address = |port: u16| [192, 0, 2, port as u8];
        let builder = PacketBuilder::ipv4(address(from), address(to), 64).tcp_header(header);
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &vec![0; payload]).unwrap();
        bytes
    }

    #[test]
    fn a_segment_is_read_from_its_headers_alone() {
        let bytes = segment(
            (1, 2),
            |header| {
                header.sequence_number = 7;
                header.ack = true;
                header.acknowledgment_number = 9;
                header.set_options(&[TcpOptionElement::Timestamp(5, 6)]).unwrap();
            },
            100,
        );
        let packet = read(LinkType::Raw, &bytes).unwrap();
        assert_eq!((packet.sequence, packet.acknowledged, packet.payload), (7, 9, 100));
        assert_eq!((packet.stamp, packet.headers), (Some(5), 52));
        let cut = read(LinkType::Raw, &bytes[..52]).unwrap();
        assert_eq!((cut.payload, cut.stamp), (100, Some(5)));
        let cooked = [vec![0; 16], bytes.clone()].concat();
        assert_eq!(read(LinkType::of(113).unwrap(), &cooked).unwrap().sequence, 7);
        assert!(read(LinkType::Raw, &bytes[..30]).is_none());
        assert_eq!(LinkType::of(127), None);
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for link in [LinkType::Ethernet, LinkType::Raw, LinkType::Cooked(4)] {
                let _ = read(link, &bytes);
            }
        }
    }
}
