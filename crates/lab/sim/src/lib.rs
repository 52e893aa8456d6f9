//! Scenarios in virtual time: the same paths, the same congestion controls and the same split
//! decisions as live, between TCP endpoints of our own.
//!
//! [`run`] takes a cell of a sweep to its measurement. It is pure: what comes out depends on cell,
//! variant and seed alone, on every machine; the random draws of the path are those that the live
//! backend would meet with the same seed. Time costs nothing: a run takes as long as its packets
//! take to be handled.
//!
//! Inside, a `World` is a chain of hosts, the two directions of each link between
//! them, and TCP sockets with something that uses each: an application, or the relay.

mod agenda;
mod application;
mod assist;
mod dialogue;
mod error;
mod externals;
mod headers;
mod hold;
mod host;
mod log;
mod measure;
mod mobile;
mod net;
mod packet;
mod relay;
mod run;
mod series;
mod setup;
mod socket;
mod splitter;
mod tap;
mod users;
mod visit;
mod world;

pub use error::Error;
pub use externals::Externals;
pub use log::{End, Log, Told};
pub use run::{Observers, Work, run, run_observed, run_with};
pub use tap::{Place, Sight, Tap};
