//! What the kernel tells of one socket and no library offers safely.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::sockdiag::TcpInfo;

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

/// What the kernel's TCP knows of a socket, connected or not any more.
///
/// # Errors
/// When it is no TCP socket.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    // Larger than any kernel's; what an older one does not know stays zero.
    let info: [u8; 512] = option(socket, libc::TCP_INFO)?;
    TcpInfo::parse(&info).map_err(io::Error::other)
}

/// Connections that wait at a listening TCP socket to be accepted: `tcpi_unacked` of a listener is the length of
/// its accept queue, as `ss` shows it.
///
/// # Errors
/// When it is no TCP socket.
pub fn accept_queue(listener: impl AsFd) -> io::Result<u32> {
    const UNACKED: usize = 24;
    // No more than up to there, which is less to copy.
    let info: [u8; UNACKED + 4] = option(listener, libc::TCP_INFO)?;
    Ok(info.last_chunk().map_or(0, |waiting| u32::from_ne_bytes(*waiting)))
}

/// The name of a TCP socket's congestion control, ended by a zero where it is shorter.
///
/// # Errors
/// When it is no TCP socket.
pub fn congestion_control(socket: impl AsFd) -> io::Result<[u8; 16]> {
    option(socket, libc::TCP_CONGESTION)
}

/// The most bytes per second that a socket sends, which it then paces (SO_MAX_PACING_RATE).
///
/// # Errors
/// When the kernel refuses.
pub fn set_max_pacing_rate(socket: impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes_per_second)
}

/// The most that a TCP socket offers its peer to send (TCP_WINDOW_CLAMP). What has been offered is
/// not taken back.
///
/// # Errors
/// When the kernel refuses.
pub fn set_window_clamp(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes)
}

/// `SOCK_RCVBUF_LOCK`: the receive buffer has the size that it was set to.
const RECEIVE_LOCK: libc::c_int = 2;

/// Which of a socket's buffers were set to a size, and are not tuned by the kernel.
fn buffer_locks(socket: impl AsFd) -> io::Result<libc::c_int> {
    let mut locks = [0; size_of::<libc::c_int>()];
    read(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK, &mut locks)?;
    Ok(libc::c_int::from_ne_bytes(locks))
}

/// Whether a socket's receive buffer was set to a size, and is not tuned by the kernel (SO_BUF_LOCK).
///
/// # Errors
/// Before Linux 5.15, which knows no such option.
pub fn is_receive_buffer_locked(socket: impl AsFd) -> io::Result<bool> {
    Ok(buffer_locks(socket)? & RECEIVE_LOCK != 0)
}

/// Lets the kernel tune a socket's receive buffer again, from the size that it was set to (SO_BUF_LOCK).
///
/// # Errors
/// Before Linux 5.15, which knows no such option.
pub fn unlock_receive_buffer(socket: impl AsFd) -> io::Result<()> {
    let kept = buffer_locks(socket.as_fd())? & !RECEIVE_LOCK;
    set(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK, kept)
}

/// The most unsent bytes with which a TCP socket takes more; none is what the system has
/// (TCP_NOTSENT_LOWAT, `net.ipv4.tcp_notsent_lowat`).
///
/// # Errors
/// When the kernel refuses.
pub fn set_notsent_lowat(socket: impl AsFd, bytes: Option<u32>) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes.unwrap_or(0))
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
    let length = read(socket, libc::IPPROTO_TCP, libc::TCP_SAVED_SYN, headers)?;
    Ok(headers.get(..length).filter(|headers| !headers.is_empty()))
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

/// Reads an option of TCP as long as `SIZE` at most. What the kernel does not write is zero.
fn option<const SIZE: usize>(socket: impl AsFd, name: libc::c_int) -> io::Result<[u8; SIZE]> {
    let mut value = [0; SIZE];
    read(socket, libc::IPPROTO_TCP, name, &mut value)?;
    Ok(value)
}

/// Reads an option, and says how long it is.
fn read(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(value.len()).unwrap_or(libc::socklen_t::MAX);
    let fd = socket.as_fd().as_raw_fd();
    let into = value.as_mut_ptr().cast();
    // SAFETY: at most `length` bytes are written to `value`, which has so many.
    #[allow(unsafe_code)]
    let result = unsafe { libc::getsockopt(fd, level, name, into, &raw mut length) };
    if result == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn a_socket_is_described_after_its_end_too() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"seven b").unwrap();
        far.read_exact(&mut [0; 7]).unwrap();
        let info = tcp_info(&far).unwrap();
        assert_eq!((info.bytes_received, info.bytes_sent), (7, 0));
        let name = congestion_control(&near).unwrap();
        assert!(name[0].is_ascii_alphabetic(), "{name:?}");
        rustix::net::sockopt::set_socket_linger(&near, Some(std::time::Duration::ZERO)).unwrap();
        drop(near);
        while far.read(&mut [0]).is_ok() {}
        assert_eq!(tcp_info(&far).unwrap().bytes_received, 7);
    }

    #[test]
    fn a_listener_tells_how_many_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(accept_queue(&listener).unwrap(), 0);
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _waiting = [connect(), connect()];
        assert_eq!(accept_queue(&listener).unwrap(), 2);
        listener.accept().unwrap();
        assert_eq!(accept_queue(&listener).unwrap(), 1);
        assert!(accept_queue(UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    }

    #[test]
    fn only_tcp_is_described() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(tcp_info(&socket).is_err() && congestion_control(&socket).is_err());
    }
}
