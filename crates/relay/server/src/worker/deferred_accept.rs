//! Clients whose SYN is held until their server has answered: what is decided of them, carried out.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

use midspan_sockets as sockets;
use midspan_split::{Asking, ConnectAttempt, Ends, Key};
use midspan_steer::HeldSyn;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::net::sockopt;

use super::EventLoop;
use super::host::LiveHost;
use super::watch::watch;
use crate::phase::Phase;

/// Events taken from the kernel at a time.
const EVENTS: usize = 64;

impl EventLoop {
    /// Takes the SYNs that are held for this worker.
    pub(super) fn take_held(&mut self) {
        if self.host.context.reinjector.get().is_none() {
            return;
        }
        let held = &self.host.handle().held;
        let held = std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner));
        let (most, now) = (self.host.settings.config.limits.half_open as usize, self.now());
        for syn in held {
            self.deferred.hold(syn, most, now, &mut self.host);
        }
    }

    /// Hears which servers have answered or refused.
    pub(super) fn handle_probed(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spare = rustix::buffer::spare_capacity(&mut events);
        // Nothing is lost if it fails: the kernel tells again.
        let _ = epoll::wait(&self.host.probed_servers, spare, Some(&at_once));
        let now = self.now();
        for epoll::Event { data, .. } in events {
            self.deferred.event(Key::from_bits(data.u64()), now, &mut self.host);
        }
    }
}

impl LiveHost {
    /// Begins to connect to the server of a held SYN.
    fn connect_for(&self, key: Key, syn: &HeldSyn) -> io::Result<OwnedFd> {
        let is_client = self.clients.iter().any(|prefix| prefix.contains(&syn.client.ip()));
        if !is_client || self.context.workers.phase() != Phase::Run {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let socket = sockets::open(syn.server, &self.settings.config.server_leg, true, syn.dscp)?;
        sockets::bind_as(&socket, syn.client, self.context.place)?;
        let connection = sockets::connect(socket, syn.server)?;
        watch(&self.probed_servers, &connection, key.to_bits(), EventFlags::OUT | EventFlags::ET)?;
        Ok(connection)
    }
}

impl Asking for LiveHost {
    type Syn = HeldSyn;
    type Connection = OwnedFd;

    fn ends(syn: &HeldSyn) -> Ends {
        (syn.client, syn.server)
    }

    fn ask(&mut self, key: Key, syn: &HeldSyn) -> ConnectAttempt<OwnedFd> {
        match self.connect_for(key, syn) {
            Ok(connection) => ConnectAttempt::Begun(connection),
            Err(error) if sockets::is_former(&error) => ConnectAttempt::PortInUse,
            Err(_) => ConnectAttempt::Failed,
        }
    }

    fn is_connected(&mut self, connection: &OwnedFd) -> bool {
        matches!(sockopt::socket_error(connection), Ok(Ok(())))
            && rustix::net::getpeername(connection).is_ok()
            && epoll::delete(&self.probed_servers, connection).is_ok()
    }

    /// Sends a held SYN on: to our listener if its server has answered, and else to the server.
    fn send_on(&mut self, syn: HeldSyn, answered: bool) {
        let (Some(slot), Some(reinjector)) = (&self.slot, self.context.reinjector.get()) else {
            return;
        };
        let sent =
            slot.release(syn.client, syn.server, answered).and_then(|()| reinjector.inject(&syn));
        if let Err(error) = sent {
            // The client sends it again.
            tracing::debug!(%error, "a held connection could not be sent on");
        }
    }
}
