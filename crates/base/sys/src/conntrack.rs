//! Connection tracking of the calling thread's network namespace (ctnetlink).

use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr as Peer, protocols::NETLINK_NETFILTER};

/// `NFNL_SUBSYS_CTNETLINK` and `IPCTNL_MSG_CT_DELETE`.
const DELETE: u16 = (1 << 8) | 2;
/// `CTA_TUPLE_ORIG`; within it `CTA_TUPLE_IP` and `CTA_TUPLE_PROTO`.
const ORIGINAL: u16 = 1;
const ADDRESSES: u16 = 1;
const PROTOCOL: u16 = 2;
/// Within those: `CTA_IP_V4_SRC` and `CTA_IP_V6_SRC`, with the destinations behind; `CTA_PROTO_NUM`, `_SRC_PORT`,
/// `_DST_PORT`.
const V4_SOURCE: u16 = 1;
const V6_SOURCE: u16 = 3;
const NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
const NESTED: u16 = 0x8000;
const TCP: u8 = 6;
/// Bytes of a netlink message's header.
const HEADER: usize = 16;

/// Asks the kernel's connection tracking.
#[derive(Debug)]
pub struct Conntrack(Socket);

impl Conntrack {
    /// Opens a socket.
    ///
    /// # Errors
    /// When the kernel has no netfilter.
    pub fn open() -> io::Result<Conntrack> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&Peer::new(0, 0))?;
        Ok(Conntrack(socket))
    }

    /// Forgets a TCP connection, named from the side of who opened it, before NAT.
    ///
    /// # Errors
    /// `ENOENT` if there is none; `EPERM` without CAP_NET_ADMIN; when the kernel has no ctnetlink.
    pub fn forget(&self, from: SocketAddr, to: SocketAddr) -> io::Result<()> {
        self.0.send(&deletion(from, to), 0)?;
        let (answer, _) = self.0.recv_from_full()?;
        let code = answer.get(HEADER..HEADER + 4).and_then(|code| code.first_chunk());
        match code.map(|code| i32::from_ne_bytes(*code)) {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(-code)),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn deletion(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let addresses = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            [attribute(V4_SOURCE, &from.octets()), attribute(V4_SOURCE + 1, &to.octets())]
        }
        (from, to) => [attribute(V6_SOURCE, &mapped(from)), attribute(V6_SOURCE + 1, &mapped(to))],
    };
    let protocol = [
        attribute(NUMBER, &[TCP]),
        attribute(SOURCE_PORT, &from.port().to_be_bytes()),
        attribute(DESTINATION_PORT, &to.port().to_be_bytes()),
    ];
    let tuple = [
        attribute(ADDRESSES | NESTED, &addresses.concat()),
        attribute(PROTOCOL | NESTED, &protocol.concat()),
    ];
    let body = attribute(ORIGINAL | NESTED, &tuple.concat());
    let family = if from.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut message = Vec::with_capacity(HEADER + 4 + body.len());
    message.extend(((HEADER + 4 + body.len()) as u32).to_ne_bytes());
    message.extend(DELETE.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    message.extend([0; 8]);
    message.extend([family as u8, 0, 0, 0]);
    message.extend(body);
    message
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// A netlink attribute, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len();
    let mut bytes = [(length as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_is_as_long_as_it_says() {
        for (from, to) in [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
            let message = deletion(from.parse().unwrap(), to.parse().unwrap());
            let length = u32::from_ne_bytes(*message.first_chunk().unwrap());
            assert_eq!(length as usize, message.len());
            assert_eq!(message.len() % 4, 0);
        }
    }

    #[test]
    fn what_is_not_tracked_is_not_found() {
        let Ok(conntrack) = Conntrack::open() else { return };
        let error = conntrack
            .forget("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap())
            .unwrap_err();
        // Not allowed, or no ctnetlink, is as much as can be said elsewhere.
        let is_root = rustix::process::geteuid().is_root();
        let wanted = [libc::ENOENT, libc::EPERM, libc::EINVAL, libc::EOPNOTSUPP];
        let wanted = if is_root { &wanted[..] } else { &wanted[1..] };
        assert!(wanted.contains(&error.raw_os_error().unwrap()), "{error}");
    }
}
