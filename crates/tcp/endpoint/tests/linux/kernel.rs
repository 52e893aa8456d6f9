//! The kernel's sender, behind a TUN device.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use etherparse::{PacketBuilder, SlicedPacket, TcpHeader, TcpOptionElement, TransportSlice};
use midspan_sys::netlink::{Netlink, Route, RouteTcp};
use midspan_sys::netns::Netns;
use midspan_sys::{sysctl, tun};
use midspan_tcp::Segment;
use midspan_units::Span;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::script::{PACKET, PACKETS, ROUND_TRIP, Sender, Sent, WIN_DIVISOR, handshake, syn};

const INTERFACE: &str = "peer";
const HERE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const PORT: u16 = 80;
const PEER_PORT: u16 = 5000;
/// What timestamps take of each packet, which the segment size of a SYN does not know of (RFC 6691).
const TIMESTAMPS: u16 = 12;

/// The namespace, the device and all that the kernel knows of the connection go with it.
pub(crate) struct Kernel {
    device: OwnedFd,
    first: u32,
    _connection: TcpStream,
}

impl Kernel {
    pub(crate) fn new() -> io::Result<Kernel> {
        let (device, listener) = Netns::create()?.run(|| {
            sysctl::set("net.ipv4.tcp_tso_win_divisor", &WIN_DIVISOR.to_string())?;
            let device = tun::open_device()?;
            tun::make_interface(&device, INTERFACE, tun::Unit::Packet)?;
            let mut netlink = Netlink::open()?;
            let index = netlink.index(INTERFACE)?;
            netlink.add_address(index, HERE.into(), 32)?;
            netlink.set_up(index)?;
            let (destination, tcp) = (PEER.into(), RouteTcp::default());
            netlink.add_route(&Route { destination, prefix: 32, index, gateway: None, tcp })?;
            let listener = TcpListener::bind(SocketAddrV4::new(HERE, PORT))?;
            sockopt::set_tcp_congestion(&listener, "reno")?;
            io::Result::Ok((device, listener))
        })??;
        give(&device, &syn())?;
        let end = Instant::now() + Duration::from_secs(5);
        let answer = loop {
            match next(&device, end)? {
                Some(packet) if packet.syn => break packet,
                Some(_) => {}
                None => return Err(io::ErrorKind::TimedOut.into()),
            }
        };
        let first = answer.sequence.wrapping_add(1);
        std::thread::sleep(ROUND_TRIP.into());
        give(&device, &handshake(first, answer.stamp))?;
        let (mut connection, _) = listener.accept()?;
        // All of it at once.
        sockopt::set_socket_send_buffer_size_force(&connection, 1 << 20)?;
        connection.write_all(&[0; (PACKETS * PACKET) as usize])?;
        Ok(Kernel { device, first, _connection: connection })
    }
}

impl Sender for Kernel {
    fn first(&self) -> u32 {
        self.first
    }

    fn take(&mut self, segment: &Segment) {
        give(&self.device, segment).unwrap();
    }

    fn pass(&mut self, time: Span) -> Vec<Sent> {
        let end = Instant::now() + Duration::from(time);
        let mut sent = Vec::new();
        while let Some(packet) = next(&self.device, end).unwrap() {
            if packet.payload > 0 {
                let position = packet.sequence.wrapping_sub(self.first);
                sent.push(Sent { position, stamp: packet.stamp });
            }
        }
        sent
    }
}

/// What the kernel has sent.
struct Packet {
    sequence: u32,
    payload: usize,
    syn: bool,
    stamp: u32,
}

/// The next TCP packet by then.
fn next(device: &OwnedFd, end: Instant) -> io::Result<Option<Packet>> {
    let mut bytes = [0; 2048];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        if poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&timeout))? == 0 {
            return Ok(None);
        }
        let length = rustix::io::read(device, &mut bytes)?;
        let sliced = SlicedPacket::from_ip(&bytes[..length]).map_err(io::Error::other)?;
        if let Some(TransportSlice::Tcp(tcp)) = sliced.transport {
            let mut stamp = 0;
            for option in tcp.options_iterator().flatten() {
                if let TcpOptionElement::Timestamp(value, _) = option {
                    stamp = value;
                }
            }
            let (sequence, payload, syn) = (tcp.sequence_number(), tcp.payload().len(), tcp.syn());
            return Ok(Some(Packet { sequence, payload, syn, stamp }));
        }
    }
}

/// A segment of the peer's reaches the kernel.
fn give(device: &OwnedFd, segment: &Segment) -> io::Result<()> {
    use TcpOptionElement::{
        MaximumSegmentSize, Noop, SelectiveAcknowledgement, SelectiveAcknowledgementPermitted,
        Timestamp, WindowScale,
    };
    let mut tcp = TcpHeader::new(PEER_PORT, PORT, segment.seq, segment.window);
    (tcp.syn, tcp.ack, tcp.acknowledgment_number) = (segment.syn, segment.ack_flag, segment.ack);
    let stamp = Timestamp(segment.timestamps.0, segment.timestamps.1);
    let options = if segment.syn {
        let (size, scale) = (segment.mss + TIMESTAMPS, segment.window_scale);
        vec![
            MaximumSegmentSize(size),
            SelectiveAcknowledgementPermitted,
            stamp,
            Noop,
            WindowScale(scale),
        ]
    } else if let [first, rest @ ..] = segment.sack_blocks() {
        let mut more = [None; 3];
        for (place, block) in more.iter_mut().zip(rest) {
            *place = Some(*block);
        }
        vec![Noop, Noop, stamp, Noop, Noop, SelectiveAcknowledgement(*first, more)]
    } else {
        vec![Noop, Noop, stamp]
    };
    tcp.set_options(&options).map_err(io::Error::other)?;
    let packet = PacketBuilder::ipv4(PEER.octets(), HERE.octets(), 64).tcp_header(tcp);
    let mut bytes = Vec::new();
    packet.write(&mut bytes, &[]).map_err(io::Error::other)?;
    rustix::io::write(device, &bytes)?;
    Ok(())
}
