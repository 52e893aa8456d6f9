//! An LTE network, one model a file: where sites and users are (`geometry`), how
//! much of a signal arrives (`propagation`), what a block can carry and whether it is received
//! (`adaptation`), who gets which part of the band (`scheduler`), the cells that do it
//! millisecond by millisecond (`downlink`); and the network around them, with uplink, links to a
//! gateway and handovers (`network`).
//!
//! As in `radio`, decisions come from basic operations of floating point alone.

mod adaptation;
mod downlink;
mod geometry;
mod network;
mod propagation;
mod scheduler;
mod spec;
mod user;

pub(crate) use adaptation::{efficiency, reported};
pub use downlink::{Downlink, Handover};
pub use network::{Network, NetworkSpec, Stop};
pub use scheduler::Scheduler;
pub use spec::LteSpec;

/// Cells that serve users: the first of the sites.
pub const CELLS: usize = geometry::SERVING;
