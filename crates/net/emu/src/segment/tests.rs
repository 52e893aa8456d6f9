use midspan_path::{Ecn, Packet};
use proptest::prelude::*;

use super::*;
use crate::vnet;

/// A super-packet to be built.
#[derive(Debug, Clone)]
struct Super {
    v6: bool,
    transport: Transport,
    /// Bytes of IPv4 options (a multiple of 4), or of an IPv6 extension header (of 8).
    ip_options: usize,
    /// Bytes of TCP options, a multiple of 4.
    options: usize,
    flags: u8,
    /// The low bits of the IPv4 identification and the TCP sequence number, near their wrap.
    sequence: u32,
    payload: Vec<u8>,
    size: u16,
}

impl Super {
    fn bytes(&self) -> Vec<u8> {
        let transport = match self.transport {
            Transport::Tcp => {
                let mut tcp = vec![0; 20 + self.options];
                tcp[0..4].copy_from_slice(&[0x13, 0x88, 0xc0, 0x01]);
                tcp[4..8].copy_from_slice(&self.sequence.to_be_bytes());
                tcp[8..12].copy_from_slice(&[1, 2, 3, 4]);
                tcp[12] = ((tcp.len() / 4) as u8) << 4;
                tcp[13] = self.flags;
                tcp[14..16].copy_from_slice(&[0x20, 0x00]);
                tcp[20..].fill(1);
                tcp
            }
            Transport::Udp => {
                let mut udp = vec![0x13, 0x88, 0xc0, 0x01, 0, 0, 0, 0];
                put(&mut udp, 4, (8 + self.payload.len()) as u16);
                udp
            }
        };
        let covered = transport.len() + self.payload.len();
        let mut bytes = self.ip_header(covered);
        let at = bytes.len();
        bytes.extend_from_slice(&transport);
        bytes.extend_from_slice(&self.payload);
        let pseudo = pseudo_sum(&bytes, self.transport, covered);
        put(&mut bytes, at + self.checksum_field(), pseudo);
        bytes
    }

    fn ip_header(&self, covered: usize) -> Vec<u8> {
        let protocol = protocol(self.transport);
        if self.v6 {
            let mut ip = vec![0; 40 + self.ip_options];
            ip[0] = 0x60;
            ip[1] = 0x20; // ECT(0)
            put(&mut ip, 4, (self.ip_options + covered) as u16);
            ip[6] = protocol;
            if self.ip_options > 0 {
                ip[6] = 60; // destination options
                ip[40] = protocol;
                ip[41] = (self.ip_options / 8 - 1) as u8;
            }
            ip[8..40].copy_from_slice(&std::array::from_fn::<u8, 32, _>(|i| i as u8 + 1));
            return ip;
        }
        let mut ip = vec![1; 20 + self.ip_options];
        ip[0] = 0x40 | (ip.len() / 4) as u8;
        ip[1] = 0x02; // ECT(0)
        put(&mut ip, 2, (20 + self.ip_options + covered) as u16);
        put(&mut ip, 4, self.sequence as u16);
        ip[6..10].copy_from_slice(&[0x40, 0, 64, protocol]);
        put(&mut ip, 10, 0);
        ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = full_sum(&ip);
        put(&mut ip, 10, !sum);
        ip
    }

    fn transport_at(&self) -> usize {
        if self.v6 { 40 + self.ip_options } else { 20 + self.ip_options }
    }

    fn payload_at(&self) -> usize {
        let header = if self.transport == Transport::Tcp { 20 + self.options } else { 8 };
        self.transport_at() + header
    }

    fn checksum_field(&self) -> usize {
        if self.transport == Transport::Tcp { 16 } else { 6 }
    }

    fn header(&self) -> VnetHeader {
        VnetHeader {
            partial: Some(Partial {
                start: self.transport_at() as u16,
                field: self.checksum_field() as u16,
            }),
            gso: Some(Gso { transport: self.transport, size: self.size }),
        }
    }

