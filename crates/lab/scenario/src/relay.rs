//! How Midspan's relay is set up in a scenario.

use midspan_config::LegConfig;
use midspan_split::{FirstWindows, ReadAheadKind, defaults};
use midspan_units::{ByteSize, Span};
use serde::{Deserialize, Serialize};

use crate::host::Host;

/// The relay's settings; what is absent is left to the relay's own default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// Towards the UE. What is absent is left to the MEC's kernel, but for the congestion control
    /// ([`Relay::client_control`]).
    #[serde(default)]
    pub client_leg: LegConfig,
    /// Towards the server. What is absent is left to the MEC's kernel.
    #[serde(default)]
    pub server_leg: LegConfig,
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

    /// What connections to UEs begin with. What the file sets for the relay's host, the `mec`, holds where it sets
    /// nothing for the relay.
    pub fn first_windows(&self, mec: &Host) -> FirstWindows {
        let LegConfig { initial_window, initial_window_beside, .. } = self.client_leg;
        let by_default = mec.initcwnd.map_or(defaults::WINDOW_BESIDE, |_| FirstWindows::MOST);
        FirstWindows { alone: initial_window, beside: initial_window_beside.unwrap_or(by_default) }
    }

    /// The least retransmission timeout towards UEs. What the file sets for the relay's host holds likewise.
    pub fn rto_min(&self, mec: &Host) -> Span {
        let least = self.client_leg.rto_min.or(mec.rto_min);
        least.unwrap_or(defaults::CLIENT_LEG_RTO_MIN)
    }

    /// How long holes are kept from UEs at most.
    pub fn reordering_hold(&self) -> Span {
        self.reordering_hold.unwrap_or(defaults::REORDERING_HOLD)
    }
}
