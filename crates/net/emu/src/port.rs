//! Ports: where a link's packets come from and go to.

mod kernel;
mod packet_socket;
mod tun;

pub(crate) use kernel::{set_fifo, set_slice};

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use midspan_sys::netlink::Netlink;
use midspan_sys::netns::Netns;
use midspan_sys::sysctl;

use crate::gro_batch::GroBatch;
use crate::vnet::VnetHeader;
use packet_socket::PacketSocket;
use tun::Tun;

/// One end of a link: an interface that appears in a namespace.
#[derive(Debug, Clone)]
pub struct PortConfig {
    /// The namespace of the host at this end.
    pub netns: Netns,
    /// The name of the interface to be made in it: 1 to 15 bytes.
    pub interface: String,
    /// Largest wire packet, in bytes of IP.
    pub mtu: u32,
}

/// How packets pass between the kernel and the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// A TUN device: least work per packet and no link layer. Needs /dev/net/tun and CAP_NET_ADMIN
    /// in the namespace.
    Tun,
    /// A veth pair with a packet socket on its far end: for users to whom /dev/net/tun is closed,
    /// root in a user namespace among them.
    Packet,
}

impl Backend {
    /// The backend to use here: TUN wherever /dev/net/tun can be opened.
    pub fn available() -> Backend {
        match midspan_sys::tun::open_device() {
            Ok(_) => Backend::Tun,
            Err(_) => Backend::Packet,
        }
    }
}

/// An open port. Its interface lives as long as it does.
#[derive(Debug)]
pub(crate) enum Port {
    Tun(Tun),
    Packet(PacketSocket),
}

/// What a read from a port yielded.
pub(crate) enum Intake<'a> {
    /// An IP packet or super-packet.
    Packet(VnetHeader, &'a [u8]),
    /// What the emulated link has no business with: no IP.
    Foreign,
    /// Something that should have been a packet but was not readable as one.
    Unreadable,
    /// Nothing there at present.
    Empty,
}

impl Port {
    /// Makes the interface, up, with its MTU and without addresses, not even a link-local one.
    pub(crate) fn open(config: &PortConfig, backend: Backend) -> io::Result<(Port, Monitor)> {
        check_name(&config.interface)?;
        match backend {
            Backend::Tun => Tun::open(config).map(|(port, monitor)| (Port::Tun(port), monitor)),
            Backend::Packet => {
                PacketSocket::open(config).map(|(port, monitor)| (Port::Packet(port), monitor))
            }
        }
    }

    /// Takes the next packet in.
    pub(crate) fn read(&mut self) -> io::Result<Intake<'_>> {
        match self {
            Port::Tun(port) => port.read(),
            Port::Packet(port) => port.read(),
        }
    }

    /// Puts a coalesced batch out. `WouldBlock` or `ENOBUFS` mean that the kernel has no room at
    /// present.
    pub(crate) fn write(&self, batch: &mut GroBatch) -> io::Result<()> {
        match self {
            Port::Tun(port) => port.write(batch),
            Port::Packet(port) => port.write(batch),
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Port::Tun(port) => port.as_fd(),
            Port::Packet(port) => port.as_fd(),
        }
    }
}

/// Counts what the kernel dropped between an interface and its port. Reading it costs the
/// emulator's thread nothing.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// Interfaces, each with a socket in its namespace.
    interfaces: Mutex<Vec<(Netlink, String)>>,
    socket: Option<(Arc<std::os::fd::OwnedFd>, Mutex<u64>)>,
}

impl Monitor {
    /// Packets dropped since the port was opened.
    pub(crate) fn drops(&self) -> io::Result<u64> {
        let mut drops = 0;
        for (netlink, name) in self.interfaces.lock().unwrap_or_else(|e| e.into_inner()).iter_mut()
        {
            drops += netlink.statistics(name)?.tx_dropped;
        }
        if let Some((socket, total)) = &self.socket {
            // The kernel forgets the count when it is read.
            let mut total = total.lock().unwrap_or_else(|e| e.into_inner());
            *total += kernel::take_packet_drops(socket.as_fd())?;
            drops += *total;
        }
        Ok(drops)
    }
}

/// `%` would have the kernel choose a number.
fn check_name(name: &str) -> io::Result<()> {
    let is_bad = |c: char| c.is_whitespace() || ['%', '/', ':', '\0'].contains(&c);
    if (1..=15).contains(&name.len()) && !name.contains(is_bad) && name != "." && name != ".." {
        return Ok(());
    }
    let wanted = "an interface name has 1 to 15 bytes, no space, `%`, `/` or `:` among them";
    Err(io::Error::new(io::ErrorKind::InvalidInput, wanted))
}

/// Makes an interface of the calling thread's namespace ready: MTU, no link-local address (so that
/// the kernel sends no router solicitations across the emulated link), up.
fn bring_up(netlink: &mut Netlink, name: &str, mtu: u32) -> io::Result<()> {
    let index = netlink.index(name)?;
    netlink.set_mtu(index, mtu)?;
    lengthen_queue(netlink, index)?;
    // 1 is IN6_ADDR_GEN_MODE_NONE. A kernel without IPv6 has no such parameter and no need of it.
    let _ = sysctl::set(&format!("net.ipv6.conf.{name}.addr_gen_mode"), "1");
    netlink.set_up(index)
}

/// Gives an interface a queue of [`QUEUE_LENGTH`], or the longest that the kernel takes: 6.1 refuses more
/// than some ten thousand.
fn lengthen_queue(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    let too_long = rustix::io::Errno::RANGE.raw_os_error();
    let mut length = QUEUE_LENGTH;
    loop {
        match netlink.set_queue_length(index, length) {
            Err(error) if error.raw_os_error() == Some(too_long) && length > 1 => length /= 2,
            result => return result,
        }
    }
}

/// Packets that a TUN device's ring holds (eight bytes of memory each). When the ring is full the
/// kernel (measured: 6.18) drops and counts; it does not push back on the sender. So it must hold
/// what the largest windows send while the emulator's thread waits for a processor: 100,000 packets
/// even of 1500 bytes are more than a second at 1 Gbit/s.
const QUEUE_LENGTH: u32 = 100_000;
