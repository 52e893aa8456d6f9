//! The link by which SYNs that were held go on, and acknowledgements go again.

use std::io;
use std::os::fd::OwnedFd;

use midspan_steer::{DueAck, HeldSyn};
use midspan_sys::netlink::Netlink;
use midspan_sys::tun;

/// Bytes of an Ethernet header, and what it has beside the address that it is for.
const ETHERNET: usize = 14;
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 0];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// A link by which packets are sent into this host that the steering program had kept. It has SYNs go on where they first came
/// in, and acknowledgements where they were to go.
#[derive(Debug)]
pub struct Reinjector {
    device: OwnedFd,
    pub(crate) interface: u32,
}

impl Reinjector {
    /// Makes the link in the calling thread's network namespace.
    ///
    /// # Errors
    /// When `/dev/net/tun` cannot be used, or the link not be made, which takes CAP_NET_ADMIN.
    pub fn new() -> io::Result<Reinjector> {
        let device = tun::open_device()
            .map_err(|error| io::Error::new(error.kind(), format!("/dev/net/tun: {error}")))?;
        // A relay that drains may still have its own.
        let name = format!("midheld{}", std::process::id());
        tun::make_interface(&device, &name, tun::Unit::Frame)?;
        let mut netlink = Netlink::open()?;
        let interface = netlink.index(&name)?;
        netlink.set_no_arp(interface)?;
        netlink.set_up(interface)?;
        Ok(Reinjector { device, interface })
    }

    /// Sends a SYN on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn inject(&self, syn: &HeldSyn) -> io::Result<()> {
        let mut frame = Vec::with_capacity(ETHERNET + syn.packet.len());
        frame.extend(syn.ethernet);
        frame.extend(NOBODY);
        frame.extend(if syn.client.is_ipv4() { IPV4 } else { IPV6 });
        frame.extend(&syn.packet);
        Ok(rustix::io::write(&self.device, &frame).map(drop)?)
    }

    /// Has an acknowledgement go again.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send_again(&self, due: &DueAck) -> io::Result<()> {
        Ok(rustix::io::write(&self.device, &due.frame).map(drop)?)
    }
}
