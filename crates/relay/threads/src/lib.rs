//! The relay's threads: how they wake one another, end, and give up the privileges that they do not need.

mod background;
mod privileges;
pub mod wake;

pub use background::Background;
pub use privileges::Privileges;
