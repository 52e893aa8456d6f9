//! How Midspan's relay is set up in a scenario.

use midspan_config::LegConfig;
use midspan_split::{FirstWindows, ReadAheadKind, defaults};
use midspan_units::{ByteSize, Span};
use serde::{Deserialize, Serialize};

use crate::host::Host;

/// What a relay that [divides](Relay::divided) a shared buffer has of it between its sockets, at most.
const BETWEEN: u64 = 64 << 10;
/// What a leg has of it at least, if that is no more than an eighth: the largest super-packet.
const LEAST_SHARE: u64 = 64 << 10;
/// What a relay may tell its sockets at least.
const LEAST_TOLD: u64 = 4 << 10;

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
    /// of the sockets' buffers. Live it is [divided](Relay::divided) among these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<ByteSize>,
    /// How long holes in what comes from UEs are kept from them at most, where segments are known to come late by
    /// themselves; zero: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordering_hold: Option<Span>,
}

impl Relay {
    /// How a live relay has a shared buffer, whose sockets each have a buffer of their own: what comes in by one leg
    /// and goes out by the other one has no more than it has in all. `access` and `wide` are the legs' shortest round
    /// trips.
    ///
    /// A buffer that is full passes once in both round trips together (paper `mmwave`, equations 3 and 4). Each leg
    /// passes as much if its share of the buffer is as its share of the round trips, but for a least that sockets
    /// need. Unlike the paper's, a share that one leg has no use for is of none to the other.
    pub fn divided(&self, access: Span, wide: Span) -> Relay {
        let Some(shared) = self.shared.map(ByteSize::as_bytes) else { return self.clone() };
        let between = BETWEEN.min(shared / 16);
        let sockets = shared - between;
        let least = LEAST_SHARE.min(sockets / 8);
        let both = u128::from((access + wide).as_nanos()).max(1);
        let near = u128::from(sockets) * u128::from(access.as_nanos()) / both;
        let near = u64::try_from(near).unwrap_or(sockets).clamp(least, sockets - least);
        let leg = |leg: &LegConfig, share: u64| {
            // Linux doubles either, for its own overhead: about a half of what segments take that come one by one, and
            // next to nothing of what is to be sent.
            let told = |bytes: u64| Some(ByteSize::from_bytes(bytes.max(LEAST_TOLD)));
            LegConfig {
                receive_buffer: told(share),
                initial_receive_window: None,
                send_buffer: told(share / 2),
                ..leg.clone()
            }
        };
        Relay {
            client_leg: leg(&self.client_leg, near),
            server_leg: leg(&self.server_leg, sockets - near),
            buffer: Some(ByteSize::from_bytes(between)),
            shared: None,
            ..self.clone()
        }
    }

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

    /// How far the receive windows towards UEs may open before their kernel has seen how fast what comes is read.
    pub fn initial_receive_window(&self) -> ByteSize {
        let named = self.client_leg.initial_receive_window;
        named.unwrap_or(ByteSize::from_bytes(defaults::CLIENT_LEG_RECEIVE_WINDOW))
    }

    /// How long holes are kept from UEs at most.
    pub fn reordering_hold(&self) -> Span {
        self.reordering_hold.unwrap_or(defaults::REORDERING_HOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(shared: u64, access: u64, wide: u64) -> [u64; 3] {
        let relay = Relay { shared: Some(ByteSize::from_bytes(shared)), ..Relay::default() };
        let relay = relay.divided(Span::from_millis(access), Span::from_millis(wide));
        assert_eq!(relay.shared, None);
        let of = |leg: &LegConfig| {
            let [receive, send] =
                [leg.receive_buffer, leg.send_buffer].map(|told| told.unwrap().as_bytes());
            assert_eq!(send, receive / 2);
            receive
        };
        [of(&relay.client_leg), relay.buffer.unwrap().as_bytes(), of(&relay.server_leg)]
    }

    #[test]
    fn a_buffer_is_divided_as_the_round_trips_are() {
        let [near, between, far] = shares(1_000_000, 42, 60);
        assert_eq!(near + between + far, 1_000_000);
        assert!((near * 60).abs_diff(far * 42) < 200, "{near} {far}");
    }

    #[test]
    fn each_leg_has_enough_for_a_super_packet_or_an_eighth() {
        assert_eq!(shares(10_000_000, 0, 60)[0], LEAST_SHARE);
        assert_eq!(shares(10_000_000, 60, 0)[2], LEAST_SHARE);
        let [near, between, far] = shares(160_000, 1, 1000);
        assert_eq!((near, between), (18_750, 10_000));
        assert_eq!(near + between + far, 160_000);
        assert_eq!(shares(1_000_000, 0, 0)[0], LEAST_SHARE);
    }

    #[test]
    fn a_relay_that_shares_nothing_is_left_as_it_is() {
        let relay = Relay { buffer: Some(ByteSize::from_bytes(4096)), ..Relay::default() };
        assert_eq!(relay.divided(Span::from_millis(1), Span::from_millis(1)), relay);
    }
}
