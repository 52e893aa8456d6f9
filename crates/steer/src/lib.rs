//! Steering of connections to the relay in BPF, at the ingress of every link, which fails open.
//!
//! The program (`bpf/steer.bpf.c`) gives packets of split connections to the relay's sockets, and a
//! new connection to one of its listeners if policy says so, and the worker behind it is alive, has
//! room, and says so often enough. In every other case the packet goes on as if no relay were there.
//!
//! What user space does is here: [`Steering`] loads the program and attaches it, [`Slot`] is what a
//! worker keeps alive, and [`Policy`] says what is to be split. The program and its maps belong to
//! the process that loaded them: when it ends, however it ends, the kernel removes them.

mod attach;
mod policy;
mod record;
mod steering;
mod verdict;

pub use policy::{Choice, Policy};
pub use steering::{Error, LISTENERS_PER_SLOT, Slot, Steering, Tally, WORKERS};
pub use verdict::{Counts, Verdict};
