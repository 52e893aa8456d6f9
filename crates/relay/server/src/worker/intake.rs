//! Connections on their way in: from a listener until they are admitted or refused.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use midspan_forward::{Accepted, Forward, Frontend, HeaderOutcome};
use midspan_interception::is_probe;
use midspan_legs::{Counters, FlowMetadata};
use midspan_observe::{Count, subscriber};
use midspan_sockets::{self as sockets, Family, ListenAddress, NotAccepted, SynOptions};
use midspan_split::proxy_protocol::Ends;
use midspan_split::{PerLeg, Refusal};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::connect::ServerLeg;
use super::host::LiveHost;
use super::{Context, EventLoop, LISTENERS, read_ahead};
use crate::settings::Settings;

/// Connections taken from a listener at a time.
const ACCEPTS: usize = 64;
/// How long a listener rests when the system has no room for its connections.
const REST: Duration = Duration::from_millis(10);

impl EventLoop {
    /// Takes what waits at the listeners, up to a fair share; epoll tells again of the rest.
    pub(super) fn accept(&mut self) {
        while let Some(listener) = self.waiting_at.pop() {
            self.accept_at(listener);
        }
    }

    fn accept_at(&mut self, index: usize) {
        let Some(frontend) = self.frontends.get(index) else { return };
        for _ in 0..sockets::waiting(&frontend.listener).min(ACCEPTS) {
            let Some(frontend) = self.frontends.get(index) else { return };
            let forward = frontend.forward.clone();
            // Who was steered here when there was room waits for it, as at any server that is full.
            if forward.is_none() && self.host.slot.is_some() && self.is_full() {
                return self.rest();
            }
            match frontend.accept(self.host.now) {
                Ok(accepted) => self.welcome(accepted, forward),
                Err(NotAccepted::NoneWaiting) => return,
                Err(NotAccepted::Failed) => self.host.counters().refused_errors.add(1),
                Err(NotAccepted::NoRoom) => return self.rest(),
            }
        }
    }

    /// Whether all workers together have as many flows as they may.
    fn is_full(&self) -> bool {
        self.host.context.admission.room() == 0
    }

    /// Takes what still waits at the listeners, which closing would reset, and closes them.
    pub(super) fn close_listeners(&mut self) {
        for index in 0..self.frontends.len() {
            loop {
                let frontend = &self.frontends[index];
                let forward = frontend.forward.clone();
                match frontend.accept(self.host.now) {
                    Ok(accepted) => self.welcome(accepted, forward),
                    Err(NotAccepted::Failed) => self.host.counters().refused_errors.add(1),
                    Err(NotAccepted::NoneWaiting | NotAccepted::NoRoom) => break,
                }
            }
        }
        self.frontends.clear();
    }

    /// Stops watching the listeners for a while, rather than be told over and over of
    /// connections that cannot be taken.
    fn rest(&mut self) {
        self.watch_listeners(EventFlags::empty());
        self.rest_until = Some(self.host.now + REST);
    }

    pub(super) fn rest_over(&mut self) {
        if self.rest_until.is_some_and(|until| until <= self.host.now) {
            self.rest_until = None;
            self.watch_listeners(EventFlags::IN);
        }
    }

    fn watch_listeners(&self, flags: EventFlags) {
        for (index, frontend) in (0u64..).zip(&self.frontends) {
            let data = EventData::new_u64(LISTENERS + index);
            if let Err(error) = epoll::modify(&self.host.epoll, &frontend.listener.fd, data, flags)
            {
                tracing::error!(%error, "a listener could not be watched");
            }
        }
    }

    /// Takes a connection, once it is known whose it is; or resets it: dropping its socket does.
    fn welcome(&mut self, accepted: Accepted, forward: Option<Arc<Forward>>) {
        let Some(forward) = forward else { return self.take(accepted, None) };
        if !forward.is_told() {
            return self.introduce(accepted, forward, None);
        }
        if !forward.trusts(accepted.client.ip()) {
            return self.host.counters().refused_proxy.add(1);
        }
        // Each has a descriptor, of those that are there for flows.
        let room = self.host.context.admission.room() as usize / self.host.context.workers.count();
        if self.proxy_headers.len() >= room {
            return self.host.counters().refused_flows.add(1);
        }
        if let Some(outcome) = self.proxy_headers.begin(accepted, forward, self.now()) {
            self.header_read(outcome);
        }
    }

