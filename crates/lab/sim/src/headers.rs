//! The bytes of a segment's headers, for those who read packets.

use std::net::{Ipv4Addr, SocketAddrV4};

use etherparse::{IpEcn, IpNumber, Ipv4Header, TcpHeader, TcpOptionElement};
use midspan_path::Ecn;
use midspan_tcp::Segment;

use crate::host::{Host, MEC, SERVER};

/// As the live lab has them.
const FIRST_UE: Ipv4Addr = Ipv4Addr::new(10, 45, 1, 2);
const MEC_ACCESS: Ipv4Addr = Ipv4Addr::new(10, 45, 1, 1);
const MEC_WIDE: Ipv4Addr = Ipv4Addr::new(10, 45, 2, 1);
const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 45, 2, 2);
const SERVICE_PORT: u16 = 5201;
/// Before the addresses of the other UEs, of which there is one in cells only.
const OTHER_UES: Ipv4Addr = Ipv4Addr::new(10, 46, 0, 0);

/// Ports that Linux gives to clients: the first one, and how many there are (`net.ipv4.ip_local_port_range`).
const CLIENT_PORTS: (u16, u32) = (32_768, 28_232);

/// Linux's, too.
const TTL: u8 = 64;

/// The endpoint's segment size is of payload beside timestamps, the option's without any options (RFC 6691).
const TIMESTAMPS: u16 = 12;

/// A payload, as far as there is one.
static ZEROS: [u8; 65_535] = [0; 65_535];

/// The ends of connection `number`, which a UE's client opens on a host, or the MEC for itself, to a service on `server`.
pub(crate) fn ends(number: u32, client: (Host, u32), server: Host) -> (SocketAddrV4, SocketAddrV4) {
    let address = match client {
        (MEC, _) => MEC_WIDE,
        (_, 0) => FIRST_UE,
        (_, ue) => Ipv4Addr::from_bits(OTHER_UES.to_bits() + ue),
    };
    let (first, ports) = CLIENT_PORTS;
    // Below the number of ports, which is 16 bits.
    let port = first + (number % ports) as u16;
    let service = if server == SERVER { SERVER_ADDRESS } else { MEC_ACCESS };
    (SocketAddrV4::new(address, port), SocketAddrV4::new(service, SERVICE_PORT))
}

/// The IPv4 and TCP headers of a segment, as Linux lays options out.
pub(crate) fn of(segment: &Segment, ecn: Ecn, from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let Segment { syn, fin, rst, psh, ece, cwr, .. } = *segment;
    let mut tcp = TcpHeader::new(from.port(), to.port(), segment.seq, segment.window);
    tcp.acknowledgment_number = if segment.ack_flag { segment.ack } else { 0 };
    (tcp.ack, tcp.syn, tcp.fin, tcp.rst) = (segment.ack_flag, syn, fin, rst);
    (tcp.psh, tcp.ece, tcp.cwr) = (psh, ece, cwr);
    tcp.set_options(&options(segment)).expect("they are at most 40 bytes");
    // Segments are no longer than a link's packets, and their payload than what is left.
    let payload = &ZEROS[..segment.payload.min(ZEROS.len() as u32) as usize];
    let length = u16::try_from(tcp.header_len() + payload.len()).unwrap_or(u16::MAX);
    let (source, destination) = (from.ip().octets(), to.ip().octets());
    let mut ip =
        Ipv4Header::new(length, TTL, IpNumber::TCP, source, destination).unwrap_or_default();
    ip.dont_fragment = true;
    ip.ecn = match ecn {
        Ecn::NotEct => IpEcn::ZERO,
        Ecn::Ect1 => IpEcn::ONE,
        Ecn::Ect0 => IpEcn::TWO,
        Ecn::Ce => IpEcn::THREE,
    };
    ip.header_checksum = ip.calc_header_checksum();
    tcp.checksum = tcp.calc_checksum_ipv4(&ip, payload).unwrap_or_default();
    [&ip.to_bytes()[..], &tcp.to_bytes()[..]].concat()
}

