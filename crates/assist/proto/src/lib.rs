//! The feedback protocol of NetAssist and the estimators behind it.
//!
//! A NetAssist daemon beside the radio network measures what each UE's link can carry and what a
//! round trip to it takes when no queue is in the way, and tells the senders that registered for
//! the UE, one small datagram each period (the `natcp` paper, section 2.2). This crate has what
//! both ends decide: the [`FeedbackDatagram`], the messages of a registration
//! ([`ToDaemon`], [`ToSender`]), what a receiver believes ([`Inbox`]), who may ask for what
//! ([`Policy`]), when what is due ([`Registry`]), and the estimators ([`estimate`]).
//!
//! It is pure: it reads no clock (`now` is an argument), does no I/O, and knows neither QUIC nor
//! any base station's format; the `midspan-assist` crate does. `docs/reference/assist.md` has the protocol.

mod basis;
mod board;
pub mod estimate;
pub mod fairness;
mod feedback;
mod inbox;
mod message;
mod policy;
mod reading;
mod registry;
mod source_health;
mod turns;
mod ue_map;
mod window;

pub use basis::{Basis, BasisKind, Causal, Oracle};
pub use board::{Board, Entry, Target};
pub use feedback::{FeedbackDatagram, MOST_BANDWIDTH, MOST_SPAN, Malformed, Quality};
pub use inbox::{Inbox, Refusal, Tally, Update};
pub use message::{
    FRAME_BYTES, Frames, LONGEST_PERIOD, MessageError, Reason, SHORTEST_PERIOD, ToDaemon, ToSender,
};
pub use policy::{Policy, PolicyError, Revoked, Rights};
pub use reading::{Blocks, LinkReading, Reading, Recorded};
pub use registry::{Counts, Due, Limits, Registry, SessionId, SourceId, UeView};
pub use source_health::{Fault, GOOD_PER_FAULT, HealthLimits, HealthState, SourceHealth};
pub use ue_map::{Rnti, UeMap, UeMapError};
pub use window::{Seen, Window};