    fn split(&self) -> Vec<WirePacket> {
        let mut packets = Vec::new();
        split(&self.bytes(), self.header(), 7, |packet| packets.push(packet)).unwrap();
        packets
    }
}

/// The one's complement sum the slow way, apart from the code under test.
fn full_sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) * 256 + u32::from(pair.get(1).copied().unwrap_or_default()));
    words.fold(0u32, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    }) as u16
}

fn protocol(transport: Transport) -> u8 {
    if transport == Transport::Tcp { 6 } else { 17 }
}

fn pseudo_sum(ip: &[u8], transport: Transport, covered: usize) -> u16 {
    let addresses = if ip[0] >> 4 == 6 { &ip[8..40] } else { &ip[12..20] };
    let mut header = addresses.to_vec();
    header.extend_from_slice(&(covered as u32).to_be_bytes());
    header.extend_from_slice(&[0, 0, 0, protocol(transport)]);
    full_sum(&header)
}

/// Completes the partial checksum as a receiving kernel or card would, then checks it.
fn assert_checksums(packet: &WirePacket, transport: Transport) {
    let Partial { start, field } = packet.partial.unwrap();
    let (start, field) = (usize::from(start), usize::from(field));
    let mut bytes = packet.ip().to_vec();
    let pseudo = pseudo_sum(&bytes, transport, bytes.len() - start);
    assert_eq!(get(&bytes, start + field) % 0xffff, pseudo % 0xffff, "partial checksum");
    let complete = !full_sum(&bytes[start..]);
    put(&mut bytes, start + field, complete);
    let sum = u32::from(full_sum(&bytes[start..])) + u32::from(pseudo);
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "transport checksum");
    if bytes[0] >> 4 == 4 {
        let header = usize::from(bytes[0] & 0xf) * 4;
        assert_eq!(full_sum(&bytes[..header]), 0xffff, "IPv4 header checksum");
    }
}

fn any_super() -> impl Strategy<Value = Super> {
    let payload = prop_oneof![1usize..9000, 60_000usize..65_000];
    let sequence = prop_oneof![any::<u32>(), Just(u32::MAX - 3), Just(0xfffe)];
    (
        any::<bool>(),
        any::<bool>(),
        0usize..3,
        0usize..=10,
        any::<u8>(),
        sequence,
        payload,
        1u16..9000,
    )
        .prop_map(|(v6, tcp, ip_options, options, flags, sequence, payload, size)| Super {
            v6,
            transport: if tcp { Transport::Tcp } else { Transport::Udp },
            ip_options: ip_options * 8,
            options: options * 4,
            flags,
            sequence,
            payload: (0..payload).map(|i| (i * 31 % 251) as u8).collect(),
            size,
        })
}

