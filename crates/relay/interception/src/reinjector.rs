//! The link by which SYNs that were held go on.

use std::io;
use std::os::fd::OwnedFd;

use midspan_steer::HeldSyn;
use midspan_sys::netlink::Netlink;
use midspan_sys::tun;

/// Bytes of an Ethernet header, and what it has beside the address that it is for.
const ETHERNET: usize = 14;
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 0];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// A link by which held SYNs are sent into this host. The steering program has them go on where they first came in.
#[derive(Debug)]
pub struct SynReinjector {
    device: OwnedFd,
    pub(crate) interface: u32,
}

impl SynReinjector {
    /// Makes the link in the calling thread's network namespace.
    ///
    /// # Errors
    /// When `/dev/net/tun` cannot be used, or the link not be made, which takes CAP_NET_ADMIN.
    pub fn new() -> io::Result<SynReinjector> {
        let device = tun::open_device()
            .map_err(|error| io::Error::new(error.kind(), format!("/dev/net/tun: {error}")))?;
        // A relay that drains may still have its own.
        let name = format!("midheld{}", std::process::id());
        tun::make_interface(&device, &name, tun::Unit::Frame)?;
        let mut netlink = Netlink::open()?;
        let interface = netlink.index(&name)?;
        netlink.set_no_arp(interface)?;
        netlink.set_up(interface)?;
        Ok(SynReinjector { device, interface })
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
}
