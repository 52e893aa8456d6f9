//! How often to split, by what is learned of places while the relay runs.
//!
//! The thread here hears of every connection that ends, closes slots ([`midspan_gain::Learner`]), and says to the steering program what
//! follows from them for the next. Nothing waits for it.

mod board;
mod decider;
mod places;
mod state;

pub use board::{Board, Units};
pub use decider::{Decider, Ended};
