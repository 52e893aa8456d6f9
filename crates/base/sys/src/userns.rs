//! Root without root: a user namespace in which an ordinary user holds every capability over
//! namespaces that the process makes itself.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// Who somebody is: the numbers of user and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The user's.
    pub uid: u32,
    /// The group's.
    pub gid: u32,
}

impl User {
    /// Who this process is, in the user namespace that it is in.
    pub fn current() -> User {
        User { uid: geteuid().as_raw(), gid: getegid().as_raw() }
    }
}

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

/// Makes the child, which root of a user namespace of [`become_root`] starts, be `user` again: in a user namespace
/// below that one, without any capability over what belongs to the upper one.
pub fn as_user(command: &mut Command, user: User) -> &mut Command {
    let map = |id: u32| format!("{id} 0 1");
    let (uids, gids) = (map(user.uid), map(user.gid));
    let become_user = move || {
        // SAFETY: the file descriptor table stays shared with nobody; a child that was just forked has one thread.
        #[allow(unsafe_code)]
        unsafe {
            rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER)?;
        }
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", uids.as_bytes())?;
        write(c"/proc/self/gid_map", gids.as_bytes())
    };
    // SAFETY: it makes bare system calls, and neither allocates nor locks.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(become_user)
    }
}

fn write(path: &CStr, bytes: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, bytes)?;
    Ok(())
}

/// Moves this process into the user namespace that `namespace` refers to, with all capabilities over it. Must be called
/// while the process has one thread only.
///
/// # Errors
/// `EPERM` for who did not make it, `EINVAL` if the process is in it already or has several threads.
pub fn join(namespace: impl AsFd) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))?)
}
