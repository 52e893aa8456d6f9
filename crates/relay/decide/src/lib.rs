//! How often to split, by what is learned of places while the relay runs: what is decided, and when.
//!
//! A [`Decider`] is told of every connection that was drawn, closes slots ([`midspan_gain::Learner`]), and says what follows
//! from them for the next: in the words of the steering program ([`Of`], [`Chance`]), and on a [`Board`] for people.
//!
//! This crate is pure: it knows no clock and does no I/O.

mod board;
mod chance;
mod decider;
mod drawn;
mod places;
mod schedule;

pub use board::{Board, Units};
pub use chance::{Because, Chance, Of};
pub use decider::Decider;
pub use drawn::{Drawn, Sent};
pub use schedule::Due;