fn options(segment: &Segment) -> Vec<TcpOptionElement> {
    use TcpOptionElement::{
        MaximumSegmentSize, Noop, SelectiveAcknowledgement, SelectiveAcknowledgementPermitted,
        Timestamp, WindowScale,
    };
    let (value, echo) = segment.timestamps;
    let timestamp = Timestamp(value, echo);
    if segment.syn {
        let mss = MaximumSegmentSize(segment.mss.saturating_add(TIMESTAMPS));
        let scale = WindowScale(segment.window_scale);
        return match segment.sack_permitted {
            true => vec![mss, SelectiveAcknowledgementPermitted, timestamp, Noop, scale],
            false => vec![mss, Noop, Noop, timestamp, Noop, scale],
        };
    }
    let mut options = vec![Noop, Noop, timestamp];
    if let [first, others @ ..] = segment.sack_blocks() {
        let other = |at: usize| others.get(at).copied();
        let blocks = SelectiveAcknowledgement(*first, [other(0), other(1), None]);
        options.extend([Noop, Noop, blocks]);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::UE;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    /// What the headers say again, and their length.
    fn read(bytes: &[u8], payload: u32) -> Segment {
        let whole = [bytes, &ZEROS[..payload as usize]].concat();
        let packet = SlicedPacket::from_ip(&whole).unwrap();
        let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) =
            (packet.net, packet.transport)
        else {
            panic!("it is IPv4 and TCP");
        };
        let header = ip.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(
            tcp.checksum(),
            tcp.calc_checksum_ipv4(header.source, header.destination).unwrap()
        );
        assert_eq!(u32::from(header.total_len), bytes.len() as u32 + payload);
        let mut segment = Segment {
            seq: tcp.sequence_number(),
            ack: tcp.acknowledgment_number(),
            payload: tcp.payload().len() as u32,
            window: tcp.window_size(),
            syn: tcp.syn(),
            ack_flag: tcp.ack(),
            fin: tcp.fin(),
            rst: tcp.rst(),
            psh: tcp.psh(),
            ece: tcp.ece(),
            cwr: tcp.cwr(),
            ..Segment::default()
        };
        for option in tcp.options_iterator() {
            match option.unwrap() {
                TcpOptionElement::Noop => {}
                TcpOptionElement::MaximumSegmentSize(mss) => segment.mss = mss - TIMESTAMPS,
                TcpOptionElement::WindowScale(scale) => segment.window_scale = scale,
                TcpOptionElement::SelectiveAcknowledgementPermitted => {
                    segment.sack_permitted = true;
                }
                TcpOptionElement::SelectiveAcknowledgement(first, others) => {
                    let blocks = std::iter::once(first).chain(others.into_iter().flatten());
                    for (place, block) in segment.sack.iter_mut().zip(blocks) {
                        *place = block;
                        segment.sack_count += 1;
                    }
                }
                TcpOptionElement::Timestamp(value, echo) => segment.timestamps = (value, echo),
            }
        }
        segment
    }

    proptest! {
        #[test]
        fn headers_are_read_as_they_were_and_as_long_as_segments_say(
            numbers in any::<(u32, u32, u16, (u32, u32))>(),
            flags in any::<[bool; 7]>(),
            syn in proptest::option::of((0..65_000u16, any::<u8>(), any::<bool>())),
            sack in proptest::collection::vec(any::<(u32, u32)>(), 0..=3),
            payload in 0..1448u32,
        ) {
            let (seq, ack, window, timestamps) = numbers;
            let [ack_flag, fin, rst, psh, ece, cwr, _] = flags;
            let ack = if ack_flag { ack } else { 0 };
            let mut segment = Segment {
                seq, ack, window, timestamps, ack_flag, fin, rst, psh, ece, cwr, payload,
                ..Segment::default()
            };
            match syn {
                Some((mss, window_scale, sack_permitted)) => segment = Segment {
                    syn: true, mss, window_scale, sack_permitted, ..segment
                },
                None => {
                    segment.sack_count = sack.len() as u8;
                    segment.sack[..sack.len()].copy_from_slice(&sack);
                }
            }
            let (from, to) = ends(0, (UE, 0), SERVER);
            let bytes = of(&segment, Ecn::NotEct, from, to);
            prop_assert_eq!(bytes.len() as u32 + payload, segment.wire_bytes());
            prop_assert_eq!(read(&bytes, payload), segment);
        }
    }

    #[test]
    fn marks_stand_in_the_ip_header() {
        let (from, to) = ends(3, (UE, 7), MEC);
        assert_eq!(
            (from.to_string(), to.to_string()),
            ("10.46.0.7:32771".into(), "10.45.1.1:5201".into())
        );
        let byte = |ecn| of(&Segment::default(), ecn, from, to)[1];
        assert_eq!([Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce].map(byte), [0, 1, 2, 3]);
    }
}
