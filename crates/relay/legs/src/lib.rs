//! A split flow's two sockets, and what its bytes are in between: buffers and pipes, lent to directions that hold data.
//!
//! What is read and written, and when, is [`midspan_split`]'s to decide: a [`LiveFlow`] is the legs that its pump drives.

mod counters;
mod flow;
mod outbox;
mod pool;
mod relay_buffer;

pub use counters::{Counters, Snapshot};
pub use flow::{Beginning, FlowMetadata, LiveFlow, Means, Others, Sockets, count_early, readiness};
pub use outbox::Outbox;
pub use pool::{BUFFER, Pool};
