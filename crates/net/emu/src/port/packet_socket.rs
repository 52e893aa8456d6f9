use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use midspan_sys::netlink::Netlink;
use midspan_sys::netns::Netns;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::kernel::{self, Ring};
use super::{Intake, Monitor, PortConfig, bring_up};
use crate::gro_batch::GroBatch;
use crate::packet::HEADROOM;
use crate::vnet::{self, Partial, VnetHeader};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
const _: () = assert!(HEADROOM == vnet::LEN + ETHERNET);

const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// The name of the emulator's end of the pair, in a namespace of its own.
const INNER: &str = "inner";

/// Kernel memory asked for packets on their way out. An ordinary user gets what
/// `net.core.wmem_max` allows.
const SEND_BUFFER: usize = 16 << 20;

/// A packet socket on the far end of a veth pair whose near end is the host's interface.
///
/// The far end is alone in a namespace that only the socket holds, so both ends go when the socket
/// closes. Neighbour resolution is off: the host sends frames to its own address, and ours carry
/// that address back.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    socket: Arc<OwnedFd>,
    ring: Ring,
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
        let (far, socket, ring) = inner.run(|| {
            let mut netlink = Netlink::open()?;
            let index = netlink.index(INNER)?;
            netlink.set_no_arp(index)?;
            bring_up(&mut netlink, INNER, config.mtu)?;
            let socket = raw_socket()?;
            kernel::set_packet_option(socket.as_fd(), libc::PACKET_VNET_HDR, 1)?;
            kernel::set_packet_option(socket.as_fd(), libc::PACKET_IGNORE_OUTGOING, 1)?;
            let ring = Ring::new(socket.as_fd())?;
            if sockopt::set_socket_send_buffer_size_force(&socket, SEND_BUFFER).is_err() {
                sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER)?;
            }
            kernel::bind_packet_socket(socket.as_fd(), index)?;
            io::Result::Ok((netlink, Arc::new(socket), ring))
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
        Ok((PacketSocket { socket, ring, host }, monitor))
    }

    pub(crate) fn read(&mut self) -> io::Result<Intake<'_>> {
        let taken = match self.ring.take() {
            Some(taken) => taken,
            // The ring says nothing of an interface that has gone; the socket does.
            None => {
                return sockopt::socket_error(&self.socket)?
                    .map(|()| Intake::Empty)
                    .map_err(Into::into);
            }
        };
        let Some((header, frame)) = taken.and_then(|taken| taken.split_first_chunk()) else {
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

    pub(crate) fn write(&self, batch: &mut GroBatch) -> io::Result<()> {
        let mut header = batch.header();
        if let Some(Partial { start, .. }) = &mut header.partial {
            *start = start.saturating_add(ETHERNET as u16);
        }
        let v6 = batch.head().is_ipv6();
        let mut framing = [0; HEADROOM];
        let (vnet_header, ethernet) = framing.split_at_mut(vnet::LEN);
        vnet_header.copy_from_slice(&header.encode(v6, batch.headers() + ETHERNET as u16));
        ethernet[..6].copy_from_slice(&self.host);
        ethernet[6..12].copy_from_slice(&self.host);
        ethernet[12..].copy_from_slice(if v6 { &TYPE_IPV6 } else { &TYPE_IPV4 });
        batch.write(&framing, |pieces| rustix::io::writev(&self.socket, pieces))?;
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
