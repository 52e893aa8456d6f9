//! Quantities with their units: a rate is not a number, and a size is not a time.
//!
//! Every type parses from and prints to the text that people write in scenario and configuration
//! files (`"100 Mbit/s"`, `"1 ms"`, `"64 KiB"`, `"0.5 %"`), and round-trips through it.
//!
//! This crate is pure: it knows no clock. [`Time`] is a point on a caller's clock.

mod factor;
pub mod number;
mod parse;
mod radio;
mod rate;
mod share;
mod size;
mod span;
mod time;
pub mod wording;

pub use factor::Factor;
pub use parse::ParseError;
pub use radio::{Decibels, Distance, Frequency, Power, Speed};
pub use rate::Rate;
pub use share::Share;
pub use size::ByteSize;
pub use span::Span;
pub use time::Time;
