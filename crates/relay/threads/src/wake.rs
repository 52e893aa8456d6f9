//! Flags by which threads wake one another: eventfds.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};

/// One that is not raised.
///
/// # Errors
/// When the process has no descriptor left.
pub fn flag() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)
}

/// Makes an eventfd readable.
pub fn raise(flag: &OwnedFd) {
    // It can only fail by being raised some 2^64 times already.
    let _ = rustix::io::write(flag, &1u64.to_ne_bytes());
}

/// Makes an eventfd unreadable, and says how often it was raised.
pub fn lower(flag: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(flag, &mut count) {
        Ok(_) => u64::from_ne_bytes(count),
        Err(_) => 0,
    }
}
