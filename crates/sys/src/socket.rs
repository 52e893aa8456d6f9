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

/// The most bytes per second that a socket sends, which it then paces (SO_MAX_PACING_RATE).
///
/// # Errors
/// When the kernel refuses.
pub fn set_max_pacing_rate(socket: impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes_per_second)
}

/// Has a listener take data that comes with a SYN, for up to `queue` connections whose handshake is
/// under way (TCP_FASTOPEN; RFC 7413). Whether it is done is for `net.ipv4.tcp_fastopen` to say.
///
/// # Errors
/// When the kernel refuses.
pub fn accept_fast_open(listener: impl AsFd, queue: u32) -> io::Result<()> {
    let queue = libc::c_int::try_from(queue).unwrap_or(libc::c_int::MAX);
    set(listener, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, queue)
}

/// Has a listener keep the headers of each connection's SYN for [`saved_syn`] (TCP_SAVE_SYN).
///
/// # Errors
/// When the kernel refuses, as it does for MPTCP.
pub fn save_syn(listener: impl AsFd) -> io::Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, 1 as libc::c_int)
}

/// The IP and TCP headers of the SYN that opened an accepted connection, which the kernel then
/// forgets (TCP_SAVED_SYN). None if none were kept: the listener did not [ask](save_syn), or has
/// answered with a SYN cookie.
///
/// # Errors
/// When the kernel refuses, also if `headers` is too short for them.
pub fn saved_syn(socket: impl AsFd, headers: &mut [u8]) -> io::Result<Option<&[u8]>> {
    let mut length = libc::socklen_t::try_from(headers.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: at most `length` bytes are written to `headers`, which has so many.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_SAVED_SYN,
            headers.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(headers.get(..length as usize).filter(|headers| !headers.is_empty()))
}

/// Sets an option whose value is a number.
fn set<T: Copy + Into<i128>>(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: the kernel reads a value of that size from the address given. The bound keeps it a
    // number, all of whose bytes are initialised.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
