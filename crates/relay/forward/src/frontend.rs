//! Where connections come in, and whom they are for.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use midspan_sockets::{Connection, Listener, NotAccepted, SynOptions, accept};

use crate::forward::Forward;

/// A listener of a worker.
#[derive(Debug)]
pub struct Frontend {
    /// Its socket.
    pub listener: Listener,
    /// What becomes of its connections; none if they go to whom they were meant for.
    pub forward: Option<Arc<Forward>>,
}

/// A connection that a listener took.
#[derive(Debug)]
pub struct Accepted {
    /// Its socket.
    pub socket: OwnedFd,
    /// Who has made it.
    pub client: SocketAddr,
    /// Whom the client believes to be connected to, or whom its connections are passed on to.
    pub server: SocketAddr,
    /// The SYN that it began with.
    pub syn: SynOptions,
    /// Whether the client's connection is MPTCP.
    pub mptcp: bool,
    /// What the server is to be sent before what the client sends.
    pub preface: Option<Box<[u8]>>,
}

impl Frontend {
    /// Takes a connection. It is for the first that the listener's are passed on to, or else for whom the
    /// client believes to be connected to.
    ///
    /// # Errors
    /// Why there is none.
    pub fn accept(&self, now: Instant) -> Result<Accepted, NotAccepted> {
        let connection = accept(&self.listener)?;
        let server = match &self.forward {
            Some(forward) => forward.to.first(now),
            None => connection.server(),
        };
        let server = server.ok_or(NotAccepted::Failed)?;
        let Connection { socket, client, syn, mptcp } = connection;
        Ok(Accepted { socket, client, server, syn, mptcp, preface: None })
    }
}
