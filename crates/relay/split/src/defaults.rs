//! What a relay does where nobody says otherwise. Here and nowhere else, so that what is deployed, run in the lab
//! and simulated is one relay.

use midspan_units::Span;
use serde::{Deserialize, Serialize};

/// The congestion control of the client's leg, as the kernel knows it: one for a link over radio. What speaks for
/// it is measured in docs/explanation/congestion-control.md.
pub const CLIENT_LEG_CONTROL: &str = "ms_radio";

/// What is held of a flow in each direction, at most, beside the sockets' buffers: bytes.
pub const BUFFER: u64 = 1 << 20;

/// What Linux begins a connection with, in packets (RFC 6928).
pub const INITIAL_WINDOW: u32 = 10;

/// The initial window of a connection to a client beside others of the client's that are busy, in packets. One that is
/// alone has the kernel's (10; RFC 6928). With it pages are faster in every case of the `lte` paper's figure 7
/// (`bench/runs/lte-7-defaults-sim`); with 3 they are not.
pub const WINDOW_BESIDE: u32 = 2;

/// How far the receive window of a connection from a client may open before its kernel has seen how fast what comes is
/// read, in bytes. Linux begins with 64 KiB, and goes on to twice what is read in a round trip: BBR on a leg over radio, with a
/// round trip of some milliseconds, takes that for all that the link carries.
pub const CLIENT_LEG_RECEIVE_WINDOW: u64 = 1 << 20;

/// Least retransmission timeout towards clients (RFC 6298, 2.4; RFC 8961 asks for as much while nothing is known). A leg
/// over radio has a short round trip until something waits in its queue, and then one of up to a second.
pub const CLIENT_LEG_RTO_MIN: Span = Span::from_secs(1);

/// How long holes in what clients send are kept from them at most, where segments are known to come late by
/// themselves.
pub const REORDERING_HOLD: Span = Span::from_millis(50);

/// How far the relay reads ahead of the leg that takes a direction's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadAheadKind {
    /// As far as `buffer` lets it.
    #[default]
    Fixed,
    /// As far as that leg needs, by what it takes; up to `buffer`.
    Auto,
}
