//! What users' applications decide, whatever carries their bytes: both backends drive these with the
//! time and with what has come, and do what they order. No sockets and no clock.

mod activity;
mod browser;
mod crowd;
mod player;

pub use activity::{ANSWER_HEAD, Activity, Event};
pub use browser::{Browser, Order};
pub use crowd::{BEGINNINGS, Crowd, Trouble};
pub use player::Player;
