//! Sockets of other processes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Calls `with` for each socket of `inodes` that a process on this machine has open, this one
/// included, with its inode and a descriptor of it. The descriptor is closed when `with` returns,
/// so that the socket does not outlive its owner's. Sockets of processes that the caller may not
/// trace (`ptrace(2)`, PTRACE_MODE_ATTACH) are left out.
///
/// # Errors
/// When /proc is not mounted.
pub fn with_sockets(
    inodes: &BTreeSet<u32>,
    mut with: impl FnMut(u32, BorrowedFd<'_>),
) -> io::Result<()> {
    let mut left = inodes.clone();
    for process in fs::read_dir("/proc")? {
        if left.is_empty() {
            return Ok(());
        }
        let process = process?;
        let Some(pid) = number(&process.file_name().to_string_lossy()) else { continue };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        let mut handle = None;
        for descriptor in descriptors.flatten() {
            let Ok(target) = fs::read_link(descriptor.path()) else { continue };
            let inode = socket_inode(&target.to_string_lossy());
            let Some(inode) = inode.filter(|inode| left.contains(inode)) else { continue };
            let Some(fd) = number(&descriptor.file_name().to_string_lossy()) else { continue };
            if handle.is_none() {
                handle =
                    Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            }
            let Some(handle) = &handle else { break };
            if let Ok(socket) = pidfd_getfd(handle, fd, PidfdGetfdFlags::empty()) {
                left.remove(&inode);
                with(inode, socket.as_fd());
            }
        }
    }
    Ok(())
}

fn number(text: &str) -> Option<i32> {
    text.parse().ok()
}

/// Of `socket:[123]`.
fn socket_inode(target: &str) -> Option<u32> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::sockdiag::tcp_sockets;

    #[test]
    fn a_socket_is_found_by_its_inode() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mine = near.local_addr().unwrap();
        let sockets = tcp_sockets().unwrap();
        let inode = sockets.iter().find(|socket| socket.local == mine).unwrap().inode;
        let mut found = Vec::new();
        let note = |inode, socket: BorrowedFd<'_>| {
            found.push((inode, rustix::net::getsockname(socket).unwrap()));
        };
        with_sockets(&[inode].into(), note).unwrap();
        assert_eq!(found, [(inode, rustix::net::getsockname(&near).unwrap())]);
    }
}
