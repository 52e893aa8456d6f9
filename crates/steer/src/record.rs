//! What the maps hold, as bytes: the layouts of `bpf/record.h`.

use std::net::IpAddr;

use ipnet::IpNet;

/// `struct settings`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settings {
    pub(crate) pass_dscp: u64,
    pub(crate) patience_ns: u64,
    pub(crate) bank: u32,
    pub(crate) workers: u32,
    pub(crate) mark: u32,
    pub(crate) holdout: u32,
    pub(crate) seed: u32,
    pub(crate) half_open: u32,
    pub(crate) syn_rate: u32,
    pub(crate) syn_burst: u32,
}

impl Settings {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let long = [self.pass_dscp, self.patience_ns];
        let short = [
            self.bank,
            self.workers,
            self.mark,
            self.holdout,
            self.seed,
            self.half_open,
            self.syn_rate,
            self.syn_burst,
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
}

impl Worker {
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.beat_ns.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.room.to_ne_bytes());
        bytes[12..].copy_from_slice(&u32::from(self.open).to_ne_bytes());
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

/// `struct prefix`.
pub(crate) fn prefix(prefix: IpNet) -> [u8; 20] {
    let bits = u32::from(prefix.prefix_len()) + if prefix.addr().is_ipv4() { 96 } else { 0 };
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&bits.to_ne_bytes());
    bytes[4..].copy_from_slice(&address(prefix.network()));
    bytes
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn an_ipv4_prefix_is_counted_in_the_bits_of_ipv6() {
        let bytes = prefix("10.1.2.3/8".parse().unwrap());
        assert_eq!(bytes[..4], 104u32.to_ne_bytes());
        assert_eq!(bytes[4..], "::ffff:10.0.0.0".parse::<Ipv6Addr>().unwrap().octets());
    }
}
