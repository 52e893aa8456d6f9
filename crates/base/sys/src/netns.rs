//! Anonymous network namespaces.
//!
//! A namespace lives as long as somebody holds its descriptor, a process or thread is in it, or it
//! has a name. These have no name, so when their process ends, however it ends, the kernel takes
//! them down with every interface, rule and route in them: nothing is left to clean up.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::netlink::Netlink;

/// A network namespace, kept alive by this value and its clones.
#[derive(Debug, Clone)]
pub struct Netns {
    fd: Arc<OwnedFd>,
}

impl Netns {
    /// A new namespace with nothing in it but a loopback interface, which is up.
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_ADMIN in the current user namespace.
    pub fn create() -> io::Result<Netns> {
        let netns = on_scratch_thread(|| {
            // SAFETY: only the network namespace of this new thread changes; the file descriptor
            // table stays shared.
            #[allow(unsafe_code)]
            unsafe {
                rustix::thread::unshare_unsafe(UnshareFlags::NEWNET)?;
            }
            Netns::current()
        })?;
        netns.run(|| {
            let mut netlink = Netlink::open()?;
            let lo = netlink.index("lo")?;
            netlink.set_up(lo)
        })??;
        Ok(netns)
    }

    /// The namespace that the calling thread is in.
    ///
    /// # Errors
    /// When /proc is not mounted.
    pub fn current() -> io::Result<Netns> {
        let file = File::open("/proc/thread-self/ns/net")?;
        Ok(Netns { fd: Arc::new(OwnedFd::from(file)) })
    }

    /// The namespace that a file of /proc refers to, such as a process's `ns/net` or its descriptor of one.
    ///
    /// # Errors
    /// When it cannot be opened, as is another user's.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Netns> {
        Ok(Netns { fd: Arc::new(OwnedFd::from(File::open(path)?)) })
    }

    /// The number that the kernel tells it from others by.
    ///
    /// # Errors
    /// When the descriptor cannot be asked.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&*self.fd)?.st_ino)
    }

    /// Moves the calling thread, and it alone, into this namespace for good.
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_ADMIN over the namespace.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `work` on a scratch thread inside this namespace and waits for its result. Sockets
    /// that it opens stay in this namespace wherever they are used later.
    ///
    /// # Errors
    /// When the thread cannot start or cannot enter.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_scratch_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }

    /// Makes `command` start its program inside this namespace.
    pub fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let fd = self.fd.clone();
        let enter = move || {
            let fd = fd.as_raw_fd();
            // SAFETY: the closure owns the descriptor, and setns is a bare system call,
            // which may be made between fork and exec.
            #[allow(unsafe_code)]
            if unsafe { libc::setns(fd, libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        };
        // SAFETY: `enter` neither allocates nor locks.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(enter)
        }
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn on_scratch_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".into()).spawn_scoped(scope, work)?;
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_namespace_has_only_a_loopback() {
        let Ok(netns) = Netns::create() else {
            eprintln!("skipped: this user may not create network namespaces");
            return;
        };
        let names = netns.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap();
        let names = names.unwrap();
        let interfaces: Vec<&str> = names.lines().skip(2).collect();
        assert_eq!(interfaces.len(), 1, "{names}");
        let out = netns.apply(Command::new("cat").arg("/proc/net/dev")).output().unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap().lines().count(), 3);
    }
}