    pub(super) fn handle_proxy_headers(&mut self) {
        for outcome in self.proxy_headers.handle() {
            self.header_read(outcome);
        }
    }

    pub(super) fn expire_proxy_headers(&mut self) {
        let refused = self.proxy_headers.expire(self.now());
        self.host.counters().refused_header.add(refused);
    }

    fn header_read(&mut self, outcome: HeaderOutcome) {
        match outcome {
            HeaderOutcome::Whole(accepted, forward, ends) => {
                self.introduce(accepted, forward, ends)
            }
            HeaderOutcome::Refused => self.host.counters().refused_header.add(1),
        }
    }

    /// Takes a connection that is passed on, whose ends are its own unless a proxy has told others.
    fn introduce(&mut self, mut accepted: Accepted, forward: Arc<Forward>, ends: Option<Ends>) {
        if let Some(version) = forward.send {
            let client = accepted.client;
            let own = || Some(Ends { client, server: sockets::address_of(&accepted.socket)? });
            let Some(ends) = ends.or_else(own) else {
                return self.host.counters().refused_errors.add(1);
            };
            accepted.preface = Some(ends.header(version));
        }
        if let Some(ends) = ends {
            accepted.client = ends.client;
        }
        if !forward.takes(accepted.client.ip()) {
            return self.host.counters().refused_client.add(1);
        }
        self.take(accepted, Some(forward));
    }

    /// Starts a flow, to the first of `forward` that can be connected to, or else to whom the client
    /// wanted; or resets the client; or leaves it to a worker that has fewer flows.
    fn take(&mut self, accepted: Accepted, forward: Option<Arc<Forward>>) {
        if forward.is_none() && is_probe(accepted.client.ip(), accepted.server) {
            self.host.counters().probes.add(1);
            return self.host.context.probes.give(accepted.socket);
        }
        let confirmed = self.deferred.claim(&(accepted.client, accepted.server));
        // What is steered here was let in when there was room, and has been told so. If buffers are gone since, it
        // waits for one.
        let is_steered = forward.is_none() && self.host.slot.is_some();
        if !is_steered && !self.host.pool.has_room() {
            return self.host.counters().refused_buffered.add(1);
        }
        // The steering program has chosen this worker for what it has steered.
        if !is_steered
            && confirmed.is_none()
            && let Some(other) = self.who_has_fewer()
        {
            return match self.hand_over(other, Box::new((accepted, forward))) {
                Ok(()) => self.host.counters().handed_over.add(1),
                // That one has ended.
                Err(back) => self.keep(back.0, back.1, None),
            };
        }
        self.keep(accepted, forward, confirmed);
    }

    /// The same, but leaves it to nobody.
    pub(super) fn keep(
        &mut self,
        accepted: Accepted,
        forward: Option<Arc<Forward>>,
        confirmed: Option<OwnedFd>,
    ) {
        let server_leg = match self.admit(&accepted, forward.is_some(), confirmed) {
            Ok(server_leg) => server_leg,
            Err(refusal) => return refusal(self.host.counters()).add(1),
        };
        // Counted before the server can know of it, so that who knows of it finds it counted.
        let Accepted { client, server, syn, mptcp, .. } = accepted;
        self.host.counters().accepted.add(1);
        self.host.counters().active.set(self.flows.flows().len() as u64 + 1);
        self.host.counters().mptcp.add(u64::from(mptcp));
        count_declined(self.host.counters(), syn, self.host.settings.config.fast_open);
        let (start, spliced) = (self.host.now, PerLeg::default());
        let id = self.host.context.observer.identify(&accepted, self.now());
        let metadata = FlowMetadata { id, client, server, start, connected: None, spliced };
        self.host.context.observer.begins(self.host.index, &metadata);
        let (subscriber, now) = (subscriber(client.ip()), self.now());
        let ahead = read_ahead(&self.host.settings.config);
        let begin =
            |key, host: &mut LiveHost| host.begin(key, accepted, metadata, server_leg, forward);
        match self.flows.open(subscriber, ahead, now, &mut self.host, begin) {
            Ok(_) => self.balance(),
            Err(error) => {
                tracing::debug!(%server, %error, "the server leg could not connect");
                self.host.counters().connect_failed.add(1);
                let Context { observer, .. } = &self.host.context;
                observer.not_started(self.host.index, &metadata, self.host.now);
                self.host.counters().active.set(self.flows.flows().len() as u64);
            }
        }
    }

