//! What a client's SYN says that the kernel does not tell otherwise, or not as cheaply.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The SYN that opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SynOptions {
    /// Whom it is for. None if it does not say all that an address has, which is so within a link
    /// (RFC 4007, 6).
    pub server: Option<SocketAddr>,
    /// Its sequence number. None if the kernel has not kept it, as of a connection established by a cookie.
    pub sequence: Option<u32>,
    /// Code point of its packet.
    pub dscp: u8,
    /// It offers MPTCP (RFC 8684).
    pub mptcp: bool,
    /// It asks for a TCP Fast Open cookie, or has one (RFC 7413).
    pub fast_open: bool,
    /// It carries data.
    pub data: bool,
    /// It has an option that is none of the above, and none that each leg negotiates for itself.
    pub other: bool,
}

/// Of the longest headers: IPv6 with as many extensions as any network lets pass, and TCP.
pub(crate) const LONGEST: usize = 512;

/// TCP options (RFC 9293, 3.2, and IANA's registry).
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOTHING: u8 = 1;
    pub(super) const MAX_SEGMENT: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const TIMESTAMPS: u8 = 8;
    pub(super) const MPTCP: u8 = 30;
    pub(super) const FAST_OPEN: u8 = 34;
}

const TCP: u8 = 6;

impl SynOptions {
    /// From the headers of IP and TCP. What is cut short says nothing.
    pub fn of(headers: &[u8]) -> SynOptions {
        Self::parse(headers).unwrap_or_default()
    }

    fn parse(headers: &[u8]) -> Option<SynOptions> {
        let (traffic_class, end, tcp, server) = match headers.first()? >> 4 {
            4 => {
                let length = usize::from(headers[0] & 15) * 4;
                let server: [u8; 4] = headers.get(16..20)?.try_into().ok()?;
                let server = Some(IpAddr::from(Ipv4Addr::from(server)));
                (headers[1], pair_at(headers, 2)?.into(), headers.get(length..)?, server)
            }
            6 => {
                let class = u16::from_be_bytes([headers[0], *headers.get(1)?]) >> 4;
                let server: [u8; 16] = headers.get(24..40)?.try_into().ok()?;
                let server = Ipv6Addr::from(server);
                let server = (!server.is_unicast_link_local()).then_some(server.into());
                let tcp = behind_extensions(headers[6], headers.get(40..)?)?;
                (class as u8, 40 + usize::from(pair_at(headers, 4)?), tcp, server)
            }
            _ => return None,
        };
        let port = pair_at(tcp, 2)?;
        let server = server.map(|address| SocketAddr::new(address, port));
        let sequence = u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?);
        let mut syn = SynOptions {
            server,
            sequence: Some(sequence),
            dscp: traffic_class >> 2,
            ..SynOptions::default()
        };
        let length = usize::from(tcp.get(12)? >> 4) * 4;
        syn.data = end > headers.len() - tcp.len() + length;
        for kind in Options(tcp.get(20..length)?) {
            match kind {
                kind::NOTHING
                | kind::MAX_SEGMENT
                | kind::WINDOW_SCALE
                | kind::SACK_PERMITTED
                | kind::TIMESTAMPS => {}
                kind::MPTCP => syn.mptcp = true,
                kind::FAST_OPEN => syn.fast_open = true,
                _ => syn.other = true,
            }
        }
        Some(syn)
    }
}

/// Two bytes of a header: a length, or a port.
fn pair_at(header: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*header.get(offset)?, *header.get(offset + 1)?]))
}

/// The TCP header behind IPv6's extension headers (RFC 8200, 4).
fn behind_extensions(mut next: u8, mut headers: &[u8]) -> Option<&[u8]> {
    while next != TCP {
        next = *headers.first()?;
        let length = usize::from(*headers.get(1)?) * 8 + 8;
        headers = headers.get(length..)?;
    }
    Some(headers)
}

/// The kinds of a TCP header's options, up to the end or the first that is malformed.
struct Options<'a>(&'a [u8]);

impl Iterator for Options<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let kind = *self.0.first()?;
        let length = match kind {
            kind::END => return None,
            kind::NOTHING => 1,
            _ => usize::from(*self.0.get(1)?).max(2),
        };
        self.0 = self.0.get(length..)?;
        Some(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    const IPV4: &str = "45b8 003c 2bff 4000 4006 1093 7f00 0001 7f00 0001";
    const TCP: &str = "c766 b835 2f9b 7208 0000 0000 a002 ffd7 fe30 0000";
    /// MSS, SACK permitted, timestamps, nothing, window scale: what every system sends.
    const USUAL: &str = "0204 ffd7 0402 080a dbd7 0715 0000 0000 0103 030a";

    #[test]
    fn reads_both_versions() {
        let v4 = bytes(&[IPV4, TCP, USUAL].concat());
        let server = |address: &str| Some(address.parse().unwrap());
        let usual = SynOptions {
            dscp: 46,
            server: server("127.0.0.1:47157"),
            sequence: Some(0x2f9b_7208),
            ..SynOptions::default()
        };
        assert_eq!(SynOptions::of(&v4), usual);
        // One more byte than there are headers.
        let mut longer = v4.clone();
        longer[3] += 1;
        assert_eq!(SynOptions::of(&longer), SynOptions { data: true, ..usual });
        // With a hop-by-hop and a destination header.
        let v6 = "6b80 0000 0038 0040 00000000000000000000000000000001 \
            00000000000000000000000000000001 3c00 0104 0000 0000 0600 0104 0000 0000";
        let v6 = bytes(&[v6, TCP, USUAL].concat());
        let usual = SynOptions { server: server("[::1]:47157"), ..usual };
        assert_eq!(SynOptions::of(&v6), usual);
        let mut longer = v6.clone();
        longer[5] += 1;
        assert_eq!(SynOptions::of(&longer), SynOptions { data: true, ..usual });
        // Whose link is not in it.
        let mut local = v6.clone();
        (local[24], local[25]) = (0xfe, 0x80);
        assert_eq!(SynOptions::of(&local), SynOptions { server: None, ..usual });
    }

    #[test]
    fn tells_options_apart() {
        let options = |hex: &str| {
            let mut headers = bytes(&[IPV4, TCP, hex].concat());
            headers[32] = ((headers.len() - 20) as u8 / 4) << 4;
            let SynOptions { mptcp, fast_open, other, .. } = SynOptions::of(&headers);
            (mptcp, fast_open, other)
        };
        assert_eq!(options("1e04 0101"), (true, false, false));
        assert_eq!(options("2202 0101"), (false, true, false));
        // An MD5 signature, whose length is wrong: what is behind it cannot be known.
        assert_eq!(options("1312 0101"), (false, false, false));
        assert_eq!(options("0101 fd04 0000 0000"), (false, false, true));
        // Behind the end there is nothing.
        assert_eq!(options("0204 05b4 0022 0201"), (false, false, false));
    }

    proptest! {
        #[test]
        fn no_headers_are_too_strange(mut headers in prop::collection::vec(any::<u8>(), 0..200)) {
            SynOptions::of(&headers);
            if let Some(first) = headers.first_mut() {
                *first = 0x45;
            }
            SynOptions::of(&headers);
            if headers.len() > 6 {
                (headers[0], headers[6]) = (0x60, 0);
            }
            SynOptions::of(&headers);
        }
    }
}
