//! IP versions, and what every socket of a leg has from the beginning.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

/// An IP version that the relay takes connections of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// That of an address.
    pub const fn of(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// A socket; `transparent` if it is to have others' addresses, which takes CAP_NET_ADMIN.
    pub(crate) fn socket(self, protocol: Protocol, transparent: bool) -> io::Result<Socket> {
        let domain = match self {
            Family::V4 => Domain::IPV4,
            Family::V6 => Domain::IPV6,
        };
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(domain, kind, Some(protocol))?;
        match self {
            _ if !transparent => {}
            Family::V4 => socket.set_ip_transparent_v4(true)?,
            Family::V6 => socket.set_ip_transparent_v6(true)?,
        }
        // Until a flow has ended in order on both legs, its sockets' death, ours included, must
        // be a reset and never an early end of stream.
        socket.set_linger(Some(Duration::ZERO))?;
        // Segments are passed on as they come; what was held back for company was held back
        // by the sender already.
        socket.set_tcp_nodelay(true)?;
        // Else urgent bytes would have to be asked for one by one, and be lost. MPTCP has none
        // (RFC 8684, 3.3.1).
        if protocol == Protocol::TCP {
            socket.set_out_of_band_inline(true)?;
        }
        Ok(socket)
    }

    /// A socket for connections of clients, and whether it speaks MPTCP, which this kernel may not.
    pub(crate) fn for_clients(self, mptcp: bool, transparent: bool) -> io::Result<(Socket, bool)> {
        if mptcp {
            match self.socket(Protocol::MPTCP, transparent) {
                Ok(socket) => return Ok((socket, true)),
                // Not built in; switched off (net.mptcp.enabled).
                Err(error) if is_any(&error, &[Errno::PROTONOSUPPORT, Errno::NOPROTOOPT]) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((self.socket(Protocol::TCP, transparent)?, false))
    }

    pub(crate) const fn loopback(self) -> IpAddr {
        match self {
            Family::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Family::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        }
    }

    pub(crate) const fn any(self) -> IpAddr {
        match self {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }
}

/// Whether an error is one of these.
pub(crate) fn is_any(error: &io::Error, kinds: &[Errno]) -> bool {
    Errno::from_io_error(error).is_some_and(|error| kinds.contains(&error))
}
