//! The way to a flow's server.

use std::cmp::Reverse;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use midspan_split::{Cause, Leg};
use socket2::Socket;

use super::Worker;
use super::watch::watch_leg;
use crate::config::{Dscp, Forward};
use crate::flow::{LiveFlow, Others, Story};
use crate::slab::Key;
use crate::socket::{self, Accepted};

/// How long a server may take to answer before it counts as silent: enough for two more SYNs.
const DOUBT: Duration = Duration::from_secs(3);

/// When a connect is tried again for the first time that finds its client's port in use by a former connection to
/// the same server.
const RETRY: Duration = Duration::from_millis(1);
/// How long it is tried: less than [`DOUBT`], as such a server is not silent.
const RETRIES: Duration = Duration::from_secs(2);

/// The socket of a server leg.
pub(super) enum ServerLeg {
    New(Socket),
    /// As its client's SYN was held.
    Connected(OwnedFd),
}

impl Worker {
    pub(super) fn start(
        &mut self,
        accepted: Accepted,
        mut story: Story,
        server_leg: ServerLeg,
        forward: Option<Arc<Forward>>,
        due: Instant,
    ) -> io::Result<Key> {
        let Accepted { socket: client_leg, client, server, opening, preface, .. } = accepted;
        let mut others = Others::of(forward, server);
        let (mut early, mut waits) = (0, false);
        // What one server may have got must not be sent to another as well.
        let sends_data = self.settings.config.fast_open
            && opening.data
            && others.is_empty()
            && preface.is_none();
        let mut connected = match server_leg {
            ServerLeg::Connected(socket) => Ok(socket),
            ServerLeg::New(socket) => {
                let is_client = matches!(others, Others::None);
                if is_client {
                    socket::bind_as(&socket, client, self.shared.place)?;
                }
                let connecting = if sends_data {
                    self.counters().fast_open_accepted.add(1);
                    socket::connect_with_data_of(&client_leg, &socket, server)
                } else {
                    socket::begin_connect(&socket, server).map(|()| 0)
                };
                match connecting {
                    Ok(sent) => {
                        early = sent;
                        Ok(socket.into())
                    }
                    Err(error) if is_client && socket::is_former(&error) => {
                        waits = true;
                        Ok(socket.into())
                    }
                    Err(error) => Err(error),
                }
            }
        };
        while connected.is_err()
            && let Some(other) = others.next()
        {
            connected = self.connect_to(other, opening.dscp);
            story.server = other;
        }
        let ahead = super::read_ahead(&self.settings.config);
        let mut flow = LiveFlow::new(story, client_leg, connected?, ahead, others, due);
        (flow.dscp, flow.preface) = (opening.dscp, preface);
        if early > 0 {
            flow.early(early as u64, self.counters());
        }
        let key = self.flows.insert_with(|key| {
            for leg in Leg::BOTH {
                // A socket that does not connect yet would look like one that has ended.
                if leg == Leg::Client || !waits {
                    watch_leg(&self.epoll, key, leg, flow.fd(leg))?;
                }
            }
            Ok::<_, io::Error>(flow)
        })?;
        if waits {
            self.counters().port_waits.add(1);
            self.port_waits.push(Reverse((Instant::now() + RETRY, key)));
        }
        Ok(key)
    }

    /// Tries again to connect from ports that former connections of their clients still had.
    pub(super) fn retry_connects(&mut self) {
        while let Some(&Reverse((due, key))) = self.port_waits.peek() {
            let now = Instant::now();
            if now < due {
                break;
            }
            self.port_waits.pop();
            let Some(flow) = self.flows.get_mut(key) else { continue };
            let Story { server, start, .. } = *flow.story();
            let fd = flow.fd(Leg::Server);
            let connected = socket::begin_connect(fd, server)
                .and_then(|()| watch_leg(&self.epoll, key, Leg::Server, fd));
            match connected {
                Ok(()) => {}
                Err(error) if socket::is_former(&error) && now < start + RETRIES => {
                    // Not many times, for one that lasts.
                    let wait = ((now - start) / 4).max(RETRY);
                    self.port_waits.push(Reverse((now + wait, key)));
                }
                Err(error) => {
                    tracing::debug!(%server, %error, "the server leg could not connect");
                    self.fail(key, Cause::ConnectFailed);
                }
            }
        }
    }

    /// Marks what is sent to a client as its server has marked its answer, which BPF has seen.
    pub(super) fn copy_marking(&mut self, key: Key) {
        let Some(slot) = &self.slot else { return };
        if self.settings.config.client_leg.dscp != Dscp::Copy {
            return;
        }
        let Some(flow) = self.flows.get_mut(key) else { return };
        let Story { client, server, .. } = *flow.story();
        let marked = match slot.answer_dscp(client, server) {
            Ok(dscp) => socket::mark(flow.fd(Leg::Client), client.ip(), dscp.unwrap_or(0)),
            Err(error) => Err(error),
        };
        if let Err(error) = marked {
            tracing::debug!(%error, "a server's marking is not copied");
        }
    }

    fn connect_to(&self, server: SocketAddr, dscp: u8) -> io::Result<OwnedFd> {
        let socket = socket::open(server, &self.settings.config.server_leg, false, dscp)?;
        socket::connect(socket, server)
    }

    /// Connects a flow to the next of its servers, or fails it with `cause` if none is left.
    pub(super) fn connect_to_another(&mut self, key: Key, cause: Cause) {
        let due = Instant::now() + Duration::from(self.settings.config.connect_timeout);
        let next = |flow: &mut LiveFlow| flow.next_server().map(|server| (server, flow.dscp));
        while let Some((server, dscp)) = self.flows.get_mut(key).and_then(next) {
            let connected = self.connect_to(server, dscp).and_then(|fd| {
                watch_leg(&self.epoll, key, Leg::Server, &fd)?;
                Ok(fd)
            });
            if let Ok(fd) = connected
                && let Some(flow) = self.flows.get_mut(key)
            {
                flow.replace_server_leg(fd, server, due);
                self.await_connect(due, key);
                return;
            }
        }
        self.fail(key, cause);
    }

    pub(super) fn await_connect(&mut self, due: Instant, key: Key) {
        self.connects.push_back((due, key));
        if self.slot.is_some() {
            self.doubts.push_back((Instant::now() + DOUBT, due, key));
        }
    }

    pub(super) fn give_up_connects(&mut self) {
        let mut now = None;
        while let Some(&(due, key)) = self.connects.front() {
            let connecting = self.flows.get_mut(key).is_some_and(|flow| flow.is_due(due));
            if connecting && *now.get_or_insert_with(Instant::now) < due {
                break;
            }
            self.connects.pop_front();
            if connecting {
                self.connect_to_another(key, Cause::ConnectTimedOut);
            }
        }
    }

    /// Has new connections to a server pass that has not answered for long: they show whether its
    /// answers come by another way than through here.
    pub(super) fn voice_doubts(&mut self) {
        let mut now = None;
        while let Some(&(at, due, key)) = self.doubts.front() {
            let connecting = self.flows.get_mut(key).filter(|flow| flow.is_due(due));
            if connecting.is_some() && *now.get_or_insert_with(Instant::now) < at {
                break;
            }
            let server = connecting.and_then(|flow| socket::server_of(flow.fd(Leg::Client)));
            self.doubts.pop_front();
            if let (Some(server), Some(slot)) = (server, &self.slot) {
                self.counters().doubts.add(1);
                if let Err(error) = slot.doubt(server.ip()) {
                    tracing::debug!(%error, "a silent server's prefix could not be passed");
                }
            }
        }
    }
}
