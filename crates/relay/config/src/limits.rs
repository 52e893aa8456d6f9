//! What is taken at most.

use midspan_split::{IdleTimeouts, Limits};
use midspan_units::{ByteSize, Span};
use serde::{Deserialize, Serialize};

/// What is taken at most. Past any of these a new connection passes unsplit where BPF steers, and
/// is reset where it does not; both are counted. Steered connections that were let in at the same time as the last flow that
/// there was room for wait until one ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsConfig {
    /// Flows at one time. Absent: what the descriptor limit allows, which is never exceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    /// Flows at one time of one client: of an IPv4 address, or of a /64 of IPv6, which one
    /// subscriber has (RFC 7278). Absent: as many as in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows_per_client: Option<u32>,
    /// Buffers and pipes in use at one time, all flows together.
    #[serde(default = "default_buffered")]
    pub buffered: ByteSize,
    /// How long a flow may go without payload, both ways together, before it is reset. Absent: for
    /// ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Span>,
    /// The same for a flow of which one end has sent its FIN. Absent: as for any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_closed: Option<Span>,
    /// New connections a second of one client. Absent: as many as come. Takes BPF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syn_rate: Option<u32>,
    /// Half-open connections at one time, of each worker and IP version. Takes BPF.
    #[serde(default = "default_half_open")]
    pub half_open: u32,
}

fn default_half_open() -> u32 {
    1024
}

fn default_buffered() -> ByteSize {
    ByteSize::from_kib(1024 * 1024)
}

impl Default for LimitsConfig {
    fn default() -> Self {
        LimitsConfig {
            flows: None,
            flows_per_client: None,
            buffered: default_buffered(),
            idle: None,
            half_closed: None,
            syn_rate: None,
            half_open: default_half_open(),
        }
    }
}

impl LimitsConfig {
    /// How many flows are wanted at most; where nothing is said, any number.
    pub fn admission(&self) -> Limits {
        let or_any = |most: Option<u32>| most.unwrap_or(u32::MAX);
        Limits { flows: or_any(self.flows), flows_per_client: or_any(self.flows_per_client) }
    }

    /// How long flows may be idle.
    pub fn idle_timeouts(&self) -> IdleTimeouts {
        IdleTimeouts { idle: self.idle, half_closed: self.half_closed }
    }
}
