//! The relay's threads: how they wake one another, hear of signals, end, and give up the privileges that they do not need.

mod background;
mod privileges;
mod signals;
pub mod wake;

pub use background::Background;
pub use privileges::Privileges;
pub use signals::{Caught, Signals};
