//! A split flow's two sockets, and what its bytes are in between: buffers and pipes, lent to directions that hold data.
//!
//! What is read and written, and when, is [`midspan_split`]'s to decide: a [`LiveFlow`] is the legs that its pump drives.

mod counters;
mod flow;
mod outbox;
mod pool;
mod store;

pub use counters::{Counters, Snapshot};
pub use flow::{Beginning, LiveFlow, Means, Others, Sockets, Story, count_early, readiness};
pub use outbox::Outbox;
pub use pool::{BUFFER, Pool};
