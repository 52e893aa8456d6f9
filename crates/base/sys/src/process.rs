//! This process, and children that do not outlive it.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{PidfdFlags, Resource, Rlimit, getpid, getrlimit, pidfd_open, setrlimit};

/// Makes the child be killed when the *thread* that spawns it ends, however that happens. Spawn
/// from a thread that lives as long as the child should.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    // By its descriptor, as a child in a PID namespace of its own knows no number of it.
    let parent = pidfd_open(getpid(), PidfdFlags::empty());
    // SAFETY: prctl and poll are bare system calls, which may be made between fork and exec.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) != 0 {
                return Err(io::Error::last_os_error());
            }
            let parent = parent.as_ref().map_err(|errno| io::Error::from(*errno))?;
            let mut ended =
                libc::pollfd { fd: parent.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            match libc::poll(&raw mut ended, 1, 0) {
                0 => Ok(()),
                -1 => Err(io::Error::last_os_error()),
                // A parent that died before this was asked for sends nothing any more.
                _ => Err(io::Error::from_raw_os_error(libc::ECHILD)),
            }
        })
    }
}

/// Gives the child a session of its own, as a service manager or a terminal would.
pub fn in_session_of_its_own(command: &mut Command) -> &mut Command {
    // SAFETY: setsid is a bare system call, which may be made between fork and exec.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        })
    }
}

/// Has memory that is allocated from now on, in pieces of so many bytes or more, go back to the system as soon as it is
/// free. glibc would keep it, unless it is at the end of a heap; other allocators are left as they are.
pub fn give_back_from(bytes: usize) {
    #[cfg(target_env = "gnu")]
    {
        let bytes = bytes.try_into().unwrap_or(libc::c_int::MAX);
        // SAFETY: it sets a parameter of the allocator, which guards it by a lock.
        #[allow(unsafe_code)]
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, bytes);
        }
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}

/// Raises the limit of descriptors as far as this process may, and says what it is then. Unlimited is not meant literally:
/// `/proc/sys/fs/nr_open` ends it, at 2^20 unless it was set.
pub fn raise_descriptor_limit() -> u64 {
    const MOST: u64 = 1 << 20;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    limit.unwrap_or(MOST).min(MOST)
}

/// A command that is also looked for where administrators' programs are, which is not on the `PATH`
/// of an ordinary user everywhere.
pub fn command(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}
