//! The PROXY protocol, versions 1 and 2: a header by which a proxy tells whose connection it passes on.
//!
//! Source: "The PROXY protocol, versions 1 & 2", `doc/proxy-protocol.txt` of HAProxy; the sections in
//! comments are its.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// A header's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// The ends of a connection that is passed on, both of one IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Who has connected.
    pub client: SocketAddr,
    /// To whom.
    pub server: SocketAddr,
}

/// What a connection begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Of the header, in bytes.
    pub length: usize,
    /// None if they are those of the connection itself: it is the sender's own (LOCAL), or what is
    /// told is not the ends of a TCP connection (UNKNOWN, UNSPEC, UDP, UNIX).
    pub ends: Option<Ends>,
}

/// No header, or none as the specification has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The longest header that is taken. Addresses need 232 bytes at most; the rest is for what else a
/// sender may tell (TLV), such as a TLS client's name.
pub const LONGEST: usize = 4096;

/// Section 2.1: the worst case, with the end of the line.
const LONGEST_LINE: usize = 107;
const LINE: &[u8] = b"PROXY ";
/// Section 2.2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, and length of what follows.
const FIXED: usize = 16;
/// PP2_TYPE_CRC32C
const CRC32C: u8 = 0x03;

/// Reads the header at the beginning of what a connection has sent so far; none if that is only a
/// part, which is so for less than [`LONGEST`] bytes.
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    if begins_with(bytes, LINE) {
        parse_line(bytes)
    } else if begins_with(bytes, SIGNATURE) {
        parse_binary(bytes)
    } else {
        Err(Malformed)
    }
}

/// As far as can be seen.
fn begins_with(bytes: &[u8], start: &[u8]) -> bool {
    let seen = bytes.len().min(start.len());
    bytes[..seen] == start[..seen]
}

/// Section 2.1.
fn parse_line(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let seen = &bytes[..bytes.len().min(LONGEST_LINE)];
    let Some(end) = seen.windows(2).position(|pair| pair == b"\r\n") else {
        return if seen.len() < LONGEST_LINE { Ok(None) } else { Err(Malformed) };
    };
    let length = end + 2;
    let line = seen.get(LINE.len()..end).ok_or(Malformed)?;
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        return Ok(Some(Header { length, ends: None }));
    }
    let line = std::str::from_utf8(line).map_err(|_| Malformed)?;
    let words: Vec<&str> = line.splitn(6, ' ').collect();
    let &[family, client, server, client_port, server_port] = words.as_slice() else {
        return Err(Malformed);
    };
    let address = |text: &str| match family {
        "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
        // The form with an IPv4 address at its end is none of the protocol's.
        "TCP6" if !text.contains('.') => text.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        _ => None,
    };
    let end = |host, port| Some(SocketAddr::new(address(host)?, number(port)?));
    match (end(client, client_port), end(server, server_port)) {
        (Some(client), Some(server)) => {
            Ok(Some(Header { length, ends: Some(Ends { client, server }) }))
        }
        _ => Err(Malformed),
    }
}

/// A port in decimal digits, without zeroes in front.
fn number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits && (text == "0" || !text.starts_with('0')) { text.parse().ok() } else { None }
}

/// Section 2.2.
fn parse_binary(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    const LOCAL: u8 = 0x20;
    const PROXY: u8 = 0x21;
    const STREAM: u8 = 1;
    if bytes.get(SIGNATURE.len()).is_some_and(|command| ![LOCAL, PROXY].contains(command)) {
        return Err(Malformed);
    }
    let Some(&[.., command, kind, high, low]) = bytes.get(..FIXED) else {
        return Ok(None);
    };
    let length = FIXED + usize::from(u16::from_be_bytes([high, low]));
    if length > LONGEST {
        return Err(Malformed);
    }
    let (family, protocol) = (kind >> 4, kind & 15);
    // For LOCAL all of the rest is ignored, the family included.
    if command == PROXY && (family > 3 || protocol > 2) {
        return Err(Malformed);
    }
    let Some(told) = bytes.get(FIXED..length) else {
        return Ok(None);
    };
    let addresses = match (command, family) {
        (PROXY, 1) => Some(12),
        (PROXY, 2) => Some(36),
        (PROXY, 3) => Some(216),
        _ => None,
    };
    if let Some(tlvs) = addresses.and_then(|addresses| told.get(addresses..)) {
        check_tlvs(&bytes[..length], length - tlvs.len()).ok_or(Malformed)?;
    }
    let ends = match (command, family, protocol) {
        (PROXY, 1, STREAM) => Some(ends::<4>(told).ok_or(Malformed)?),
        (PROXY, 2, STREAM) => Some(ends::<16>(told).ok_or(Malformed)?),
        _ => None,
    };
    Ok(Some(Header { length, ends }))
}

