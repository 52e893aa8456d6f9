//! The thread that learns how often to split while the relay runs.
//!
//! It hears of every connection that ends and hands it to [`midspan_decide::Decider`], says to the steering program what that
//! decides, and keeps in a file what was learned. Nothing waits for it.

mod state;
mod thread;

pub use thread::{Ended, Learning};
