use core::net::{IpAddr, Ipv6Addr};
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Somebody or something that is told apart from others, and nothing else of it. Written as hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u128);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = u128::from_str_radix(&text, 16);
        number.map(Id).map_err(|_| {
            de::Error::invalid_value(de::Unexpected::Str(&text), &"up to 32 hexadecimal digits")
        })
    }
}

/// Where a transfer belongs: what is decided for one place holds for all of its transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The clients that are treated alike, such as those behind one gateway.
    pub group: Id,
    /// The service, such as the servers of one network prefix.
    pub service: Id,
    /// The wider prefix, or the operator, to which the service belongs. A service always has the same.
    pub prefix: Id,
}

impl Id {
    /// That of an address, IPv4 as IPv4-mapped IPv6 (RFC 4291, 2.5.5.2).
    pub const fn of_address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Id(v4.to_ipv6_mapped().to_bits()),
            IpAddr::V6(v6) => Id(v6.to_bits()),
        }
    }

    /// That of the network of a server, as networks are announced: a /24, or a /48 of IPv6.
    pub const fn of_network(server: IpAddr) -> Self {
        let hosts = match server {
            IpAddr::V4(_) => 32 - Id::NETWORK_V4,
            IpAddr::V6(_) => 128 - Id::NETWORK_V6,
        };
        Id(Id::of_address(server).0 >> hosts << hosts)
    }

    /// How many bits name the [network](Id::of_network) of an IPv4 server.
    pub const NETWORK_V4: u8 = 24;
    /// How many of an IPv6 one.
    pub const NETWORK_V6: u8 = 48;

    /// The address, or the first one of the network, that it is of.
    pub const fn to_address(self) -> IpAddr {
        Ipv6Addr::from_bits(self.0).to_canonical()
    }
}

/// What was done with a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// It went over two connections.
    Split,
    /// It passed as it came.
    Unsplit,
}

/// Transfers of about one size, by decades of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeClass {
    /// Less than 10 kB, which fit into an initial window.
    Below10Kb,
    /// Less than 100 kB.
    Below100Kb,
    /// Less than 1 MB.
    Below1Mb,
    /// Less than 10 MB.
    Below10Mb,
    /// 10 MB and more.
    Larger,
}

impl SizeClass {
    /// All of them, from small to large.
    pub const ALL: [SizeClass; 5] = [
        SizeClass::Below10Kb,
        SizeClass::Below100Kb,
        SizeClass::Below1Mb,
        SizeClass::Below10Mb,
        SizeClass::Larger,
    ];

    /// That of a transfer of `bytes`.
    pub const fn of(bytes: u64) -> Self {
        match bytes {
            0..10_000 => SizeClass::Below10Kb,
            10_000..100_000 => SizeClass::Below100Kb,
            100_000..1_000_000 => SizeClass::Below1Mb,
            1_000_000..10_000_000 => SizeClass::Below10Mb,
            _ => SizeClass::Larger,
        }
    }

    /// Position among [all](SizeClass::ALL).
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// A size in the middle of it, in bytes.
    pub(crate) const fn middle(self) -> f64 {
        [3e3, 3e4, 3e5, 3e6, 3e7][self.index()]
    }
}

/// One transfer that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Where it belongs.
    pub place: Place,
    /// Whose it was. The transfers of one subscriber within one slot and place are given one arm, and may have anything
    /// to do with each other; different subscribers' arms are drawn independently.
    pub subscriber: Id,
    /// The slot of time in which it began, and for which its arm was drawn.
    pub slot: u64,
    /// What was done with it.
    pub arm: Arm,
    /// The probability with which it was given this arm: 0.0001 to 0.9999.
    pub probability: f64,
    /// Payload, both ways, in bytes.
    pub bytes: u64,
    /// The round trip of connecting, in seconds. Must be one that splitting cannot change, or each arm would be excused
    /// by itself.
    pub connect_rtt: f64,
    /// From its first SYN until its last byte was acknowledged, in seconds. Of one that has not ended when its slot is
    /// closed, the time until then, so that slow ones are not missing.
    pub completion: f64,
}

/// Why an [`Observation`] is not taken.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Refused {
    /// The probability is none, or leaves next to no other arm to compare with.
    #[error("a transfer's arm with probability {0}: must be 0.0001 to 0.9999")]
    Probability(f64),
    /// The round trip is no time.
    #[error("a transfer with a round trip of {0} s: must be above 0 and finite")]
    ConnectRtt(f64),
    /// The time until completion is no time.
    #[error("a transfer that took {0} s: must be above 0 and finite")]
    Completion(f64),
}

impl Observation {
    /// # Errors
    /// When no such transfer can have been.
    pub fn check(&self) -> Result<(), Refused> {
        let is_time = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        if !(1e-4..=1.0 - 1e-4).contains(&self.probability) {
            return Err(Refused::Probability(self.probability));
        }
        if !is_time(self.connect_rtt) {
            return Err(Refused::ConnectRtt(self.connect_rtt));
        }
        if !is_time(self.completion) {
            return Err(Refused::Completion(self.completion));
        }
        Ok(())
    }

    pub(crate) fn class(&self) -> SizeClass {
        SizeClass::of(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_decades() {
        for (bytes, class) in [
            (0, SizeClass::Below10Kb),
            (9_999, SizeClass::Below10Kb),
            (10_000, SizeClass::Below100Kb),
            (999_999, SizeClass::Below1Mb),
            (1_000_000, SizeClass::Below10Mb),
            (u64::MAX, SizeClass::Larger),
        ] {
            assert_eq!(SizeClass::of(bytes), class, "{bytes}");
        }
        assert!(SizeClass::ALL.iter().enumerate().all(|(at, class)| class.index() == at));
    }

    #[test]
    fn an_id_is_of_an_address_or_of_its_network() {
        for (server, network) in [("192.0.2.7", "192.0.2.0"), ("2001:db8:1:2::3", "2001:db8:1::")] {
            let server: IpAddr = server.parse().unwrap();
            assert_eq!(Id::of_address(server).to_address(), server);
            assert_eq!(Id::of_network(server).to_address().to_string(), network);
        }
    }

    #[test]
    fn an_id_is_written_in_hexadecimal() {
        let text = serde_json::to_string(&Id(u128::MAX)).unwrap();
        assert_eq!(text, "\"ffffffffffffffffffffffffffffffff\"");
        assert_eq!(serde_json::from_str::<Id>(&text).unwrap(), Id(u128::MAX));
        assert!(serde_json::from_str::<Id>("\"-1\"").is_err());
    }
}
