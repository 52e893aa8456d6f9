//! Connections taken from a listener, and what the kernel tells of them.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};

use crate::listener::Listener;
use crate::syn_options::{self, SynOptions};

/// A connection that a listener took.
#[derive(Debug)]
pub struct Connection {
    /// Its socket.
    pub socket: OwnedFd,
    /// Who has made it.
    pub client: SocketAddr,
    /// The SYN that it began with.
    pub syn: SynOptions,
    /// Whether it is MPTCP.
    pub mptcp: bool,
}

impl Connection {
    /// Whom the client believes to be connected to; none if the kernel does not say.
    pub fn server(&self) -> Option<SocketAddr> {
        self.syn.server.or_else(|| address_of(&self.socket))
    }
}

/// Why no connection was taken from a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAccepted {
    /// None waits.
    NoneWaiting,
    /// This one failed; the next may not.
    Failed,
    /// Neither this one nor the next can be, for lack of descriptors or memory.
    NoRoom,
}

/// Takes a connection.
///
/// # Errors
/// Why there is none.
pub fn accept(listener: &Listener) -> Result<Connection, NotAccepted> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, client) =
        rustix::net::acceptfrom_with(&listener.fd, flags).map_err(|error| match error {
            Errno::AGAIN => NotAccepted::NoneWaiting,
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => NotAccepted::NoRoom,
            // What accept(2) passes on from the new connection's own network errors.
            _ => NotAccepted::Failed,
        })?;
    let client = client.and_then(|client| SocketAddr::try_from(client).ok());
    let mptcp = listener.mptcp && is_mptcp(&socket).map_err(|_| NotAccepted::Failed)?;
    let syn = match midspan_sys::socket::saved_syn(&socket, &mut [0; syn_options::LONGEST]) {
        Ok(Some(headers)) => SynOptions::of(headers),
        // Answered with a SYN cookie, or by an MPTCP listener, neither of which keeps anything.
        Ok(None) | Err(_) => SynOptions::default(),
    };
    match client {
        Some(client) => Ok(Connection { socket, client, syn, mptcp }),
        None => Err(NotAccepted::Failed),
    }
}

/// How many connections wait at the listener, or may. Asking costs little; to accept where there is none makes
/// the kernel set up a socket and take it apart again.
pub fn waiting(listener: &Listener) -> usize {
    midspan_sys::socket::accept_queue(&listener.fd).map_or(usize::MAX, |waiting| waiting as usize)
}

/// Whether a connection that an MPTCP listener took is one. If not it is TCP, and may have urgent
/// data, of which that listener knew nothing.
fn is_mptcp(socket: &OwnedFd) -> Result<bool, Errno> {
    let is = sockopt::socket_protocol(socket)? == Some(rustix::net::ipproto::MPTCP);
    if !is {
        sockopt::set_socket_oobinline(socket, true)?;
    }
    Ok(is)
}

/// A connection's own address. To the client of one that was accepted transparently this is the server's.
pub fn address_of(socket: impl AsFd) -> Option<SocketAddr> {
    rustix::net::getsockname(socket).ok()?.try_into().ok()
}
