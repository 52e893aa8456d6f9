//! The sockets on hosts.

use midspan_cc::Control;
use midspan_tcp::{Config, Endpoint};
use midspan_units::{Span, Time};

use crate::application::Application;
use crate::hold::Hold;
use crate::host::Host;
use crate::log::End;

/// A socket's number. Numbers of sockets that were removed are given again.
pub(crate) type SocketId = usize;

/// What a socket is set up with.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) host: Host,
    pub(crate) config: Config,
    pub(crate) control: Control,
    /// Its host remembers peers from one connection to the next.
    pub(crate) remembers: bool,
    /// Holes are kept from its peer, where they fill by themselves, for so long at most.
    pub(crate) reordering_hold: Span,
}

/// Who uses a socket.
#[derive(Debug, Clone)]
pub(crate) enum User {
    Application(Application),
    /// A leg of the relay's flow of this number.
    Relay(usize),
}

#[derive(Debug)]
pub(crate) enum Tcp {
    /// Waits for a SYN.
    Listening(Box<Setup>),
    Open(Box<Endpoint>),
}

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) host: Host,
    /// The UE whose connection it is, counted from 0.
    pub(crate) ue: u32,
    pub(crate) peer: SocketId,
    /// Which connection it is an end of.
    pub(crate) connection: u32,
    pub(crate) tcp: Tcp,
    pub(crate) user: User,
    /// What its host's memory of its peer is found by, if it has one.
    pub(crate) acquaintance: Option<Acquaintance>,
    /// What it misses of its peer's data, if it may keep that to itself.
    pub(crate) hold: Option<Box<Hold>>,
    /// What it is to those who are told of what it does.
    pub(crate) end: Option<Box<End>>,
}

/// A host, a peer's host, and whose UE's connections it is about: towards the server, too, each UE's are remembered by
/// themselves, as cells have servers of their own.
pub(crate) type Acquaintance = (Host, Host, u32);

impl Socket {
    /// The endpoint, once there is one.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        match &self.tcp {
            Tcp::Open(endpoint) => Some(endpoint),
            Tcp::Listening(_) => None,
        }
    }

    /// When it has something to do by itself.
    pub(crate) fn timeout(&self) -> Option<Time> {
        let endpoint = self.endpoint().and_then(Endpoint::poll_timeout);
        let hold = self.hold.as_ref().and_then(|hold| hold.due());
        endpoint.into_iter().chain(hold).min()
    }

    pub(crate) fn endpoint_mut(&mut self) -> Option<&mut Endpoint> {
        match &mut self.tcp {
            Tcp::Open(endpoint) => Some(endpoint),
            Tcp::Listening(_) => None,
        }
    }
}
