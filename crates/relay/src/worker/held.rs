//! Clients whose SYN is held until their server has answered.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

use midspan_steer::HeldSyn;

use super::Worker;
use crate::confirm::Released;
use crate::shared::Phase;
use crate::socket;

impl Worker {
    /// Asks the servers of clients whose SYN is held.
    pub(super) fn take_held(&mut self) {
        if self.shared.injector.get().is_none() {
            return;
        }
        let held = &self.shared.ends[self.index].held;
        let held = std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner));
        for syn in held {
            let released = match self.confirmations.come_again(syn) {
                Ok(released) => Some(released),
                Err(syn) => {
                    let connect = self.ask(&syn);
                    self.confirmations.begin(syn, connect)
                }
            };
            if let Some(released) = released {
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
        socket::connect(socket, syn.server)
    }

    /// Sends a held SYN on: to our listener if its server has answered, and else to the server.
    pub(super) fn send_on(&self, Released { syn, confirmed }: Released) {
        let (Some(slot), Some(injector)) = (&self.slot, self.shared.injector.get()) else { return };
        let sent = slot
            .release(syn.client, syn.server, confirmed)
            .and_then(|()| injector.inject(&syn.packet));
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
