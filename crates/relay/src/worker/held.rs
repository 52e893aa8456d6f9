//! Clients whose SYN is held until their server has answered.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use midspan_steer::HeldSyn;
use rustix::net::sockopt;

use super::Worker;
use crate::confirm::Released;
use crate::shared::Phase;
use crate::socket;

/// How often a server is asked from a port that a former connection still has.
const RETRY: Duration = Duration::from_millis(2);
/// How long it is tried: less than it takes the client to ask again (RFC 6298, 2.1).
const RETRIES: Duration = Duration::from_millis(800);

impl Worker {
    /// Asks the servers of clients whose SYN is held.
    pub(super) fn take_held(&mut self) {
        if self.shared.injector.get().is_none() {
            return;
        }
        let held = &self.shared.ends[self.index].held;
        let held = std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner));
        for syn in held {
            let released = self.confirmations.come_again(&syn);
            let released = released.or_else(|| self.ask_for(syn, Instant::now()));
            if let Some(released) = released {
                self.send_on(released);
            }
        }
    }

    /// Asks the server of a SYN that came at this time, unless a former connection of its client's still has the
    /// port: then it is asked a little later.
    fn ask_for(&mut self, syn: HeldSyn, came: Instant) -> Option<Released> {
        let connect = self.ask(&syn);
        let now = Instant::now();
        if let Err(error) = &connect
            && socket::is_former(error)
            && now < came + RETRIES
        {
            self.held_waits.push_back((now + RETRY, came, syn));
            return None;
        }
        self.confirmations.begin(syn, connect)
    }

    /// Asks servers again that could not be asked from their client's port.
    pub(super) fn retry_asking(&mut self) {
        // Those that go to the end of the queue are not due.
        while let Some(&(due, came, _)) = self.held_waits.front()
            && due <= Instant::now()
            && let Some((.., syn)) = self.held_waits.pop_front()
        {
            if let Some(released) = self.ask_for(syn, came) {
                self.send_on(released);
            }
        }
    }

    /// Begins to connect to the server of a held SYN.
    fn ask(&self, syn: &HeldSyn) -> io::Result<OwnedFd> {
        let is_client = self.clients.iter().any(|prefix| prefix.contains(&syn.client.ip()));
        let has_room = self.confirmations.len() < self.settings.config.limits.half_open as usize;
        if !is_client || !has_room || self.shared.phase() != Phase::Run {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let leg = &self.settings.config.server_leg;
        let socket = socket::open(syn.server, leg, true, syn.dscp)?;
        socket::bind_as(&socket, syn.client, self.shared.place)?;
        // The handshake's last segment is kept back until the client has sent its own.
        sockopt::set_tcp_quickack(&socket, false)?;
        socket::connect(socket, syn.server)
    }

    /// Sends a held SYN on: to our listener if its server has answered, and else to the server.
    pub(super) fn send_on(&self, Released { syn, confirmed }: Released) {
        let (Some(slot), Some(injector)) = (&self.slot, self.shared.injector.get()) else { return };
        let sent =
            slot.release(syn.client, syn.server, confirmed).and_then(|()| injector.inject(&syn));
        if let Err(error) = sent {
            // The client sends it again.
            tracing::debug!(%error, "a held connection could not be sent on");
        }
    }

    pub(super) fn give_up_confirmations(&mut self) {
        for released in self.confirmations.give_up() {
            self.send_on(released);
        }
    }
}
