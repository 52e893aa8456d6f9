//! What the kernel says when something of the calling thread's network namespace has changed.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_sys::Socket;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};

/// `RTNLGRP_LINK`
const LINK_GROUP: u32 = 1;
/// `NFNLGRP_NFTABLES`
const NFTABLES_GROUP: u32 = 7;

/// Tells that something has changed, and not what.
#[derive(Debug)]
pub struct Changes {
    socket: Socket,
}

impl Changes {
    /// Of interfaces: one has come, gone, or is another.
    ///
    /// # Errors
    /// Whatever the kernel says of the socket.
    pub fn of_interfaces() -> io::Result<Changes> {
        Changes::of(NETLINK_ROUTE, LINK_GROUP)
    }

    /// Of rules of nftables (those of `iptables-nft` are such too).
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_ADMIN.
    pub fn of_rules() -> io::Result<Changes> {
        Changes::of(NETLINK_NETFILTER, NFTABLES_GROUP)
    }

    fn of(protocol: isize, group: u32) -> io::Result<Changes> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.add_membership(group)?;
        socket.set_non_blocking(true)?;
        Ok(Changes { socket })
    }

    /// Readable when there is something to [take](Changes::take).
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket lives as long as what borrows it.
        #[allow(unsafe_code)]
        unsafe {
            BorrowedFd::borrow_raw(self.socket.as_raw_fd())
        }
    }

    /// Whether anything has changed since the last call.
    pub fn take(&mut self) -> bool {
        let mut changed = false;
        loop {
            match self.socket.recv_from_full() {
                Ok(_) => changed = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return changed,
                // More has changed than could be kept.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changed = true,
                Err(_) => return true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Netlink;
    use crate::netns::Netns;

    #[test]
    fn an_interface_that_changes_is_told_of_once() {
        let Ok(netns) = Netns::create() else {
            eprintln!("skipped: this user may not create network namespaces");
            return;
        };
        netns
            .run(|| {
                let mut changes = Changes::of_interfaces().unwrap();
                assert!(!changes.take());
                let mut netlink = Netlink::open().unwrap();
                let loopback = netlink.index("lo").unwrap();
                netlink.set_mtu(loopback, 9000).unwrap();
                assert!(changes.take());
                assert!(!changes.take());
            })
            .unwrap();
    }
}
