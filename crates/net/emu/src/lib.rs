//! The path's elements against the real clock: an emulated link between two network namespaces.
//!
//! [`start`] takes a [`Link`](midspan_path::Link), or a mobile network's [`Cells`], makes an interface for
//! it in each of two namespaces, and runs a thread that moves packets from one to the other: in at the
//! time the clock shows when they are read, out at the time that the link's elements intend. Elements see
//! wire packets: TCP super-packets are taken from the kernel whole, because that is what makes
//! 1 Gbit/s affordable, and cut before anything is decided about them.
//!
//! Every emulator reports its own accuracy ([`Report`]): how late packets left, and how many were
//! lost that no element meant to lose. [`Report::distrust`] says whether a run can be believed.
//!
//! This crate does not give interfaces addresses or routes, and knows nothing of scenarios.
//! `docs/explanation/emu.md` describes the mechanism and its accuracy.

mod between;
mod cells;
mod contention;
mod emulator;
mod engine;
mod gro_batch;
mod link;
mod pace;
mod packet;
mod port;
mod report;
mod segment;
mod tap;
mod timing;
mod vnet;

#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;

pub use between::{Beside, Between};
pub use cells::Cells;
pub use emulator::{Emulator, Error, LinkConfig, start};
pub use packet::WirePacket;
pub use port::{Backend, PortConfig};
pub use report::{Distribution, Distrust, Drops, Report};
pub use tap::{End, Sight, Tap};
pub use timing::Scheduling;
