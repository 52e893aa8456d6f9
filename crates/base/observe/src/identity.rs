//! What a connection is called wherever something is told of it, by whoever saw it.

use core::net::{IpAddr, SocketAddr};
use std::fmt;
use std::hash::Hasher;

use serde::{Serialize, Serializer};

use crate::naming::Naming;

/// What tells a connection from earlier and later ones between the same addresses and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Began {
    /// The sequence number of the SYN that the client opened it with: all who saw the SYN know it, and however soon a
    /// port is used again the next one has another (RFC 9293, 3.4.1; RFC 6528).
    With(u32),
    /// When it was taken, in nanoseconds of a clock that does not go back, by who did not see the SYN.
    At(u64),
}

/// What a connection is called: a hash of its addresses, ports and beginning, under the key of the pseudonyms if there
/// is one. Written as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowId(pub u64);

impl Naming {
    /// What the connection between these ends is called. Who has not got the key learns nothing of the ends from it,
    /// not even whether two connections have one in common.
    pub fn identify(&self, client: SocketAddr, server: SocketAddr, began: Began) -> FlowId {
        let mut hasher = self.hasher();
        for end in [client, server] {
            let address = match end.ip() {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            hasher.write(&address.octets());
            hasher.write(&end.port().to_be_bytes());
        }
        let (kind, number) = match began {
            Began::With(sequence) => (0, u64::from(sequence)),
            Began::At(nanos) => (1, nanos),
        };
        hasher.write(&[kind]);
        hasher.write(&number.to_be_bytes());
        FlowId(hasher.finish())
    }
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for FlowId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::naming::PseudonymKey;

    fn end((address, port): (u128, u16)) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::from_bits(address).into(), port)
    }

    #[test]
    fn both_ways_to_write_an_address_are_one() {
        let client = "10.0.0.1:4000".parse().unwrap();
        let mapped = "[::ffff:10.0.0.1]:4000".parse().unwrap();
        let server = "192.0.2.1:443".parse().unwrap();
        let of = |client| Naming::Plain.identify(client, server, Began::With(7));
        assert_eq!(of(client), of(mapped));
        assert_ne!(of(client), Naming::Plain.identify(server, client, Began::With(7)));
        assert_ne!(of(client), Naming::Plain.identify(client, server, Began::At(7)));
    }

    proptest! {
        #[test]
        fn an_id_is_the_connections_and_the_keys(
            client in any::<(u128, u16)>(),
            server in any::<(u128, u16)>(),
            others in any::<((u128, u16), (u128, u16), u32, [u8; 16])>(),
            sequence in any::<u32>(),
            key in any::<[u8; 16]>(),
        ) {
            let naming = |key| Naming::Pseudonym(PseudonymKey::new(key));
            let of = |key, client, server, sequence| {
                naming(key).identify(end(client), end(server), Began::With(sequence))
            };
            let id = of(key, client, server, sequence);
            prop_assert_eq!(id, of(key, client, server, sequence));
            prop_assert_eq!(id == of(key, others.0, server, sequence), client == others.0);
            prop_assert_eq!(id == of(key, client, others.1, sequence), server == others.1);
            prop_assert_eq!(id == of(key, client, server, others.2), sequence == others.2);
            prop_assert_eq!(id == of(others.3, client, server, sequence), key == others.3);
            // A subscriber's name says nothing of it.
            prop_assert_ne!(format!("sub-{id}"), naming(key).of(end(client)).to_string());
        }
    }
}
