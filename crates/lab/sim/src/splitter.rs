//! A flow that is split, as it stands.

use std::sync::Arc;

use midspan_split::{ClientLink, FirstWindows, Leg, PerLeg, Pump, ReadAhead, ReceiveWindow};

use crate::socket::{Setup, SocketId, User};

/// One flow that the relay splits. Its client leg is connected early, as live; then it connects
/// onward.
#[derive(Debug)]
pub(crate) struct Splitter {
    pub(crate) pump: Pump,
    pub(crate) legs: PerLeg<Option<SocketId>>,
    /// What the server leg is opened with, and what it leads to, until it is.
    pub(crate) onward: Option<Box<(Setup, (Setup, User))>>,
    /// The windows that it advertises on each leg, where sockets do not decide: client, server.
    pub(crate) windows: Option<[ReceiveWindow; 2]>,
    /// What its client leg may begin with.
    pub(crate) first: FirstWindows,
    /// What the relay knows of its client's link; from when it is connected until it is over.
    pub(crate) link: Option<Arc<ClientLink>>,
    /// What its server leg was made to begin with; none if that is its host's.
    pub(crate) server_window: Option<u32>,
    /// Whether what earlier connections to the server have shown decides of that.
    pub(crate) remembers_server: bool,
    /// Whatever it held is given up.
    pub(crate) over: bool,
}

impl Splitter {
    /// Waits for its client. `server` is the socket that the onward connection is to end in.
    pub(crate) fn new(
        ahead: PerLeg<ReadAhead>,
        server_leg: Setup,
        server: (Setup, User),
        first: FirstWindows,
        remembers_server: bool,
    ) -> Splitter {
        Splitter {
            pump: Pump::new(ahead),
            legs: PerLeg::default(),
            onward: Some(Box::new((server_leg, server))),
            windows: None,
            first,
            link: None,
            server_window: None,
            remembers_server,
            over: false,
        }
    }

    /// All that it may have of a direction is `buffer` bytes, sockets' buffers included.
    pub(crate) fn share(&mut self, buffer: u64, mss: u32) {
        self.windows = Some([ReceiveWindow::new(buffer, u64::from(mss)); 2]);
    }

    /// The sockets of its legs.
    pub(crate) fn set_client_leg(&mut self, socket: SocketId) {
        self.legs.client = Some(socket);
    }

    /// The relay's socket towards the server, once it connects.
    pub(crate) fn server_leg(&self) -> Option<SocketId> {
        self.legs.server
    }

    /// The next relay's flow, if it would lead to one and has not connected yet.
    pub(crate) fn awaited(&self) -> Option<usize> {
        match self.onward.as_deref() {
            Some((_, (_, User::Relay(next)))) => Some(*next),
            _ => None,
        }
    }

    /// Bytes that it holds between its sockets.
    pub(crate) fn held(&self) -> u64 {
        Leg::BOTH.into_iter().map(|from| self.pump.flow().occupied(from)).sum()
    }
}
