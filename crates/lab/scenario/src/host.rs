//! How a host's kernel is set up: its congestion control and TCP memory.

use std::fmt;
use std::str::FromStr;

use midspan_units::{ByteSize, Span};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// What Linux's receive windows begin with: what one without a scale can say (RFC 9293, 3.1).
pub(crate) const LINUX_RECEIVE_WINDOW: ByteSize = ByteSize::from_kib(64);

/// Linux's least retransmission timeout.
pub(crate) const LINUX_RTO_MIN: Span = Span::from_millis(200);

/// The caller's name of a congestion control that is the caller's own, as path elements may be (`external`): scenarios have
/// it behind `external:`.
pub fn external_control(name: &str) -> Option<&str> {
    name.strip_prefix("external:")
}

/// The three hosts of every scenario.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hosts {
    /// The mobile user's device.
    #[serde(default)]
    pub ue: Host,
    /// The box between access and wide area. Its settings hold for every proxy on it that does not
    /// choose its own.
    #[serde(default)]
    pub mec: Host,
    /// The host beyond the wide area.
    #[serde(default)]
    pub server: Host,
}

/// One host's kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The default congestion control, as in `net.ipv4.tcp_congestion_control`.
    #[serde(default = "cubic")]
    pub congestion_control: String,
    /// The bounds of TCP's socket buffers.
    #[serde(default)]
    pub buffers: Buffers,
    /// Whether its connections ask for ECN (`net.ipv4.tcp_ecn` 1). Without, they agree when they are
    /// asked, as Linux does. Default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ecn: bool,
    /// Whether it has selective acknowledgements (`net.ipv4.tcp_sack`). Default true.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub sack: bool,
    /// Least retransmission timeout (`net.ipv4.tcp_rto_min_us`, Linux 6.11). Default: Linux's 200 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rto_min: Option<Span>,
    /// Whether it acknowledges each packet at once (`quickack` of a route). Default false: as Linux does,
    /// mostly each second one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub quickack: bool,
    /// Initial window of its connections in packets (`initcwnd` of a route). Default: Linux's 10 (RFC
    /// 6928).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initcwnd: Option<u32>,
    /// Whether it remembers peers' round-trip times from one connection to the next (`net.ipv4.tcp_no_metrics_save` 0, as
    /// Linux does unless told otherwise). Default false, so that connections do not depend on those before.
    #[serde(default, skip_serializing_if = "is_false")]
    pub metrics_save: bool,
    /// How long it holds SACKs back, at most (`net.ipv4.tcp_comp_sack_delay_ns`). Default: Linux's 1 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comp_sack_delay: Option<Span>,
    /// How many SACKs it holds back, at most (`net.ipv4.tcp_comp_sack_nr`). Default: Linux's 44.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comp_sack_nr: Option<u8>,
}

impl Default for Host {
    fn default() -> Self {
        Host {
            congestion_control: cubic(),
            buffers: Buffers::DEFAULT,
            ecn: false,
            sack: true,
            rto_min: None,
            quickack: false,
            initcwnd: None,
            metrics_save: false,
            comp_sack_delay: None,
            comp_sack_nr: None,
        }
    }
}

/// The bounds of a host's TCP socket buffers: `"default"`, `"max"`, or both sysctls spelt out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Buffers {
    /// `net.ipv4.tcp_rmem`.
    pub rmem: TcpMemory,
    /// `net.ipv4.tcp_wmem`.
    pub wmem: TcpMemory,
}

impl Buffers {
    /// What Linux gives a machine with enough memory. Pinned, so that a result does not hang on the
    /// machine's own size.
    pub const DEFAULT: Buffers = Buffers {
        rmem: TcpMemory { min: 4096, initial: 131_072, max: 6_291_456 },
        wmem: TcpMemory { min: 4096, initial: 16_384, max: 4_194_304 },
    };

    /// No limit that a connection could reach: 2 GiB less one byte.
    pub const MAX: Buffers = Buffers {
        rmem: TcpMemory { min: 4096, initial: 131_072, max: 2_147_483_647 },
        wmem: TcpMemory { min: 4096, initial: 131_072, max: 2_147_483_647 },
    };
}

impl Default for Buffers {
    fn default() -> Self {
        Buffers::DEFAULT
    }
}

/// `min initial max` of a socket buffer in bytes, as in the sysctls. Prints and parses as there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpMemory {
    /// What a socket keeps under memory pressure.
    pub min: u32,
    /// What a socket starts with.
    pub initial: u32,
    /// What autotuning may reach.
    pub max: u32,
}

const MEMORY_WANTED: &str =
    "three byte counts that do not fall, up to 2147483647, such as `4096 131072 6291456`";

impl FromStr for TcpMemory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<u32>> =
            text.split_whitespace().map(|word| word.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[min, initial, max])
                if 0 < min && min <= initial && initial <= max && max <= i32::MAX as u32 =>
            {
                Ok(TcpMemory { min, initial, max })
            }
            _ => Err(format!("`{text}` is not {MEMORY_WANTED}")),
        }
    }
}

impl fmt::Display for TcpMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.min, self.initial, self.max)
    }
}

impl Serialize for TcpMemory {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TcpMemory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// By hand, and not as an untagged enum, so that errors keep their place in the file.
impl<'de> Deserialize<'de> for Buffers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            rmem: TcpMemory,
            wmem: TcpMemory,
        }

        impl<'de> Visitor<'de> for NameOrTable {
            type Value = Buffers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`default`, `max` or a table of `rmem` and `wmem`")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Buffers, E> {
                match name {
                    "default" => Ok(Buffers::DEFAULT),
                    "max" => Ok(Buffers::MAX),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(name), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Buffers, A::Error> {
                let Table { rmem, wmem } = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Buffers { rmem, wmem })
            }
        }

        deserializer.deserialize_any(NameOrTable)
    }
}

fn cubic() -> String {
    "cubic".to_owned()
}

fn yes() -> bool {
    true
}

// Left out of a result's digest, which is as it was before there were these keys.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_true(value: &bool) -> bool {
    *value
}
