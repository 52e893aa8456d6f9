//! What the kernel tells of one socket and no library offers safely.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes in a TCP socket's send queue that the peer has not acknowledged, sent or not; an unacked
/// FIN counts as one (SIOCOUTQ). Zero after an orderly end means that all of it arrived.
///
/// # Errors
/// `EINVAL` on a listening socket.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (SIOCOUTQ) writes one int to the address given, which is valid for it.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(bytes).unwrap_or(0))
}
