//! A host that is no kernel's: TCP segments made by hand, over an interface of the box that a test
//! reads and writes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use midspan_sys::netlink::Netlink;
use midspan_sys::netns::Netns;
use midspan_sys::tun::{self, Unit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::world::{ip, up};

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;

/// The box's own addresses on the interface.
const GATEWAY: [&str; 2] = ["10.66.0.1", "fd66::1"];
/// Ethernet address that the box has on a TAP interface.
const BOX: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// An interface of the box, behind which are 10.66.0.0/24 and fd66::/64.
pub(crate) struct Wire {
    device: OwnedFd,
    unit: Unit,
}

impl Wire {
    /// None, and says so, where that may not be made.
    pub(crate) fn new(netns: &Netns, unit: Unit) -> Option<Wire> {
        let open = || -> io::Result<Wire> {
            let device = tun::open_device()?;
            tun::make_interface(&device, "radio", unit)?;
            let mut netlink = Netlink::open()?;
            let index = netlink.index("radio")?;
            netlink.set_queue_length(index, 20_000)?;
            if unit == Unit::Frame {
                // No neighbour needs to be found.
                netlink.set_no_arp(index)?;
                let set = ["link", "set", "radio", "address", "02:00:00:00:00:01"];
                assert!(std::process::Command::new("ip").args(set).status()?.success());
            }
            up(&mut netlink, "radio", &GATEWAY)?;
            Ok(Wire { device, unit })
        };
        match netns.run(open).unwrap() {
            Ok(wire) => Some(wire),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                ) =>
            {
                crate::world::skip(&format!("/dev/net/tun: {error}"));
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn send(&self, segment: &Segment) {
        self.send_frame(&self.frame(&segment.encode()));
    }

    /// An IP packet as it goes over this kind of interface.
    pub(crate) fn frame(&self, packet: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(packet.len() + 14);
        if self.unit == Unit::Frame {
            frame.extend(BOX);
            frame.extend([2, 0, 0, 0, 0, 2]);
            frame.extend(if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        }
        frame.extend(packet);
        frame
    }

    /// What the kernel refuses as it is too short, or of no IP version, is sent no further.
    pub(crate) fn send_frame(&self, frame: &[u8]) {
        match rustix::io::write(&self.device, frame) {
            Ok(_) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// The next segment from the box, if one comes in time.
    pub(crate) fn receive(&self, patience: Duration) -> Option<Segment> {
        let mut buffer = [0; 65_536];
        loop {
            match rustix::io::read(&self.device, &mut buffer) {
                Ok(length) => {
                    let at = if self.unit == Unit::Frame { 14 } else { 0 };
                    let segment = buffer[..length].get(at..).and_then(Segment::parse);
                    if segment.is_some() {
                        return segment;
                    }
                }
                Err(rustix::io::Errno::AGAIN) => {
                    let wait = Timespec::try_from(patience).unwrap();
                    let fd = self.device.as_fd();
                    if poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&wait))
                        .unwrap()
                        == 0
                    {
                        return None;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// An address behind the interface.
pub(crate) fn host(version: usize, last: u16) -> IpAddr {
    match version {
        4 => IpAddr::from([10, 66, 0, last as u8]),
        _ => ip(&format!("fd66::{last:x}")),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// TCP options, in whole words.
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Segment {
    pub(crate) fn new(from: SocketAddr, to: SocketAddr, flags: u8) -> Segment {
        Segment {
            from,
            to,
            sequence: 0,
            acknowledgement: 0,
            flags,
            window: 65_535,
            options: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// What follows it in its sequence numbers.
    pub(crate) fn next(&self) -> u32 {
        let flags = u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0);
        self.sequence.wrapping_add(self.payload.len() as u32 + flags)
    }

    /// The IP packet.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut tcp = Vec::with_capacity(20 + self.payload.len());
        tcp.extend(self.from.port().to_be_bytes());
        tcp.extend(self.to.port().to_be_bytes());
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend(self.acknowledgement.to_be_bytes());
        let words = 5 + self.options.len() / 4;
        tcp.extend([(words as u8) << 4, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&self.options);
        tcp.extend(&self.payload);
        let length = tcp.len() as u16;
        let mut packet = Vec::with_capacity(40 + tcp.len());
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                packet.extend([0x45, 0]);
                packet.extend((20 + length).to_be_bytes());
                packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
                packet.extend(from.octets());
                packet.extend(to.octets());
                let sum = checksum(&[&packet]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                packet.extend([0x60, 0, 0, 0]);
                packet.extend(length.to_be_bytes());
                packet.extend([6, 64]);
                packet.extend(from.octets());
                packet.extend(to.octets());
            }
            mixed => panic!("{mixed:?}"),
        }
        let addresses = if self.from.is_ipv4() { &packet[12..20] } else { &packet[8..40] };
        let sum = tcp_checksum(addresses, &tcp);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        packet.extend(tcp);
        packet
    }

    /// The TCP segment that an IP packet without IP options is, if it is one.
    pub(crate) fn parse(packet: &[u8]) -> Option<Segment> {
        let (from, to, tcp) = match packet.first()? >> 4 {
            4 if packet.get(9) == Some(&6) => {
                let address = |at: usize| packet[at..at + 4].first_chunk::<4>().copied();
                (IpAddr::from(address(12)?), IpAddr::from(address(16)?), packet.get(20..)?)
            }
            6 if packet.get(6) == Some(&6) => {
                let tcp = packet.get(40..)?;
                let address = |at: usize| packet[at..at + 16].first_chunk::<16>().copied();
                (IpAddr::from(address(8)?), IpAddr::from(address(24)?), tcp)
            }
            _ => return None,
        };
        let addresses = if from.is_ipv4() { &packet[12..20] } else { &packet[8..40] };
        assert_eq!(tcp_checksum(addresses, tcp), 0, "{packet:x?}");
        let short = |at: usize| Some(u16::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u32::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
        Some(Segment {
            from: SocketAddr::new(from, short(0)?),
            to: SocketAddr::new(to, short(2)?),
            sequence: long(4)?,
            acknowledgement: long(8)?,
            flags: *tcp.get(13)?,
            window: short(14)?,
            options: tcp.get(20..usize::from(tcp[12] >> 4) * 4)?.to_vec(),
            payload: tcp.get(usize::from(tcp[12] >> 4) * 4..)?.to_vec(),
        })
    }

    /// The blocks of its SACK option (RFC 2018).
    pub(crate) fn sack(&self) -> Vec<(u32, u32)> {
        let mut options = &self.options[..];
        loop {
            match options {
                [] | [0, ..] => return Vec::new(),
                [1, rest @ ..] => options = rest,
                [5, length, rest @ ..] => {
                    let number = |at: &[u8]| u32::from_be_bytes(*at.first_chunk().unwrap());
                    let blocks = rest[..usize::from(*length) - 2].chunks(8);
                    return blocks.map(|block| (number(block), number(&block[4..]))).collect();
                }
                [_, length, ..] => options = &options[usize::from(*length)..],
                _ => panic!("{options:?}"),
            }
        }
    }
}

/// Of a segment between these addresses, which stand as in the IP header. Zero for one that has its checksum.
fn tcp_checksum(addresses: &[u8], tcp: &[u8]) -> u16 {
    // The pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1) has the same sum for both versions.
    let [high, low] = (tcp.len() as u16).to_be_bytes();
    checksum(&[addresses, &[0, 6, high, low], tcp])
}

/// RFC 1071.
pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0;
    for part in parts {
        for word in part.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
