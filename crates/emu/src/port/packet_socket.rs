use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use midspan_sys::netlink::Netlink;
use midspan_sys::netns::Netns;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::{Intake, Monitor, PortConfig, bring_up, kernel};
use crate::packet::{HEADROOM, WirePacket};
use crate::vnet::{self, Partial, VnetHeader};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
const _: () = assert!(HEADROOM == vnet::LEN + ETHERNET);

const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// The name of the emulator's end of the pair, in a namespace of its own.
const INNER: &str = "inner";

/// Kernel memory asked for packets on their way to us, and from us. An ordinary user gets what
/// `net.core.rmem_max` and `wmem_max` allow.
const SOCKET_BUFFER: usize = 256 << 20;

/// A packet socket on the far end of a veth pair whose near end is the host's interface.
///
/// The far end is alone in a namespace that only the socket holds, so both ends go when the socket
/// closes. Neighbour resolution is off: the host sends frames to its own address, and ours carry
/// that address back.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    socket: Arc<OwnedFd>,
    /// The host's Ethernet address: of both ends of every frame.
    host: [u8; 6],
}

impl PacketSocket {
    pub(crate) fn open(config: &PortConfig) -> io::Result<(PacketSocket, Monitor)> {
        let inner = Netns::create()?;
        let (mut near, host) = config.netns.run(|| {
            let mut netlink = Netlink::open()?;
            netlink.add_veth(&config.interface, INNER, inner.as_fd())?;
            let index = netlink.index(&config.interface)?;
            netlink.set_no_arp(index)?;
            let socket = raw_socket()?;
            let host = kernel::ethernet_address(socket.as_fd(), &config.interface)?;
            io::Result::Ok((netlink, host))
        })??;
        let (far, socket) = inner.run(|| {
            let mut netlink = Netlink::open()?;
            let index = netlink.index(INNER)?;
            netlink.set_no_arp(index)?;
            bring_up(&mut netlink, INNER, config.mtu)?;
            let socket = raw_socket()?;
            kernel::enable_packet_option(socket.as_fd(), libc::PACKET_VNET_HDR)?;
            kernel::enable_packet_option(socket.as_fd(), libc::PACKET_IGNORE_OUTGOING)?;
            enlarge_buffers(&socket)?;
            kernel::bind_packet_socket(socket.as_fd(), index)?;
            io::Result::Ok((netlink, Arc::new(socket)))
        })??;
        near = config.netns.run(|| {
            bring_up(&mut near, &config.interface, config.mtu)?;
            io::Result::Ok(near)
        })??;
        let interfaces = vec![(near, config.interface.clone()), (far, INNER.to_owned())];
        let monitor = Monitor {
            interfaces: Mutex::new(interfaces),
            socket: Some((socket.clone(), Mutex::new(0))),
        };
        Ok((PacketSocket { socket, host }, monitor))
    }

    pub(crate) fn read<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Intake<'a>> {
        let read = match rustix::io::read(&self.socket, &mut *buffer) {
            Ok(read) => read,
            Err(Errno::AGAIN) => return Ok(Intake::Empty),
            // A kind of super-packet that the virtio-net header cannot describe.
            Err(Errno::INVAL) => return Ok(Intake::Unreadable),
            Err(error) => return Err(error.into()),
        };
        let Some((header, frame)) = buffer[..read].split_first_chunk::<{ vnet::LEN }>() else {
            return Ok(Intake::Unreadable);
        };
        let Some((ethernet, packet)) = frame.split_first_chunk::<ETHERNET>() else {
            return Ok(Intake::Unreadable);
        };
        if ![TYPE_IPV4, TYPE_IPV6].contains(&[ethernet[12], ethernet[13]]) {
            return Ok(Intake::Foreign);
        }
        let Some(mut header) = VnetHeader::parse(header) else { return Ok(Intake::Unreadable) };
        if let Some(Partial { start, .. }) = &mut header.partial {
            // The kernel counts from the frame's start, this crate from the packet's.
            match start.checked_sub(ETHERNET as u16) {
                Some(shifted) => *start = shifted,
                None => return Ok(Intake::Unreadable),
            }
        }
        Ok(Intake::Packet(header, packet))
    }

    pub(crate) fn write(&self, packet: &mut WirePacket) -> io::Result<()> {
        let partial = packet.partial.map(|partial| Partial {
            start: partial.start.saturating_add(ETHERNET as u16),
            ..partial
        });
        let ethernet_type = if packet.ip()[0] >> 4 == 6 { TYPE_IPV6 } else { TYPE_IPV4 };
        let mut framing = [0; HEADROOM];
        let (vnet_header, ethernet) = framing.split_at_mut(vnet::LEN);
        vnet_header.copy_from_slice(&VnetHeader::for_wire(partial));
        ethernet[..6].copy_from_slice(&self.host);
        ethernet[6..12].copy_from_slice(&self.host);
        ethernet[12..].copy_from_slice(&ethernet_type);
        rustix::io::write(&self.socket, packet.framed(&framing))?;
        Ok(())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A packet socket that receives nothing before it is bound.
fn raw_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?)
}

fn enlarge_buffers(socket: &OwnedFd) -> io::Result<()> {
    if sockopt::set_socket_recv_buffer_size_force(socket, SOCKET_BUFFER).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, SOCKET_BUFFER)?;
    }
    if sockopt::set_socket_send_buffer_size_force(socket, SOCKET_BUFFER).is_err() {
        sockopt::set_socket_send_buffer_size(socket, SOCKET_BUFFER)?;
    }
    Ok(())
}
