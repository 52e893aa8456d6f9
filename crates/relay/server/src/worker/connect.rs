//! The beginning of a flow's way to its server.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_forward::{Accepted, Forward};
use midspan_legs::{FlowMetadata, LiveFlow, Others, count_early};
use midspan_observe::subscriber;
use midspan_sockets as sockets;
use midspan_split::{Key, Leg, Opened, PerLeg};
use socket2::Socket;

use super::host::LiveHost;
use super::watch;

/// The socket of a server leg.
pub(super) enum ServerLeg {
    New(Socket),
    /// As its client's SYN was held.
    Connected(OwnedFd),
}

impl LiveHost {
    /// Begins to connect to the first of `forward` that can be, or else to whom the client wanted.
    pub(super) fn begin(
        &self,
        key: Key,
        accepted: Accepted,
        mut metadata: FlowMetadata,
        server_leg: ServerLeg,
        forward: Option<Arc<Forward>>,
    ) -> io::Result<(LiveFlow, Opened)> {
        let Accepted { socket: client_leg, client, server, syn, preface, .. } = accepted;
        let mut others = Others::of(forward, server, self.now);
        let mut opened = Opened::Connecting(0);
        // What one server may have got must not be sent to another as well.
        let sends_data =
            self.settings.config.fast_open && syn.data && others.is_empty() && preface.is_none();
        let mut connected = match server_leg {
            ServerLeg::Connected(socket) => Ok(socket),
            ServerLeg::New(socket) => {
                let is_client = matches!(others, Others::None);
                if is_client {
                    sockets::bind_as(&socket, client, self.context.place)?;
                }
                let connecting = if sends_data {
                    self.counters().fast_open_accepted.add(1);
                    sockets::connect_with_data_of(&client_leg, &socket, server)
                } else {
                    sockets::begin_connect(&socket, server).map(|()| 0)
                };
                match connecting {
                    Ok(early) => {
                        opened = Opened::Connecting(early as u64);
                        Ok(socket.into())
                    }
                    Err(error) if is_client && sockets::is_former(&error) => {
                        opened = Opened::PortInUse;
                        Ok(socket.into())
                    }
                    Err(error) => Err(error),
                }
            }
        };
        while connected.is_err()
            && let Some(other) = others.next(self.now)
        {
            connected = self.connect_to(other, syn.dscp);
            metadata.server = other;
        }
        let sockets = PerLeg { client: client_leg, server: connected? };
        watch::leg(&self.epoll, key, Leg::Client, &sockets.client)?;
        match opened {
            Opened::Connecting(early) => {
                watch::leg(&self.epoll, key, Leg::Server, &sockets.server)?;
                if early > 0 {
                    count_early(self.counters(), early);
                }
            }
            // A socket that does not connect yet would look like one that has ended.
            Opened::PortInUse => self.counters().port_waits.add(1),
        }
        let link = self.context.admission.link(&subscriber(client.ip()));
        Ok((LiveFlow::new(metadata, sockets, others, syn.dscp, preface, link), opened))
    }
}
