//! Which connections are split.

use std::fmt;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use midspan_units::Span;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Config, DecideMode, Handshake};

/// Which of the clients' connections are split. Empty: all. Takes BPF.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// Prefixes within `clients` that are left alone. Of a prefix here and one of `clients`, the
    /// longer that holds an address decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_clients: Vec<IpNet>,
    /// Prefixes of servers to which connections are split; if there is any, others are left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub split_servers: Vec<IpNet>,
    /// Prefixes of servers to which connections are left alone. Of both kinds, the longest that
    /// holds an address decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_servers: Vec<IpNet>,
    /// Prefixes within `clients` whose connections are split only once their server has answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirm_clients: Vec<IpNet>,
    /// Prefixes of servers that are asked before their client is answered; the longest prefix of a
    /// server, of any kind, decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirm_servers: Vec<IpNet>,
    /// Ports of servers to which connections are split; if there is any, others are left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub split_ports: Vec<Ports>,
    /// Ports of servers to which connections are left alone, whatever `split_ports` says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_ports: Vec<Ports>,
    /// Code points (DSCP, 0 to 63) of connections that are left alone, as on their SYN.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_dscp: Vec<u8>,
    /// Of a thousand subscribers so many are left alone for a slot, for comparison.
    #[serde(default)]
    pub holdout: u32,
    /// How long a slot is. Zero: each new connection is drawn by itself. Absent: 10 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holdout_slot: Option<Span>,
}

const HOLDOUT_SLOT: Span = Span::from_secs(600);

impl PolicyConfig {
    pub(crate) fn first_fault(&self) -> Option<(&'static str, &'static str)> {
        if self.pass_dscp.iter().any(|point| *point > 63) {
            return Some(("pass_dscp", "must hold code points between 0 and 63"));
        }
        if self.holdout > 1000 {
            return Some(("holdout", "must be between 0 and 1000 (per mille)"));
        }
        let slots = Span::from_secs(1)..=Span::from_secs(86_400);
        let slot = self.slot();
        (slot != Span::ZERO && !slots.contains(&slot))
            .then_some(("holdout_slot", "must be 0 s, or between 1 s and 24 h"))
    }

    /// What does not go together with deciding by what was learned.
    pub(crate) fn fault_beside(&self, mode: DecideMode) -> Option<(&'static str, &'static str)> {
        if self.slot() == Span::ZERO {
            return Some(("holdout_slot", "must not be 0 s beside [decide], which goes by slots"));
        }
        match (mode, self.holdout) {
            (DecideMode::On, 1..) => {
                Some(("holdout", "must be 0 beside [decide], which leaves alone by itself"))
            }
            (DecideMode::DryRun, 0) => {
                Some(("holdout", "must be above 0 for a dry run of [decide], to learn from"))
            }
            _ => None,
        }
    }

    /// How long a slot is.
    pub fn slot(&self) -> Span {
        self.holdout_slot.unwrap_or(HOLDOUT_SLOT)
    }
}

impl Config {
    /// Whether it says that connections are split only once their server has answered.
    pub fn confirms(&self) -> bool {
        self.handshake.is_some_and(|when| when != Handshake::Early)
            || !self.policy.confirm_clients.is_empty()
            || !self.policy.confirm_servers.is_empty()
    }
}

/// A port or a range of ports: `443`, `"443"`, `"5060-5061"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(pub RangeInclusive<u16>);

impl Serialize for Ports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => serializer.serialize_u16(*first),
            (first, last) => serializer.collect_str(&format_args!("{first}-{last}")),
        }
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Ports;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port such as 443, or a range such as \"5060-5061\"")
            }

            fn visit_i64<E: de::Error>(self, port: i64) -> Result<Ports, E> {
                let port = u16::try_from(port).ok();
                let wrong = || E::invalid_type(de::Unexpected::Other("no port number"), &self);
                port.map(|port| Ports(port..=port)).ok_or_else(wrong)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Ports, E> {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let number = |text: &str| text.trim().parse::<u16>().ok();
                match (number(first), number(last)) {
                    (Some(first), Some(last)) if first <= last => Ok(Ports(first..=last)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}