    /// Whether the connection is taken. If so it is admitted, and this is its server leg's
    /// socket; if not this is the count of its kind.
    fn admit(
        &mut self,
        accepted: &Accepted,
        is_forwarded: bool,
        confirmed: Option<OwnedFd>,
    ) -> Result<ServerLeg, fn(&Counters) -> &Count> {
        let config = &self.host.settings.config;
        let Accepted { client, server, syn, .. } = accepted;
        if !is_forwarded {
            if self.frontends.iter().any(|frontend| frontend.listener.is_at(*server)) {
                return Err(|counters| &counters.refused_direct);
            }
            if !self.host.clients.iter().any(|prefix| prefix.contains(&client.ip())) {
                return Err(|counters| &counters.refused_client);
            }
        }
        let open = || sockets::open(*server, &config.server_leg, !is_forwarded, syn.dscp);
        let server_leg = match confirmed {
            Some(socket) => ServerLeg::Connected(socket),
            None => ServerLeg::New(open().map_err(|error| {
                let count: fn(&Counters) -> &Count = match Errno::from_io_error(&error) {
                    Some(Errno::MFILE | Errno::NFILE) => |counters| &counters.refused_descriptors,
                    _ => |counters| &counters.refused_errors,
                };
                count
            })?),
        };
        match self.flows.admit(subscriber(client.ip()), &mut self.host) {
            Ok(()) => Ok(server_leg),
            Err(Refusal::TooManyFlows) => Err(|counters| &counters.refused_flows),
            Err(Refusal::TooManyOfClient) => Err(|counters| &counters.refused_flows_per_client),
        }
    }
}

/// All places at which a worker listens.
pub(super) fn frontends(
    settings: &Settings,
    place: ListenAddress,
) -> Result<Vec<Frontend>, (String, io::Error)> {
    let config = &settings.config;
    let mut frontends = Vec::new();
    for family in [Family::V4, Family::V6] {
        let is_wanted = |prefix: &IpNet| Family::of(prefix.addr()) == family;
        if config.clients.iter().any(is_wanted) {
            let listener = sockets::listen(family, place, config).map_err(|error| {
                let hint = "a port of any address (it takes CAP_NET_ADMIN, and one that is free)";
                (hint.to_owned(), error)
            });
            frontends.push(Frontend { listener: listener?, forward: None });
        }
    }
    for forward in &settings.forwards {
        let address = &forward.listen;
        let family = Family::of(address.ip());
        let listener = sockets::listen(family, ListenAddress::Open(*address), config)
            .map_err(|error| (address.to_string(), error))?;
        frontends.push(Frontend { listener, forward: Some(forward.clone()) });
    }
    Ok(frontends)
}

/// Counts what a client has offered and the relay does not carry across.
fn count_declined(counters: &Counters, syn: SynOptions, accepts_fast_open: bool) {
    let SynOptions { mptcp, fast_open, other, .. } = syn;
    for (offered, count) in [
        (mptcp, &counters.declined_mptcp),
        (fast_open && !accepts_fast_open, &counters.declined_fast_open),
        (other, &counters.declined_options),
    ] {
        if offered {
            count.add(1);
        }
    }
}
