//! A leg to a server: its socket, and how it is connected.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use midspan_config::{Dscp, LegConfig};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use socket2::{Protocol, Socket};

use crate::family::{Family, is_any};
use crate::listener::ListenAddress;
use crate::options::{configure, mark};

/// A socket for the connection to `server`; `transparent` if it is made from the client's address. Its
/// packets have the code point `dscp`, unless the configuration has another. The last segment of its handshake goes with
/// its first bytes, or when [`end_handshake`] says so, or after 200 ms.
///
/// # Errors
/// What the kernel says; where an option was refused, with its key.
pub fn open(
    server: SocketAddr,
    leg: &LegConfig,
    transparent: bool,
    dscp: u8,
) -> io::Result<Socket> {
    let family = Family::of(server.ip());
    let socket = family.socket(Protocol::TCP, transparent)?;
    if transparent {
        socket.set_reuse_address(true)?;
    }
    configure(&socket, leg)?;
    sockopt::set_tcp_quickack(&socket, false)?;
    let dscp = match leg.dscp {
        Dscp::Copy => dscp,
        Dscp::Always(point) => point,
    };
    mark(&socket, server.ip(), dscp)?;
    Ok(socket)
}

/// Has a socket connect from the client's own address and port.
///
/// # Errors
/// What the kernel says; [that a former connection is in the way](is_former) among it.
pub fn bind_as(socket: &Socket, client: SocketAddr, place: ListenAddress) -> io::Result<()> {
    if place == ListenAddress::Port(client.port()) {
        // Our listener holds this port on every address.
        socket.set_reuse_port(true)?;
    }
    socket.bind(&client.into())
}

/// Starts to connect to `server`.
///
/// # Errors
/// What the kernel says at once.
pub fn connect(socket: Socket, server: SocketAddr) -> io::Result<OwnedFd> {
    begin_connect(&socket, server)?;
    Ok(socket.into())
}

/// The same. Where it fails because [a former connection](is_former) is in the way it may be tried again.
///
/// # Errors
/// What the kernel says at once.
pub fn begin_connect(socket: impl AsFd, server: SocketAddr) -> io::Result<()> {
    match rustix::net::connect(socket, &server) {
        Err(Errno::INPROGRESS) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends the last segment of the handshake of a connection that was made, if nothing has gone out since.
///
/// # Errors
/// What the kernel says.
pub fn end_handshake(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_tcp_quickack(socket, true)?)
}

/// Whether it says that another connection of this host still has these addresses and ports: a client has used
/// its port again before the server has acknowledged the end of its last one (LAST-ACK), or before we have
/// come to end it.
pub fn is_former(error: &io::Error) -> bool {
    is_any(error, &[Errno::ADDRNOTAVAIL, Errno::ADDRINUSE])
}

/// Starts to connect to `server` with the first of what a client has sent, as much of it as the
/// server is known to take with the SYN (RFC 7413); and says how much that is. It is then the kernel's
/// to deliver, and no longer the client's socket's.
///
/// # Errors
/// What the kernel says at once.
pub fn connect_with_data_of(
    client: impl AsFd,
    socket: &Socket,
    server: SocketAddr,
) -> io::Result<usize> {
    /// `MSG_FASTOPEN`
    const FAST_OPEN: SendFlags = SendFlags::from_bits_retain(0x2000_0000);
    /// More fits on no SYN.
    const MOST: usize = 1460;
    let mut buffer = [0; MOST];
    let data = match rustix::net::recv(&client, &mut buffer, RecvFlags::PEEK) {
        Ok((_, length)) if length > 0 => &mut buffer[..length],
        // It comes after all, or an error is there to be met.
        _ => return begin_connect(socket, server).map(|()| 0),
    };
    match rustix::net::sendto(socket, data, FAST_OPEN | SendFlags::NOSIGNAL, &server) {
        Ok(sent) => match rustix::io::read(&client, &mut data[..sent])? {
            read if read == sent => Ok(sent),
            // Nobody else reads.
            _ => Err(io::Error::other("what was sent cannot be taken from the client's socket")),
        },
        // Without data, but asking for a cookie to send some next time.
        Err(Errno::INPROGRESS) => Ok(0),
        // net.ipv4.tcp_fastopen forbids it.
        Err(Errno::OPNOTSUPP) => begin_connect(socket, server).map(|()| 0),
        Err(error) => Err(error.into()),
    }
}
