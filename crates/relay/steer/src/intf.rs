//! What the program and user space say to each other: the types of `bpf/intf.h`, generated from it (`build.rs`) under C's
//! names, and how they are made of Rust's.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(crate) use c::*;

#[allow(dead_code, missing_docs, non_camel_case_types, unreachable_pub)]
mod c {
    use super::{Be16 as __be16, Be32 as __be32};

    include!(concat!(env!("OUT_DIR"), "/intf.rs"));
}

/// An integer in the byte order of the network.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
#[allow(unreachable_pub, reason = "as the generated types that have it")]
pub struct Be16(u16);

/// Likewise. `word`s of an address, whose bytes thus are in their order.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
#[allow(unreachable_pub, reason = "as the generated types that have it")]
pub struct Be32(u32);

impl From<u16> for Be16 {
    fn from(number: u16) -> Self {
        Be16(number.to_be())
    }
}

impl From<Be16> for u16 {
    fn from(number: Be16) -> Self {
        u16::from_be(number.0)
    }
}

impl fmt::Debug for Be16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        u16::from_be(self.0).fmt(f)
    }
}

impl fmt::Debug for Be32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be(self.0))
    }
}

impl From<IpAddr> for address {
    fn from(ip: IpAddr) -> Self {
        let octets = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        zerocopy::transmute!(octets)
    }
}

impl From<address> for IpAddr {
    fn from(address: address) -> Self {
        let octets: [u8; 16] = zerocopy::transmute!(address);
        Ipv6Addr::from(octets).to_canonical()
    }
}

impl connection {
    pub(crate) fn new(client: SocketAddr, server: SocketAddr) -> Self {
        connection {
            client: client.ip().into(),
            server: server.ip().into(),
            client_port: client.port().into(),
            server_port: server.port().into(),
        }
    }

    pub(crate) fn client(&self) -> SocketAddr {
        SocketAddr::new(self.client.into(), self.client_port.into())
    }

    pub(crate) fn server(&self) -> SocketAddr {
        SocketAddr::new(self.server.into(), self.server_port.into())
    }
}

impl From<SocketAddr> for service {
    fn from(server: SocketAddr) -> Self {
        service { server: server.ip().into(), port: server.port().into(), unused: 0 }
    }
}

impl From<IpNet> for prefix {
    fn from(net: IpNet) -> Self {
        let bits = u32::from(net.prefix_len()) + if net.addr().is_ipv4() { 96 } else { 0 };
        prefix { bits, address: net.network().into() }
    }
}

impl prefix {
    /// None if it is not as one was written.
    pub(crate) fn to_net(self) -> Option<IpNet> {
        let address = IpAddr::from(self.address);
        let bits = if address.is_ipv4() { self.bits.checked_sub(96)? } else { self.bits };
        IpNet::new(address, u8::try_from(bits).ok()?).ok()
    }
}

/// The network of an address: a /24, or a /48 of IPv6. As `network_of` of the program.
pub(crate) fn network_of(address: IpAddr) -> address {
    address::from(match address {
        IpAddr::V4(v4) => IpAddr::from(Ipv4Addr::from_bits(v4.to_bits() >> 8 << 8)),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 80 << 80).into(),
    })
}

/// The place of a server among [`MARKED_SERVERS`]. As `place_of` of the program.
pub(crate) fn place_of(server: IpAddr) -> usize {
    let all = address::from(server).word.iter().fold(0, |all, word| all ^ word.0);
    (all ^ all >> 16) as usize % MARKED_SERVERS as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_ports_are_as_packets_have_them() {
        let (client, server) = ("10.1.2.3:40000", "[2001:db8::7]:443");
        let both = connection::new(client.parse().unwrap(), server.parse().unwrap());
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];
        assert_eq!(both.client.as_bytes(), mapped);
        assert_eq!(both.client_port.as_bytes(), [0x9c, 0x40]);
        assert_eq!(both.client(), client.parse().unwrap());
        assert_eq!(both.server(), server.parse().unwrap());
    }

    #[test]
    fn an_ipv4_prefix_is_counted_in_the_bits_of_ipv6() {
        let prefix = prefix::from("10.1.2.3/8".parse::<IpNet>().unwrap());
        assert_eq!(prefix.bits, 104);
        assert_eq!(IpAddr::from(prefix.address), "10.0.0.0".parse::<IpAddr>().unwrap());
        for net in ["10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/32"] {
            let net: IpNet = net.parse().unwrap();
            assert_eq!(prefix::from(net).to_net(), Some(net));
        }
    }

    #[test]
    fn servers_are_judged_by_the_prefix_that_networks_announce() {
        let network_of =
            |server: &str| IpAddr::from(network_of(server.parse().unwrap())).to_string();
        assert_eq!(network_of("10.1.2.3"), "10.1.2.0");
        assert_eq!(network_of("2001:db8:1:2::3"), "2001:db8:1::");
    }
}
