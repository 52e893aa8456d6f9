//! The header that the kernel puts before each packet when `IFF_VNET_HDR` (TUN) or
//! `PACKET_VNET_HDR` (AF_PACKET) is on: `struct virtio_net_hdr` in the machine's byte order (virtio
//! specification 1.2, section 5.1.6).

/// Bytes of the header on the wire between kernel and us.
pub(crate) const LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Set beside the type when the first segment carries CWR.
const GSO_ECN: u8 = 0x80;

/// What the header says of the packet behind it. Offsets count from the start of that packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct VnetHeader {
    /// The checksum that still has to be completed. None: it is complete, or there is none.
    pub(crate) partial: Option<Partial>,
    /// How to cut the packet. None: it is a wire packet as it stands.
    pub(crate) gso: Option<Gso>,
}

/// A transport checksum whose field holds the pseudo-header's sum only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Partial {
    /// Where the bytes that the checksum covers begin: the transport header.
    pub(crate) start: u16,
    /// Where the checksum's field is, counted from `start`.
    pub(crate) field: u16,
}

/// A super-packet's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gso {
    /// The transport whose payload is to be cut.
    pub(crate) transport: Transport,
    /// Payload bytes of each segment but the last.
    pub(crate) size: u16,
}

/// Transports whose super-packets we ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl VnetHeader {
    /// Reads a header. `None` for a kind of super-packet that was never asked for.
    pub(crate) fn parse(bytes: &[u8; LEN]) -> Option<VnetHeader> {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let partial =
            (bytes[0] & NEEDS_CSUM != 0).then(|| Partial { start: word(6), field: word(8) });
        let transport = match bytes[1] & !GSO_ECN {
            0 => return Some(VnetHeader { partial, gso: None }),
            GSO_TCPV4 | GSO_TCPV6 => Transport::Tcp,
            GSO_UDP_L4 => Transport::Udp,
            _ => return None,
        };
        Some(VnetHeader { partial, gso: Some(Gso { transport, size: word(4) }) })
    }

    /// The header as the kernel reads it, for a packet of IP version 6 or 4 with `headers` bytes
    /// of headers if it is a super-packet. Only TCP super-packets are ever put out.
    pub(crate) fn encode(&self, v6: bool, headers: u16) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let mut put = |at: usize, word: u16| bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        if let Some(Partial { start, field }) = self.partial {
            put(6, start);
            put(8, field);
        }
        if let Some(gso) = self.gso {
            put(2, headers);
            put(4, gso.size);
            bytes[1] = if v6 { GSO_TCPV6 } else { GSO_TCPV4 };
        }
        bytes[0] = if self.partial.is_some() { NEEDS_CSUM } else { 0 };
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back() {
        let partial = Some(Partial { start: 20, field: 16 });
        let gso = Some(Gso { transport: Transport::Tcp, size: 1448 });
        for header in
            [VnetHeader::default(), VnetHeader { partial, gso: None }, VnetHeader { partial, gso }]
        {
            for v6 in [false, true] {
                assert_eq!(VnetHeader::parse(&header.encode(v6, 52)), Some(header));
            }
        }
    }

    #[test]
    fn only_known_kinds_are_cut() {
        let header = |kind| {
            let mut bytes = [0, kind, 0, 0, 0, 0, 0, 0, 0, 0];
            bytes[4..6].copy_from_slice(&1448u16.to_ne_bytes());
            VnetHeader::parse(&bytes).map(|header| header.gso)
        };
        let tcp = Gso { transport: Transport::Tcp, size: 1448 };
        assert_eq!(header(GSO_TCPV4), Some(Some(tcp)));
        assert_eq!(header(GSO_TCPV6 | GSO_ECN), Some(Some(tcp)));
        assert_eq!(header(3), None, "UDP fragmentation offload is not asked for");
    }
}
