//! From measured figures of a path to whether a relay there would make flows faster, where, and how it is to be set.
//!
//! 1. [`Figures`] are what is known of a path: given by hand, or found in a relay's flow log ([`flow_log`]) or in captured
//!    packets ([`capture`]).
//! 2. A [`Plan`] makes a scenario of them: the path without a relay, and with each [`Candidate`]. It says which runs of it are to be
//!    simulated, and takes their records.
//! 3. The candidate is chosen by some seeds, and what is expected of it comes from others ([`Advice`]), so that it is no figure of
//!    the luckiest of many.
//!
//! This crate is pure: it knows no clock, reads no file, and simulates nothing itself.

mod advice;
mod candidate;
pub mod capture;
mod estimate;
mod figures;
pub mod flow_log;
mod plan;
mod scenario;

pub use advice::{Advice, Compared, Expected, Recommendation};
pub use candidate::{Candidate, Tried};
pub use estimate::Gain;
pub use figures::{Figures, Flows, HostBuffers, Known, Refused};
pub use plan::{Plan, Planned};
