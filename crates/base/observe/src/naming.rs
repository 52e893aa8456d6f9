//! What a subscriber is called where people may look: a pseudonym, unless the operator wants more.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use siphasher::sip::SipHasher24;

/// What tells subscribers apart: an IPv4 address, or a /64 of IPv6, which one subscriber has
/// (RFC 7278).
pub fn subscriber(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

/// How subscribers are shown.
#[derive(Debug, Clone)]
pub enum Naming {
    /// By a keyed hash of their address: the same subscriber has the same name for as long as the
    /// key stays, and who has not got the key learns neither the address nor the port.
    Pseudonym(PseudonymKey),
    /// By address and port.
    Plain,
}

impl Naming {
    /// What the subscriber behind a connection's client is called.
    pub fn of(&self, client: SocketAddr) -> ClientName {
        match self {
            Naming::Pseudonym(key) => ClientName::Pseudonym(key.hash(subscriber(client.ip()))),
            Naming::Plain => ClientName::Plain(client),
        }
    }

    /// What is secret under the key. In plain nothing is.
    pub(crate) fn hasher(&self) -> SipHasher24 {
        match self {
            Naming::Pseudonym(key) => SipHasher24::new_with_key(&key.0),
            Naming::Plain => SipHasher24::new(),
        }
    }
}

/// The key of the pseudonyms. With it an IPv4 subscriber is found by trying all addresses: it is as
/// secret as a list of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PseudonymKey([u8; 16]);

impl PseudonymKey {
    /// From random bytes.
    pub const fn new(random: [u8; 16]) -> Self {
        PseudonymKey(random)
    }

    /// SipHash-2-4 (Aumasson and Bernstein, 2012), which is made to be a pseudorandom function of
    /// short inputs under a secret key.
    fn hash(&self, subscriber: IpAddr) -> u64 {
        let bits = match subscriber {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&bits.octets());
        hasher.finish()
    }

    /// As a key file has it: 32 hexadecimal digits.
    pub fn to_text(&self) -> String {
        format!("{:032x}\n", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for PseudonymKey {
    /// It stays a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PseudonymKey")
    }
}

impl FromStr for PseudonymKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let digits = text.trim();
        let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let key = u128::from_str_radix(digits, 16).ok().filter(|_| is_hex).ok_or(KeyError)?;
        Ok(PseudonymKey(key.to_be_bytes()))
    }
}

/// Text that is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyError;

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must hold a key of 32 hexadecimal digits (`openssl rand -hex 16` makes one)")
    }
}

impl std::error::Error for KeyError {}

/// What a client is called. Written `sub-` and 16 hexadecimal digits, or as an address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientName {
    /// A subscriber, without saying which.
    Pseudonym(u64),
    /// An address and port, as the operator wants it.
    Plain(SocketAddr),
}

const PREFIX: &str = "sub-";

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientName::Pseudonym(hash) => write!(f, "{PREFIX}{hash:016x}"),
            ClientName::Plain(client) => client.fmt(f),
        }
    }
}

impl Serialize for ClientName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ClientName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let name = match text.strip_prefix(PREFIX) {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(ClientName::Pseudonym),
            None => text.parse().ok().map(ClientName::Plain),
        };
        name.ok_or_else(|| de::Error::custom(format!("`{text}` is no client's name")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "000102030405060708090a0b0c0d0e0f";

    fn pseudonyms(key: &str) -> Naming {
        Naming::Pseudonym(key.parse().unwrap())
    }

    #[test]
    fn the_hash_is_siphash_2_4() {
        // The vector of the paper's appendix A has 15 bytes of input; here it is 16, from the
        // authors' own list (vectors.h, the entry of length 16).
        let key: PseudonymKey = KEY.parse().unwrap();
        let address =
            IpAddr::V6(Ipv6Addr::from([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]));
        assert_eq!(
            key.hash(address).to_le_bytes(),
            [0xdb, 0x9b, 0xc2, 0x57, 0x7f, 0xcc, 0x2a, 0x3f]
        );
    }

    #[test]
    fn a_subscriber_of_ipv6_is_a_64() {
        let client = "2001:db8:1:2:3:4:5:6".parse().unwrap();
        assert_eq!(subscriber(client), "2001:db8:1:2::".parse::<IpAddr>().unwrap());
        let naming = pseudonyms(KEY);
        let of = |text: &str| naming.of(text.parse().unwrap());
        assert_eq!(of("[2001:db8:1:2::5]:1"), of("[2001:db8:1:2:9::7]:2"));
        assert_ne!(of("[2001:db8:1:2::5]:1"), of("[2001:db8:1:3::5]:1"));
    }

    #[test]
    fn a_key_that_is_none_is_refused() {
        for wrong in
            ["", "1234", "+0102030405060708090a0b0c0d0e0f0", "g00102030405060708090a0b0c0d0e0f"]
        {
            assert_eq!(wrong.parse::<PseudonymKey>(), Err(KeyError), "{wrong}");
        }
        let key: PseudonymKey = KEY.parse().unwrap();
        assert_eq!(key.to_text().parse(), Ok(key));
    }

    proptest! {
        #[test]
        fn a_pseudonym_is_the_subscribers_and_the_keys(
            v4 in any::<u32>(),
            other in any::<u32>(),
            ports in any::<(u16, u16)>(),
            keys in any::<([u8; 16], [u8; 16])>(),
        ) {
            let client = |bits: u32, port| SocketAddr::new(IpAddr::V4(bits.into()), port);
            let naming = Naming::Pseudonym(PseudonymKey::new(keys.0));
            let name = naming.of(client(v4, ports.0));
            prop_assert_eq!(name, naming.of(client(v4, ports.1)));
            prop_assert_eq!(name == naming.of(client(other, ports.0)), v4 == other);
            let changed = Naming::Pseudonym(PseudonymKey::new(keys.1)).of(client(v4, ports.0));
            prop_assert_eq!(name == changed, keys.0 == keys.1);
            // Nothing of the address is in it, in whatever form.
            prop_assert!(!name.to_string().contains(&client(v4, 0).ip().to_string()));
        }

        #[test]
        fn names_survive_their_text(hash in any::<u64>(), client in any::<(u128, u16)>()) {
            let v6 = SocketAddr::new(Ipv6Addr::from_bits(client.0).into(), client.1);
            for name in [ClientName::Pseudonym(hash), Naming::Plain.of(v6)] {
                let text = serde_json::to_string(&name).unwrap();
                prop_assert_eq!(serde_json::from_str::<ClientName>(&text).unwrap(), name);
            }
        }
    }
}
