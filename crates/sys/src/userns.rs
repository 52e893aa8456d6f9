//! Root without root: a user namespace in which an ordinary user holds every capability over
//! namespaces that the process makes itself.

use std::fs;
use std::io;

use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

/// Whether this process is root already, in whatever user namespace it is in.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Moves this process into a user namespace of its own in which it is root, and a network
/// namespace of its own. Must be called while the process has one thread only.
///
/// # Errors
/// Where the system forbids unprivileged user namespaces (`EPERM`, `ENOSPC`) or the process has
/// several threads (`EINVAL`).
pub fn become_root() -> io::Result<()> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: the file descriptor table stays shared; there is one thread.
    #[allow(unsafe_code)]
    unsafe {
        rustix::thread::unshare_unsafe(
            UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWNS,
        )?;
    }
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}
