//! Steering of connections to the relay in BPF, at the ingress of every link, which fails open.
//!
//! The program (`bpf/steer.bpf.c`) gives packets of split connections to the relay's sockets, and a
//! new connection to one of its listeners if policy says so, and the worker behind it is alive, has
//! room, and says so often enough. In every other case the packet goes on as if no relay were there.
//!
//! What user space does is here: [`Steering`] loads the program and attaches it, [`WorkerSlot`] is what a
//! worker keeps alive, [`Policy`] says what is to be split, and [`Accounts`] tells what passed. The
//! program and its maps belong to the process that loaded them, and go with it, however it ends; or they
//! are [pinned](Options::pin), and the next relay takes them over.

mod account;
mod attach;
mod bare;
mod chances;
mod due_ack;
mod error;
mod first_window;
mod held;
mod intf;
mod pins;
mod policy;
mod slot;
mod steering;
mod verdict;

#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;

pub use account::{Accounts, AccountsSource, Course, Drawn, Ending, FlowRecord, OpenFlows};
pub use bare::Bare;
pub use chances::Chances;
pub use due_ack::DueAck;
pub use error::Error;
pub use first_window::FirstWindow;
pub use held::{HeldSource, HeldSyn, HeldSyns};
pub use policy::{Choice, Policy};
pub use slot::{Tally, WorkerSlot};
pub use steering::{Options, Rules, Steering};
pub use verdict::{Counts, Verdict};

/// Workers that a relay may have.
pub const WORKERS: u32 = intf::WORKERS;
/// One for IPv4 and one for IPv6.
pub const LISTENERS_PER_SLOT: u32 = intf::FAMILIES;
