//! What is told of flows and subscribers to who looks at a relay from outside.
//!
//! [`Naming`] decides what a subscriber is called: everything that shows one goes through it.
//!
//! This crate is pure: it knows no clock and does no I/O.

mod naming;

pub use naming::{ClientName, KeyError, Naming, PseudonymKey, subscriber};
