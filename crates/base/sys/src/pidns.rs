//! PID namespaces: when the first process of one ends, however it ends, the kernel kills all others in it.

use std::io;
use std::os::fd::AsFd;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};

/// Has the calling thread's children be in a PID namespace of their own, whose first process is the next one that it
/// starts. The thread cannot start threads any more.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN in the current user namespace.
pub fn for_children() -> io::Result<()> {
    // SAFETY: it changes nothing for the calling thread; the file descriptor table stays shared.
    #[allow(unsafe_code)]
    unsafe {
        rustix::thread::unshare_unsafe(UnshareFlags::NEWPID)?;
    }
    Ok(())
}

/// Gives the calling process mounts of its own, whose /proc shows its own PID namespace. Must be called while the process has
/// one thread only.
///
/// # Errors
/// `EPERM` where another /proc may not be mounted: in most containers, for who is not root on the machine.
pub fn own_proc() -> io::Result<()> {
    // SAFETY: the file descriptor table stays shared; there is one thread.
    #[allow(unsafe_code)]
    unsafe {
        rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)?;
    }
    // What the machine mounts later is seen here too, and what is mounted here is not seen there.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("proc", "/proc", "proc", flags, None)?)
}

/// Moves the calling process into the mounts of the process behind a PID descriptor, and its children into that one's
/// PID namespace. The working directory becomes the root of those mounts. Must be called while the process has one
/// thread only.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN over both, `ESRCH` if that process has ended.
pub fn join(process: impl AsFd) -> io::Result<()> {
    let both = ThreadNameSpaceType::MOUNT | ThreadNameSpaceType::PROCESS_ID;
    Ok(move_into_thread_name_spaces(process.as_fd(), both)?)
}
