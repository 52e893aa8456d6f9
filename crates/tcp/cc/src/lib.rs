//! Congestion control, each algorithm once.
//!
//! An algorithm is a header under `algo/`, in freestanding C: the kernel runs it through BPF (the
//! crate `ccload`), and everybody else through [`Control`]. What `algo/cc.h` says about who does what
//! holds for both.
//!
//! Windows are in packets, rates are of payload. The crate is pure: time is an argument, nothing is
//! allocated once a [`Control`] exists, and no input makes it panic. One
//! module, `ffi`, calls the C.

mod config;
mod control;
pub mod feedback;
mod ffi;
mod sample;
#[cfg(test)]
mod tests;

pub use config::{Config, HyStart};
pub use control::{Control, Kind, State, Unknown};
pub use sample::{Connection, Feedback, RateSample, Sample};

/// The controls that [`Control::new`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    ffi::algorithms().map(ffi::Algorithm::name)
}
