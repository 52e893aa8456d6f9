//! Congestion control, each algorithm once.
//!
//! An algorithm is a header under `algo/`, in freestanding C: the kernel runs it through BPF (the
//! crate `ccload`), and everybody else through [`Control`]. What `algo/cc.h` says about who does what
//! holds for both. Beside them a [`Control`] may be the caller's own ([`external`]).
//!
//! Windows are in packets, rates are of payload. The crate is pure: time is an argument, nothing is
//! allocated once a [`Control`] exists but by the caller's, and no input makes it panic. One
//! module, `ffi`, calls the C.

mod config;
mod control;
pub mod external;
pub mod feedback;
mod ffi;
mod sample;
#[cfg(test)]
mod tests;

pub use config::{Config, HyStart};
pub use control::{Control, Kind, State, Unknown};
pub use ffi::register;
pub use sample::{Connection, Feedback, RateSample, Sample};

/// The headers that a control of somebody else's is compiled with, as name and text: the interface (`cc.h`, `fixed.h`,
/// `feedback.h`), every algorithm of this crate, and the table through which [`register`] takes it (`table.h`, `host.h`).
pub const HEADERS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/headers.rs"));

/// The controls that [`Control::new`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    ffi::algorithms().map(ffi::Algorithm::name)
}

/// Those among [`names`] that are of this crate, and not of others who [`register`] theirs.
pub fn names_of_midspan() -> impl Iterator<Item = &'static str> {
    ffi::ours().map(ffi::Algorithm::name)
}
