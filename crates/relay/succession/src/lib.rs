//! One relay at a time takes the connections of a network namespace, and another may take its place
//! while it drains.
//!
//! The one that has the lock listens at a socket that is named after the namespace, in a folder where nobody else may
//! write. Its successor, once new connections come to it, says `retire MARK` there; the old one leaves
//! everything that they share, drains, and answers `retired`.

mod instance_lock;
pub mod manager;
mod upgrade;

pub use instance_lock::{InstanceLock, Successor, retire_predecessor};
pub use upgrade::{READY, runs_this_program, take_over};
