//! Hosts in a row, what lies between them, and the sockets on them.

mod events;

use std::collections::HashMap;
use std::sync::Arc;

use midspan_cc::feedback::Value;
use midspan_path::{Counters, Stretch, Way};
use midspan_split::{ClientLink, ServerPaths};
use midspan_tcp::{Endpoint, Metrics, Transmit};
use midspan_units::{Span, Time};

use crate::agenda::Agenda;
use crate::dialogue::Dialogues;
use crate::hold::{Hold, Latenesses};
use crate::host::{Host, UE};
use crate::log::{Logged, Told};
use crate::net::Net;
use crate::packet::Datagram;
use crate::socket::{Acquaintance, Setup, Socket, SocketId, Tcp, User};
use crate::splitter::Splitter;
use crate::tap::Tapped;

/// Everything that is simulated.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) net: Net,
    /// How many lanes it has.
    lanes: usize,
    pub(crate) sockets: Vec<Option<Socket>>,
    free: Vec<SocketId>,
    pub(crate) flows: Vec<Splitter>,
    free_flows: Vec<usize>,
    /// What clients and servers have to say to each other.
    pub(crate) dialogues: Dialogues,
    /// Connections opened so far.
    connections: u32,
    /// Lanes of the net first, then sockets.
    agenda: Agenda,
    /// Relay flows that something happened to.
    woken: Vec<usize>,
    /// What hosts remember of their peers.
    remembered: HashMap<Acquaintance, Metrics>,
    /// How late segments come to a host from a UE.
    latenesses: Latenesses,
    /// What relays on a host know of the links of UEs.
    client_links: HashMap<(Host, u32), Arc<ClientLink>>,
    /// What relays on a host know of the way to another.
    pub(crate) server_paths: ServerPaths<Acquaintance>,
    /// What NetAssist says last of the UE's link, and to which host.
    feedback: Option<(Host, Value)>,
    /// Events handled: packets that left a link, and timers.
    pub(crate) events: u64,
    /// Who is told of packets.
    tapped: Option<Tapped>,
    /// Who is told of what senders do.
    pub(crate) logged: Option<Logged>,
}

impl World {
    pub(crate) fn new(net: Net, tapped: Option<Tapped>, logged: Option<Logged>) -> World {
        World {
            now: Time::ZERO,
            lanes: net.lanes(),
            net,
            sockets: Vec::new(),
            free: Vec::new(),
            flows: Vec::new(),
            free_flows: Vec::new(),
            dialogues: Dialogues::default(),
            connections: 0,
            agenda: Agenda::new(),
            woken: Vec::new(),
            remembered: HashMap::new(),
            latenesses: Latenesses::default(),
            client_links: HashMap::new(),
            server_paths: ServerPaths::default(),
            feedback: None,
            events: 0,
            tapped,
            logged,
        }
    }

    /// What the stretches between hosts have done so far.
    pub(crate) fn stretches(&self) -> Vec<Stretch> {
        self.net.stretches()
    }

    /// The counters of each stretch: up, down.
    pub(crate) fn counters(&self) -> Vec<(Counters, Counters)> {
        self.stretches().into_iter().map(|stretch| stretch.counters).collect()
    }

    /// The bytes that wait on each link, up and down.
    pub(crate) fn waiting(&self) -> Vec<(&'static str, [u64; 2])> {
        self.net.waiting()
    }

    /// Forgets the delays so far.
    pub(crate) fn restart_delays(&mut self) {
        self.net.restart_delays();
    }