proptest! {
    #[test]
    fn segments_are_what_a_card_would_have_sent(packet in any_super()) {
        let segments = packet.split();
        let (at, size) = (packet.payload_at(), usize::from(packet.size));
        let mut payload = Vec::new();
        for (index, segment) in segments.iter().enumerate() {
            let ip = segment.ip();
            let last = index + 1 == segments.len();
            prop_assert!(ip.len() <= at + size && (last || ip.len() == at + size));
            prop_assert_eq!(segment.burst(), 7);
            prop_assert_eq!(segment.ecn(), Ecn::Ect0);
            assert_checksums(segment, packet.transport);
            if packet.v6 {
                prop_assert_eq!(40 + usize::from(get(ip, 4)), ip.len());
            } else {
                prop_assert_eq!(usize::from(get(ip, 2)), ip.len());
                prop_assert_eq!(get(ip, 4), (packet.sequence as u16).wrapping_add(index as u16));
            }
            let transport = &ip[packet.transport_at()..];
            match packet.transport {
                Transport::Udp => prop_assert_eq!(usize::from(get(transport, 4)), transport.len()),
                Transport::Tcp => {
                    let sequence = u32::from_be_bytes(transport[4..8].try_into().unwrap());
                    prop_assert_eq!(sequence, packet.sequence.wrapping_add((index * size) as u32));
                    let mut flags = packet.flags;
                    if index > 0 { flags &= !CWR; }
                    if !last { flags &= !(FIN | PSH); }
                    prop_assert_eq!(transport[13], flags);
                    prop_assert_eq!(&transport[8..12], &[1, 2, 3, 4]);
                    prop_assert!(transport[20..20 + packet.options].iter().all(|byte| *byte == 1));
                }
            }
            payload.extend_from_slice(&ip[at..]);
        }
        prop_assert!(payload == packet.payload, "payload");
    }

    #[test]
    fn a_mark_keeps_the_checksums_right(packet in any_super()) {
        for mut segment in packet.split() {
            segment.mark_ce();
            prop_assert_eq!(segment.ecn(), Ecn::Ce);
            assert_checksums(&segment, packet.transport);
        }
    }

    #[test]
    fn noise_is_refused_without_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        version in prop::option::of(prop_oneof![Just(0x45u8), Just(0x60), Just(0x4f), Just(0x40)]),
        header in any::<[u8; vnet::LEN]>(),
    ) {
        if let (Some(version), Some(first)) = (version, bytes.first_mut()) {
            *first = version;
        }
        if let Some(header) = VnetHeader::parse(&header) {
            let _ = split(&bytes, header, 0, |mut packet| {
                assert!(packet.wire_bytes() >= 20);
                if packet.ecn().is_capable() {
                    packet.mark_ce();
                }
            });
        }
    }

    #[test]
    fn a_header_cut_off_or_altered_anywhere_is_survived(
        packet in any_super(), cut in 0usize..200, at in 0usize..100, value in any::<u8>(),
    ) {
        let mut bytes = packet.bytes();
        bytes.truncate(cut.max(1));
        let at = at % bytes.len();
        bytes[at] = value;
        let _ = split(&bytes, packet.header(), 0, |packet| {
            assert!(packet.ip().len() <= cut.max(1));
        });
    }
}

#[test]
fn a_wire_packet_passes_as_it_is() {
    let packet = Super {
        v6: false,
        transport: Transport::Udp,
        ip_options: 0,
        options: 0,
        flags: 0,
        sequence: 1,
        payload: b"hello".to_vec(),
        size: 1,
    };
    let mut bytes = packet.bytes();
    let length = bytes.len();
    bytes.extend_from_slice(&[0; 9]); // padding, as short Ethernet frames have
    let mut packets = Vec::new();
    for partial in [None, packet.header().partial] {
        let header = VnetHeader { partial, gso: None };
        split(&bytes, header, 1, |packet| packets.push(packet)).unwrap();
        let passed = packets.pop().unwrap();
        assert_eq!((passed.ip(), passed.partial), (&bytes[..length], partial));
    }
}

#[test]
fn contradictions_are_refused() {
    let packet = Super {
        v6: false,
        transport: Transport::Tcp,
        ip_options: 0,
        options: 12,
        flags: 0x18,
        sequence: 1,
        payload: vec![0; 5000],
        size: 1448,
    };
    let bytes = packet.bytes();
    let sound = packet.header();
    let partial = |start, field| VnetHeader { partial: Some(Partial { start, field }), ..sound };
    let gso = |size| VnetHeader { gso: Some(Gso { transport: Transport::Tcp, size }), ..sound };
    for (what, header, bytes) in [
        ("no checksum to complete", VnetHeader { partial: None, ..sound }, &bytes[..]),
        ("transport inside the IP header", partial(8, 16), &bytes),
        ("transport behind the end", partial(60_000, 16), &bytes),
        ("checksum elsewhere", partial(20, 14), &bytes),
        ("segments of nothing", gso(0), &bytes),
        ("longer than it is", sound, &bytes[..1000]),
        ("nothing", sound, &[]),
    ] {
        let refused = split(bytes, header, 0, |_| panic!("{what}"));
        assert_eq!(refused, Err(Refused::Malformed), "{what}");
    }
}
