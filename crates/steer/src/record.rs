//! What the maps hold, as bytes: the layouts of `bpf/record.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

/// Relays that may be registered at a time.
pub(crate) const BANKS: usize = 2;

/// `struct settings`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Settings {
    pub(crate) pass_dscp: u64,
    pub(crate) patience_ns: u64,
    pub(crate) bank: u32,
    pub(crate) workers: [u32; BANKS],
    pub(crate) mark: u32,
    pub(crate) holdout: u32,
    pub(crate) seed: u32,
    pub(crate) half_open: u32,
    pub(crate) syn_rate: u32,
    pub(crate) syn_burst: u32,
    pub(crate) translates: u32,
    pub(crate) syn_cookies: u32,
    pub(crate) consults: u32,
    pub(crate) rules: u32,
    pub(crate) injector: u32,
    pub(crate) by_loopback: u32,
    pub(crate) suspended: u32,
}

impl Settings {
    /// As the map holds them; none if it holds something else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Settings> {
        let long = |at: usize| bytes.get(at..)?.first_chunk().map(|b| u64::from_ne_bytes(*b));
        let short =
            |at: usize| bytes.get(16 + 4 * at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b));
        Some(Settings {
            pass_dscp: long(0)?,
            patience_ns: long(8)?,
            bank: short(0)?,
            workers: [short(1)?, short(2)?],
            mark: short(3)?,
            holdout: short(4)?,
            seed: short(5)?,
            half_open: short(6)?,
            syn_rate: short(7)?,
            syn_burst: short(8)?,
            translates: short(9)?,
            syn_cookies: short(10)?,
            consults: short(11)?,
            rules: short(12)?,
            injector: short(13)?,
            by_loopback: short(14)?,
            suspended: short(15)?,
        })
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let long = [self.pass_dscp, self.patience_ns];
        let short = [
            self.bank,
            self.workers[0],
            self.workers[1],
            self.mark,
            self.holdout,
            self.seed,
            self.half_open,
            self.syn_rate,
            self.syn_burst,
            self.translates,
            self.syn_cookies,
            self.consults,
            self.rules,
            self.injector,
            self.by_loopback,
            self.suspended,
        ];
        let long = long.into_iter().flat_map(u64::to_ne_bytes);
        long.chain(short.into_iter().flat_map(u32::to_ne_bytes)).collect()
    }
}

/// `struct worker`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Worker {
    pub(crate) beat_ns: u64,
    pub(crate) room: u32,
    pub(crate) open: bool,
    pub(crate) flows: u32,
}

impl Worker {
    pub(crate) fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.beat_ns.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.room.to_ne_bytes());
        bytes[12..16].copy_from_slice(&u32::from(self.open).to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.flows.to_ne_bytes());
        bytes
    }
}

/// `struct address`.
pub(crate) fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// `struct connection`.
pub(crate) fn connection(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(36);
    bytes.extend(address(client.ip()));
    bytes.extend(address(server.ip()));
    bytes.extend(client.port().to_be_bytes());
    bytes.extend(server.port().to_be_bytes());
    bytes
}

/// `struct service`.
pub(crate) fn service(server: SocketAddr) -> Vec<u8> {
    let mut bytes = address(server.ip()).to_vec();
    bytes.extend(server.port().to_be_bytes());
    bytes.extend([0; 2]);
    bytes
}

/// `struct prefix`.
pub(crate) fn prefix(prefix: IpNet) -> [u8; 20] {
    let bits = u32::from(prefix.prefix_len()) + if prefix.addr().is_ipv4() { 96 } else { 0 };
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&bits.to_ne_bytes());
    bytes[4..].copy_from_slice(&address(prefix.network()));
    bytes
}

/// The prefix of servers that a server's way back is judged with: a /24, or a /48 of IPv6. As
/// `route_of` of the program.
pub(crate) fn route(server: IpAddr) -> [u8; 16] {
    address(match server {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() >> 8 << 8).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 80 << 80).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_as_they_were_written() {
        let settings = Settings {
            pass_dscp: 1 << 46,
            patience_ns: 5,
            bank: 1,
            workers: [2, 3],
            mark: 0x4d53,
            holdout: 7,
            seed: 8,
            half_open: 9,
            syn_rate: 10,
            syn_burst: 11,
            translates: 1,
            syn_cookies: 1,
            consults: 1,
            rules: 12,
            injector: 13,
            by_loopback: 1,
            suspended: 2,
        };
        assert_eq!(Settings::from_bytes(&settings.to_bytes()), Some(settings));
        assert_eq!(Settings::from_bytes(&[0; 8]), None);
    }

    #[test]
    fn an_ipv4_prefix_is_counted_in_the_bits_of_ipv6() {
        let bytes = prefix("10.1.2.3/8".parse().unwrap());
        assert_eq!(bytes[..4], 104u32.to_ne_bytes());
        assert_eq!(bytes[4..], "::ffff:10.0.0.0".parse::<Ipv6Addr>().unwrap().octets());
    }

    #[test]
    fn servers_are_judged_by_the_prefix_that_networks_announce() {
        assert_eq!(route("10.1.2.3".parse().unwrap()), address("10.1.2.0".parse().unwrap()));
        let server = "2001:db8:1:2::3".parse().unwrap();
        assert_eq!(route(server), address("2001:db8:1::".parse().unwrap()));
    }
}
