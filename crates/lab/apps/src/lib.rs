//! What users' applications decide, whatever carries their bytes: both backends drive these with the
//! time and with what has come, and do what they order. No sockets and no clock.

mod browser;
mod player;

pub use browser::{Browser, Order};
pub use player::Player;
