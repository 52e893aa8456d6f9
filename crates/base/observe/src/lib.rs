//! What is told of flows and subscribers to who looks at a relay from outside.
//!
//! [`Naming`] decides what a subscriber is called: everything that shows one goes through it.
//! [`Histogram`] counts values without locks, [`Entry`] is a line of the flow log, and [`admin`] has
//! what a running relay is asked and answers.
//!
//! This crate is pure: it knows no clock and does no I/O.

pub mod admin;
mod count;
mod entry;
mod histogram;
mod identity;
mod leg;
mod naming;

pub use count::Count;
pub use entry::{Direction, Entry, PathRecord, SCHEMA, Split, Start};
pub use histogram::{Distribution, Histogram, RATE, SHARE, Scale, TIME};
pub use identity::{Began, FlowId};
pub use leg::{Algorithm, LegStats};
pub use naming::{ClientName, KeyError, Naming, PseudonymKey, subscriber};