/// Section 2.2: what begins at `at` of a header are TLVs up to its end, and a checksum among them (section
/// 2.2.3) is the header's. Other TLVs are skipped.
fn check_tlvs(header: &[u8], mut at: usize) -> Option<()> {
    let mut is_summed = false;
    while at < header.len() {
        let (&[kind, high, low], _) = header[at..].split_first_chunk()?;
        let value = at + 3..at + 3 + usize::from(u16::from_be_bytes([high, low]));
        at = value.end;
        let told = header.get(value.clone())?;
        if kind == CRC32C {
            let told = u32::from_be_bytes(told.try_into().ok()?);
            let zeroed = header.iter().enumerate();
            let zeroed = zeroed.map(|(at, byte)| if value.contains(&at) { 0 } else { *byte });
            if std::mem::replace(&mut is_summed, true) || crc32c(zeroed) != told {
                return None;
            }
        }
    }
    Some(())
}

/// RFC 4960, appendix B.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    /// Castagnoli's, bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    !bytes.fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (POLYNOMIAL * (sum & 1)))
    })
}

/// Addresses of `N` bytes, and ports; what follows is skipped.
fn ends<const N: usize>(told: &[u8]) -> Option<Ends>
where
    IpAddr: From<[u8; N]>,
{
    let (client, told) = told.split_first_chunk::<N>()?;
    let (server, told) = told.split_first_chunk::<N>()?;
    let (client_port, told) = told.split_first_chunk()?;
    let (server_port, _) = told.split_first_chunk()?;
    let end = |address: &[u8; N], port: &[u8; 2]| {
        SocketAddr::new(IpAddr::from(*address), u16::from_be_bytes(*port))
    };
    Some(Ends { client: end(client, client_port), server: end(server, server_port) })
}

impl Ends {
    /// The header that tells them.
    pub fn header(&self, version: ProxyVersion) -> Box<[u8]> {
        let Ends { client, server } = self;
        match version {
            ProxyVersion::V1 => {
                let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
                let (from, to) = (text(client.ip()), text(server.ip()));
                format!("PROXY {family} {from} {to} {} {}\r\n", client.port(), server.port())
                    .into_bytes()
                    .into()
            }
            ProxyVersion::V2 => {
                let mut told = Vec::with_capacity(FIXED + 36);
                told.extend(SIGNATURE);
                let (kind, length) = if client.is_ipv4() { (0x11, 12) } else { (0x21, 36) };
                told.extend([0x21, kind, 0, length]);
                for ip in [client.ip(), server.ip()] {
                    match ip {
                        IpAddr::V4(ip) => told.extend(ip.octets()),
                        IpAddr::V6(ip) => told.extend(ip.octets()),
                    }
                }
                for port in [client.port(), server.port()] {
                    told.extend(port.to_be_bytes());
                }
                told.into()
            }
        }
    }
}