    /// Opens a connection of a UE's from `from` to `to`, where nothing listens before, and answers its
    /// two sockets.
    pub(crate) fn connect(
        &mut self,
        ue: u32,
        from: (Setup, User),
        to: (Setup, User),
    ) -> (SocketId, SocketId) {
        let (mut setup, user) = from;
        self.connections = self.connections.wrapping_add(1);
        let connection = self.connections;
        let initiator = self.place();
        let acceptor = self.place();
        let between = [setup.host, to.0.host];
        if let Some(tapped) = &mut self.tapped {
            let on = match user {
                User::Relay(flow) => self.flows[flow].legs.client,
                User::Application(_) => None,
            };
            let on = on.and_then(|id| Some(self.sockets[id].as_ref()?.connection));
            let split = matches!(to.1, User::Relay(_));
            tapped.connect(ue, between, acceptor as u32, on, split);
        }
        let acquaintance = setup.remembers.then_some((between[0], between[1], ue));
        setup.config.remembered_rtt = recall(&self.remembered, acquaintance);
        let mut ends = [None, None];
        if let Some(logged) = &mut self.logged {
            let [host, peer] = between;
            let first = logged.open(host, peer, true, setup.control.name());
            let second = logged.open(peer, host, false, to.0.control.name());
            ends = [first, second].map(|end| Some(Box::new(end)));
        }
        let [end, other_end] = ends;
        let mut tcp = Endpoint::connect(setup.config, setup.control, self.now, 0);
        if end.is_some() {
            tcp.watch();
        }
        self.sockets[initiator] = Some(Socket {
            host: between[0],
            acquaintance,
            ue,
            peer: acceptor,
            connection,
            tcp: Tcp::Open(Box::new(tcp)),
            user,
            hold: None,
            end,
        });
        let (setup, user) = to;
        self.sockets[acceptor] = Some(Socket {
            host: between[1],
            acquaintance: setup.remembers.then_some((between[1], between[0], ue)),
            ue,
            peer: initiator,
            connection,
            hold: Hold::new(setup.reordering_hold),
            end: other_end,
            tcp: Tcp::Listening(Box::new(setup)),
            user,
        });
        self.run_user(initiator);
        (initiator, acceptor)
    }

    /// The connections of `host` with the UE go by this from now on, those to come as well.
    pub(crate) fn tell(&mut self, host: Host, feedback: Value) {
        self.feedback = Some((host, feedback));
        for socket in 0..self.sockets.len() {
            self.deliver_feedback(socket);
        }
    }

    /// Gives a socket the feedback that there is for it.
    fn deliver_feedback(&mut self, id: SocketId) {
        let Some((host, feedback)) = self.feedback else { return };
        let peer_of =
            |id: SocketId| Some(self.sockets[self.sockets[id].as_ref()?.peer].as_ref()?.host);
        if peer_of(id) == Some(UE)
            && let Some(socket) = self.sockets[id].as_mut().filter(|socket| socket.host == host)
            && let Some(endpoint) = socket.endpoint_mut()
        {
            endpoint.set_feedback(feedback);
        }
    }

    fn place(&mut self) -> SocketId {
        self.free.pop().unwrap_or_else(|| {
            self.sockets.push(None);
            self.sockets.len() - 1
        })
    }

    /// A relay's flow, and its number. Numbers of flows that were dropped are given again.
    pub(crate) fn split(&mut self, splitter: Splitter) -> usize {
        if let Some(number) = self.free_flows.pop() {
            self.flows[number] = splitter;
            return number;
        }
        self.flows.push(splitter);
        self.flows.len() - 1
    }

    /// What a relay on `host` knows of a UE's link.
    pub(crate) fn client_link(&mut self, host: Host, ue: u32) -> Arc<ClientLink> {
        self.client_links.entry((host, ue)).or_default().clone()
    }

    /// Drops a connection from its client's socket on, through all relays, with everything that is under
    /// way.
    pub(crate) fn drop_connection(&mut self, client: SocketId) {
        let mut next = self.remove(client).map(|socket| socket.peer);
        while let Some(peer) = next.and_then(|peer| self.remove(peer)) {
            let User::Relay(flow) = peer.user else { return };
            self.free_flows.push(flow);
            self.flows[flow].link = None;
            let onward = self.flows[flow].server_leg().and_then(|leg| self.remove(leg));
            next = onward.map(|leg| leg.peer);
            if next.is_none() {
                self.free_flows.extend(self.flows[flow].awaited());
            }
        }
    }

    /// Forgets all flows; their sockets are gone.
    pub(crate) fn forget_flows(&mut self) {
        self.flows.clear();
        self.free_flows.clear();
    }

