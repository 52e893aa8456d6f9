//! How Midspan's relay is set up in a scenario.

use midspan_split::{ReadAheadKind, defaults};
use midspan_units::{ByteSize, Span};
use serde::{Deserialize, Serialize};

/// The relay's settings; what is absent is left to the relay's own default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// Towards the UE.
    #[serde(default)]
    pub client_leg: Leg,
    /// Towards the server.
    #[serde(default)]
    pub server_leg: Leg,
    /// What the relay may hold of a flow in each direction, beside the sockets' own buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<ByteSize>,
    /// How far it reads ahead of the leg that takes a direction's bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ahead: Option<ReadAheadKind>,
    /// All that it may have of a flow in each direction, from coming in until it is acknowledged at the far
    /// side: the receive window is what is left of it (paper `mmwave`, equation 3). In place of `buffer` and
    /// of the sockets' buffers. Simulated only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<ByteSize>,
    /// How long holes in what comes from UEs are kept from them at most, where segments are known to come late by
    /// themselves; zero: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordering_hold: Option<Span>,
}

impl Relay {
    /// The congestion control of the leg towards the UE: what the file names, else the relay's own default. A live
    /// relay that may not bring that one has the kernel's, which the run's legs then tell.
    pub fn client_control(&self) -> &str {
        self.client_leg.congestion_control.as_deref().unwrap_or(defaults::CLIENT_LEG_CONTROL)
    }

    /// What the relay may hold of a flow in each direction.
    pub fn buffer(&self) -> ByteSize {
        self.buffer.unwrap_or(ByteSize::from_bytes(defaults::BUFFER))
    }

    /// How long holes are kept from UEs at most.
    pub fn reordering_hold(&self) -> Span {
        self.reordering_hold.unwrap_or(defaults::REORDERING_HOLD)
    }
}

/// One leg's sockets; what is absent is left to the MEC's kernel, but for the congestion control of the client's
/// leg ([`Relay::client_control`]).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leg {
    /// `TCP_CONGESTION`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// `SO_RCVBUF`: fixes the receive buffer, which otherwise follows the kernel's autotuning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<ByteSize>,
    /// `SO_SNDBUF`: fixes the send buffer, which otherwise follows the kernel's autotuning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<ByteSize>,
    /// `TCP_NOTSENT_LOWAT`: bytes not yet sent above which the socket takes no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notsent_lowat: Option<ByteSize>,
}