/// As version 1 has it: without the form that ends in an IPv4 address.
fn text(ip: IpAddr) -> String {
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            let [.., high, low] = v6.segments();
            format!("::ffff:{high:x}:{low:x}")
        }
        _ => ip.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(client: &str, server: &str) -> Option<Ends> {
        Some(Ends { client: client.parse().unwrap(), server: server.parse().unwrap() })
    }

    fn whole(bytes: &[u8]) -> Option<Ends> {
        let header = parse(bytes).unwrap().unwrap();
        assert_eq!(header.length, bytes.len());
        header.ends
    }

    #[test]
    fn reads_the_lines_of_the_specification() {
        assert_eq!(
            whole(b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"),
            of("192.168.0.1:56324", "192.168.0.11:443")
        );
        assert_eq!(
            whole(b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n"),
            of("255.255.255.255:65535", "255.255.255.255:65535")
        );
        let ones = "ffff:ffff:ffff:ffff:FFFF:ffff:ffff:ffff";
        assert_eq!(
            whole(format!("PROXY TCP6 {ones} ::1 65535 0\r\n").as_bytes()),
            of(&format!("[{ones}]:65535"), "[::1]:0")
        );
        assert_eq!(whole(b"PROXY UNKNOWN\r\n"), None);
        let worst = format!("PROXY UNKNOWN {ones} {ones} 65535 65535\r\n");
        assert_eq!(worst.len(), LONGEST_LINE);
        assert_eq!(whole(worst.as_bytes()), None);
        // What follows is the client's.
        let request = b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\nGET / HTTP/1.1\r\n";
        assert_eq!(parse(request).unwrap().unwrap().length, 34);
    }

    #[test]
    fn refuses_what_is_not_exactly_a_line() {
        for line in [
            "GET / HTTP/1.1\r\n",
            "proxy TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
            "PROXY  TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1 2 \r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1 2 3\r\n",
            "PROXY TCP4 10.0.0.1  10.0.0.2 1 2\r\n",
            "PROXY TCP4 10.0.0.01 10.0.0.2 1 2\r\n",
            "PROXY TCP4 10.0.0 10.0.0.2 1 2\r\n",
            "PROXY TCP4 10.0.0.256 10.0.0.2 1 2\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 01 2\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 +1 2\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 65536 2\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2  2\r\n",
            "PROXY TCP4 ::1 ::2 1 2\r\n",
            "PROXY TCP6 10.0.0.1 10.0.0.2 1 2\r\n",
            "PROXY TCP6 ::ffff:10.0.0.1 ::2 1 2\r\n",
            "PROXY TCP6 ::1::2 ::2 1 2\r\n",
            "PROXY TCP6 1:2:3:4:5:6:7 ::2 1 2\r\n",
            "PROXY UDP4 10.0.0.1 10.0.0.2 1 2\r\n",
            "PROXY UNKNOWNS\r\n",
            "PROXY \r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1 2\n\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\r\n",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(Malformed), "{line:?}");
        }
        let endless = [LINE, &[b'U'; LONGEST_LINE]].concat();
        assert_eq!(parse(&endless), Err(Malformed));
        assert_eq!(parse(&endless[..LONGEST_LINE - 1]), Ok(None));
    }

    fn binary(command: u8, kind: u8, told: &[u8]) -> Vec<u8> {
        let length = (told.len() as u16).to_be_bytes();
        [SIGNATURE, &[command, kind], &length, told].concat()
    }

    #[test]
    fn reads_binary_headers() {
        let told = [10, 0, 0, 1, 10, 0, 0, 2, 0xdc, 4, 1, 0xbb];
        let ends = of("10.0.0.1:56324", "10.0.0.2:443");
        assert_eq!(whole(&binary(0x21, 0x11, &told)), ends);
        // With TLVs behind it, whatever they say.
        let tlvs = [&told[..], &[4, 0, 1, 9], &[0xe0, 0, 0], &[2, 0, 2, b'a', b'b']].concat();
        assert_eq!(whole(&binary(0x21, 0x11, &tlvs)), ends);
        let mut told = [0; 36];
        (told[15], told[31], told[33], told[35]) = (1, 2, 3, 4);
        assert_eq!(whole(&binary(0x21, 0x21, &told)), of("[::1]:3", "[::2]:4"));
        // Those whose ends are not told, or not for us.
        for kind in [0x00, 0x01, 0x10, 0x12, 0x22, 0x30, 0x31, 0x32] {
            assert_eq!(whole(&binary(0x21, kind, &[0; 216])), None, "{kind:#x}");
            assert_eq!(whole(&binary(0x21, kind, &[])), None, "{kind:#x}");
        }
        for kind in [0x00, 0x11, 0x21, 0xff] {
            assert_eq!(whole(&binary(0x20, kind, &told)), None);
            assert_eq!(whole(&binary(0x20, kind, &[])), None);
        }
    }

    #[test]
    fn refuses_what_is_no_binary_header() {
        for (command, kind, length) in [
            (0x11, 0x11, 12),
            (0x31, 0x11, 12),
            (0x22, 0x11, 12),
            (0x21, 0x41, 12),
            (0x21, 0x13, 12),
            (0x21, 0x11, 11),
            (0x21, 0x21, 35),
            (0x21, 0x11, LONGEST - FIXED + 1),
        ] {
            let header = binary(command, kind, &vec![0; length]);
            assert_eq!(parse(&header), Err(Malformed), "{command:#x} {kind:#x} {length}");
        }
        assert!(parse(&binary(0x21, 0x11, &vec![0; LONGEST - FIXED])).unwrap().is_some());
        // As soon as it can be seen, so that the sender may notice.
        assert_eq!(parse(b"\r\n\r\n\0\r\nQUIT\n\x22"), Err(Malformed));
        assert_eq!(parse(b"\r\n\r\r"), Err(Malformed));
    }

    /// A header with these TLVs behind a checksum of its own, which is off by `damage`.
    fn summed(ends: Ends, tlvs: &[u8], damage: u32) -> Vec<u8> {
        let mut header = ends.header(ProxyVersion::V2).to_vec();
        header.extend([CRC32C, 0, 4]);
        let at = header.len();
        header.extend([0; 4]);
        header.extend(tlvs);
        let length = (header.len() - FIXED) as u16;
        header[FIXED - 2..FIXED].copy_from_slice(&length.to_be_bytes());
        let sum = crc32c(header.iter().copied()) ^ damage;
        header[at..at + 4].copy_from_slice(&sum.to_be_bytes());
        header
    }

    #[test]
    fn refuses_tlvs_that_do_not_fill_the_header() {
        let told = [10, 0, 0, 1, 10, 0, 0, 2, 0xdc, 4, 1, 0xbb];
        for tlvs in [
            &[4][..],
            &[4, 0],
            &[4, 0, 1],
            &[4, 0, 200, 1],
            &[4, 0, 1, 9, 4],
            &[4, 0, 0, 0x20, 0xff, 0xff],
            // A checksum of another length.
            &[CRC32C, 0, 0],
            &[CRC32C, 0, 3, 0, 0, 0],
            &[CRC32C, 0, 5, 0, 0, 0, 0, 0],
        ] {
            for (kind, addresses) in [(0x11, 12), (0x12, 12), (0x21, 36), (0x31, 216)] {
                let told: Vec<u8> = told.iter().copied().cycle().take(addresses).collect();
                let header = binary(0x21, kind, &[&told, tlvs].concat());
                assert_eq!(parse(&header), Err(Malformed), "{kind:#x} {tlvs:?}");
                // Not before it is there.
                assert_eq!(parse(&header[..header.len() - 1]), Ok(None));
            }
            // Ignored, family and all; and of these it is not said where TLVs begin.
            assert_eq!(whole(&binary(0x20, 0x11, &[&told, tlvs].concat())), None);
            assert_eq!(whole(&binary(0x21, 0x00, tlvs)), None);
        }
    }

    #[test]
    fn a_checksum_is_that_of_the_header() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c([0; 32].into_iter()), 0x8a91_36aa);
        assert_eq!(crc32c(0..32), 0x46dd_794e);
        let ends = of("192.0.2.1:50000", "192.0.2.2:443").unwrap();
        let header = summed(ends, &[4, 0, 1, 9], 0);
        assert_eq!(whole(&header), Some(ends));
        assert_eq!(parse(&summed(ends, &[4, 0, 1, 9], 1)), Err(Malformed));
        // There is one at most.
        let second = summed(ends, &[CRC32C, 0, 4, 0, 0, 0, 0], 0);
        assert_eq!(parse(&second), Err(Malformed));
    }

    fn any_ends() -> impl Strategy<Value = Ends> {
        let ends = |(client, server, from, to)| Ends {
            client: SocketAddr::new(client, from),
            server: SocketAddr::new(server, to),
        };
        let v4 = || any::<Ipv4Addr>().prop_map(IpAddr::from);
        let v6 = || {
            let mapped = any::<Ipv4Addr>().prop_map(|v4| v4.to_ipv6_mapped());
            prop_oneof![any::<Ipv6Addr>(), mapped].prop_map(IpAddr::from)
        };
        prop_oneof![
            (v4(), v4(), any::<u16>(), any::<u16>()).prop_map(ends),
            (v6(), v6(), any::<u16>(), any::<u16>()).prop_map(ends),
        ]
    }

    fn version() -> impl Strategy<Value = ProxyVersion> {
        prop_oneof![Just(ProxyVersion::V1), Just(ProxyVersion::V2)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// What is written is read, whatever comes behind it, and no sooner than it is whole.
        #[test]
        fn headers_come_back(
            ends in any_ends(),
            version in version(),
            behind in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let header = ends.header(version);
            let expected = Header { length: header.len(), ends: Some(ends) };
            prop_assert_eq!(parse(&[&header, &behind[..]].concat()), Ok(Some(expected)));
            for part in 0..header.len() {
                prop_assert_eq!(parse(&header[..part]), Ok(None));
            }
        }

        /// TLVs that fill the header are taken, and with a checksum no damage of one is.
        #[test]
        fn checksums_tell_damage(
            ends in any_ends(),
            tlvs in prop::collection::vec(
                (any::<u8>(), prop::collection::vec(any::<u8>(), 0..20)), 0..5
            ),
            damage in (any::<prop::sample::Index>(), 1..=u8::MAX),
        ) {
            let tlvs: Vec<u8> = tlvs
                .into_iter()
                .filter(|&(kind, _)| kind != CRC32C)
                .flat_map(|(kind, value)| [vec![kind, 0, value.len() as u8], value].concat())
                .collect();
            let mut header = summed(ends, &tlvs, 0);
            prop_assert_eq!(whole(&header), Some(ends));
            let (index, by) = damage;
            // What is before the addresses, or makes the checksum another TLV, is another header.
            let addresses = if ends.client.is_ipv4() { 12 } else { 36 };
            let sum = FIXED + addresses..FIXED + addresses + 3;
            let index = FIXED + index.index(header.len() - FIXED);
            prop_assume!(!sum.contains(&index));
            header[index] ^= by;
            prop_assert_eq!(parse(&header), Err(Malformed));
        }

        /// Of a damaged header, byte by byte as it comes in: it is refused for good or taken, within the
        /// longest length, and what is taken lies within what has come.
        #[test]
        fn damage_is_survived(
            ends in any_ends(),
            version in version(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            behind in prop::collection::vec(any::<u8>(), 0..5000),
        ) {
            let mut bytes = ends.header(version).to_vec();
            bytes.extend(behind);
            for (index, byte) in damage {
                let index = index.index(bytes.len().min(60));
                bytes[index] = byte;
            }
            let mut last = Ok(None);
            for length in 0..=bytes.len() {
                let now = parse(&bytes[..length]);
                match (last, now) {
                    (Ok(None), Ok(Some(header))) => prop_assert!(header.length == length),
                    (Ok(None), _) => {}
                    (last, now) => prop_assert_eq!(last, now),
                }
                last = now;
            }
            prop_assert!(bytes.len() < LONGEST || last != Ok(None));
        }

        #[test]
        fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 14..200)) {
            prop_assert_eq!(parse(&bytes), Err(Malformed));
        }
    }
}