    /// Removes a connection's socket. Packets that are still under way to it are dropped.
    pub(crate) fn remove(&mut self, socket: SocketId) -> Option<Socket> {
        self.log(socket);
        let removed = self.sockets.get_mut(socket)?.take()?;
        if let Some(acquaintance) = removed.acquaintance
            && let Some(endpoint) = removed.endpoint()
        {
            self.remembered.entry(acquaintance).or_default().learn(endpoint);
        }
        if let (Some(logged), Some(end)) = (&mut self.logged, &removed.end) {
            logged.tell(end, Told::Over);
        }
        self.free.push(socket);
        self.agenda.set(self.lanes + socket, Time::MAX);
        Some(removed)
    }

    fn run_user(&mut self, id: SocketId) {
        let now = self.now;
        let Some(socket) = self.sockets[id].as_mut() else { return };
        match &mut socket.user {
            User::Relay(flow) => self.woken.push(*flow),
            User::Application(application) => {
                if let Tcp::Open(endpoint) = &mut socket.tcp {
                    application.act(now, endpoint, &mut self.dialogues);
                }
                self.flush(id);
                if self.close_if_due(id) {
                    self.flush(id);
                }
            }
        }
    }

    fn close_if_due(&mut self, id: SocketId) -> bool {
        match self.sockets[id].as_mut() {
            Some(Socket {
                user: User::Application(application), tcp: Tcp::Open(endpoint), ..
            }) => application.close(endpoint),
            _ => false,
        }
    }

    fn reschedule(&mut self, lane: usize) {
        for lane in std::iter::once(lane).chain(self.net.aside()) {
            self.agenda.set(lane, self.net.next(lane));
        }
    }

    /// Sends what a socket has to send.
    pub(crate) fn flush(&mut self, id: SocketId) {
        let Some(socket) = self.sockets[id].as_mut() else { return };
        let Socket { host, ue, peer, connection, .. } = *socket;
        let Some(to) = self.sockets.get(peer).and_then(Option::as_ref).map(|peer| peer.host) else {
            return;
        };
        let (way, now) = (way(host, to), self.now);
        let Some(Socket { tcp: Tcp::Open(endpoint), hold, .. }) = self.sockets[id].as_mut() else {
            return;
        };
        let mut sent = None;
        loop {
            let due = || Some(Transmit { segment: hold.as_mut()?.take_due(now)?, burst: 0 });
            let Some(transmit) = endpoint.poll_transmit(now).or_else(due) else { break };
            let mut segment = transmit.segment;
            if let Some(hold) = hold {
                let told = hold.tell(&self.latenesses, (host, ue), segment, now);
                let Some(told) = told else { continue };
                segment = told;
            }
            let to = peer as u32;
            let datagram = Datagram::new(segment, ue, to, connection, transmit.burst);
            if let Some(tapped) = &mut self.tapped {
                tapped.sent(now, host, &datagram);
            }
            sent = Some(self.net.enqueue(now, host, way, datagram));
        }
        if let Some(lane) = sent {
            self.reschedule(lane);
        }
        self.log(id);
        self.rearm(id);
    }

    /// Tells what a socket has done, if somebody wants to know.
    fn log(&mut self, id: SocketId) {
        let Some(logged) = &mut self.logged else { return };
        if let Some(Some(Socket { tcp: Tcp::Open(endpoint), end: Some(end), .. })) =
            self.sockets.get_mut(id)
        {
            for (at, event) in endpoint.take_events() {
                logged.tell(end, Told::Event(at, &event));
            }
        }
    }

    /// Sets the alarm of a socket. One that only moves later is left, and set when it rings.
    fn rearm(&mut self, id: SocketId) {
        if let Some(socket) = &self.sockets[id]
            && let Tcp::Open(_) = socket.tcp
        {
            self.agenda.set(self.lanes + id, socket.timeout().unwrap_or(Time::MAX));
        }
    }
}

/// The round-trip time that is remembered, if any.
fn recall(
    remembered: &HashMap<Acquaintance, Metrics>,
    acquaintance: Option<Acquaintance>,
) -> Option<Span> {
    remembered.get(&acquaintance?)?.rtt()
}

fn way(from: Host, to: Host) -> Way {
    if to > from { Way::Up } else { Way::Down }
}
