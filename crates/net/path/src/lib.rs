//! The elements that a packet crosses on its way: links, queues, delays, losses, radio.
//!
//! Elements chain into a [`Direction`], two directions make a [`Link`], links make a [`Path`].
//! A link takes packets with [`Link::enqueue`] and gives them back, each with the exact time at which
//! it left, with [`Link::dequeue`]; [`Link::next_event`] says when to come again. What comes out depends on the packets, the times at which they came in and the seed, and
//! on nothing else: a caller that polls late, or early, or often, gets the same packets at the
//! same times.
//!
//! This crate is pure. It reads no clock (`now` is an argument), does no I/O, and draws its random
//! numbers from a generator that gives the same bytes on every machine. No decision is taken in
//! floating point but those of radio channels and of [`lte`], which take basic operations alone: the same
//! bits on every machine.
//!
//! `docs/reference/path.md` describes each element with its parameters, units and sources.

mod aqm;
mod cellular;
mod counters;
mod direction;
mod element;
mod link;
pub mod lte;
mod mmwave;
mod packet;
#[cfg(test)]
mod properties;
mod queue;
mod radio;
mod random;
mod spec;
mod stretch;
#[cfg(test)]
mod testing;
mod times;
mod trace;
mod trace_windows;
mod unit;

pub use aqm::{AqmSpec, CodelSpec, EcnThresholdSpec, RedSpec, StepSpec};
pub use cellular::CellularSpec;
pub use counters::Counters;
pub use direction::Direction;
pub use element::{
    Decide, ExternalSpec, Externals, Fate, GilbertElliottSpec, LateSpec, LossSpec, Maker,
    MmWaveSpec, Node, PolicerSpec, RadioSpec, RateSpec, Retransmit, RlcSpec, Seen, TraceSpec,
    WlaSpec,
};
pub use link::{Link, LinkSpec, Path, Way, base_rtt};
pub use mmwave::BlockageSpec;
pub use packet::{Ecn, Packet};
pub use queue::QueueSpec;
pub use radio::{ChannelSpec, Modulation};
pub use spec::{ElementSpec, SpecError, check};
pub use stretch::{Stretch, lane, unlane};
pub use times::Times;
pub use trace::{Trace, TraceError, Traces};
pub use trace_windows::TraceWindows;
pub use unit::Unit;
