//! Where connections come in, and whom they are for.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use midspan_forward::Forward;
use midspan_sockets::{Connection, Listener, NotAccepted, Opening, accept};

/// A listener of a worker.
#[derive(Debug)]
pub(crate) struct Frontend {
    pub(crate) listener: Listener,
    /// What becomes of its connections; none if they go to whom they were meant for.
    pub(crate) forward: Option<Arc<Forward>>,
}

/// A connection that a listener took.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) socket: OwnedFd,
    pub(crate) client: SocketAddr,
    /// Whom the client believes to be connected to, or whom its connections are passed on to.
    pub(crate) server: SocketAddr,
    pub(crate) opening: Opening,
    /// Whether the client's connection is MPTCP.
    pub(crate) mptcp: bool,
    /// What the server is to be sent before what the client sends.
    pub(crate) preface: Option<Box<[u8]>>,
}

impl Frontend {
    /// Takes a connection. It is for the first that the listener's are passed on to, or else for whom the
    /// client believes to be connected to.
    pub(crate) fn accept(&self, now: Instant) -> Result<Accepted, NotAccepted> {
        let connection = accept(&self.listener)?;
        let server = match &self.forward {
            Some(forward) => forward.to.first(now),
            None => connection.server(),
        };
        let server = server.ok_or(NotAccepted::Failed)?;
        let Connection { socket, client, opening, mptcp } = connection;
        Ok(Accepted { socket, client, server, opening, mptcp, preface: None })
    }
}
