//! Hosts in a row, the links between them, the sockets on them, and the order of events.

use midspan_cc::Control;
use midspan_cc::feedback::Value;
use midspan_path::{Counters, Link, Path, Times, Way};
use midspan_tcp::{Config, Endpoint};
use midspan_units::Time;

use crate::agenda::Agenda;
use crate::application::Application;
use crate::dialogue::Dialogues;
use crate::packet::Datagram;
use crate::relay::Splitter;
use crate::setup::UE;

/// A host, counted from the UE.
pub(crate) type Host = usize;

/// A socket's number. Numbers of sockets that were removed are given again.
pub(crate) type SocketId = usize;

/// What a socket is set up with.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) host: Host,
    pub(crate) config: Config,
    pub(crate) control: Control,
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
    pub(crate) peer: SocketId,
    /// Which connection it is an end of.
    connection: u32,
    pub(crate) tcp: Tcp,
    pub(crate) user: User,
}

impl Socket {
    /// The endpoint, once there is one.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        match &self.tcp {
            Tcp::Open(endpoint) => Some(endpoint),
            Tcp::Listening(_) => None,
        }
    }

    pub(crate) fn endpoint_mut(&mut self) -> Option<&mut Endpoint> {
        match &mut self.tcp {
            Tcp::Open(endpoint) => Some(endpoint),
            Tcp::Listening(_) => None,
        }
    }
}

/// Everything that is simulated.
pub(crate) struct World {
    pub(crate) now: Time,
    path: Path<Datagram>,
    pub(crate) sockets: Vec<Option<Socket>>,
    free: Vec<SocketId>,
    pub(crate) flows: Vec<Splitter>,
    /// What clients and servers have to say to each other.
    pub(crate) dialogues: Dialogues,
    /// Connections opened so far.
    connections: u32,
    /// Directions of links first, two for each link, then sockets.
    agenda: Agenda,
    /// Relay flows that something happened to.
    stirred: Vec<usize>,
    /// What NetAssist says last of the UE's link, and to which host.
    feedback: Option<(Host, Value)>,
    /// Events handled: packets that left a link, and timers.
    pub(crate) events: u64,
}

impl World {
    /// `path` has the links between the hosts, in their order.
    pub(crate) fn new(path: Path<Datagram>) -> World {
        World {
            now: Time::ZERO,
            path,
            sockets: Vec::new(),
            free: Vec::new(),
            flows: Vec::new(),
            dialogues: Dialogues::default(),
            connections: 0,
            agenda: Agenda::new(),
            stirred: Vec::new(),
            feedback: None,
            events: 0,
        }
    }

    fn lanes(&self) -> usize {
        2 * self.path.links.len()
    }

    /// The counters of each link: up, down.
    pub(crate) fn counters(&self) -> Vec<(Counters, Counters)> {
        let both = |link: &Link<Datagram>| (link.counters(Way::Up), link.counters(Way::Down));
        self.path.links.iter().map(both).collect()
    }

    /// The delays on each link: up, down.
    pub(crate) fn delays(&self) -> impl Iterator<Item = (&Times, &Times)> {
        self.path.links.iter().map(|link| (link.delays(Way::Up), link.delays(Way::Down)))
    }

    /// Forgets the delays so far.
    pub(crate) fn restart_delays(&mut self) {
        for link in &mut self.path.links {
            link.restart_delays(Way::Up);
            link.restart_delays(Way::Down);
        }
    }

    /// Opens a connection from `from` to `to`, where nothing listens before, and answers its two
    /// sockets.
    pub(crate) fn connect(
        &mut self,
        from: (Setup, User),
        to: (Setup, User),
    ) -> (SocketId, SocketId) {
        let (setup, user) = from;
        self.connections = self.connections.wrapping_add(1);
        let connection = self.connections;
        let initiator = self.place();
        let acceptor = self.place();
        let tcp = Endpoint::connect(setup.config, setup.control, self.now, 0);
        let host = setup.host;
        self.sockets[initiator] =
            Some(Socket { host, peer: acceptor, connection, tcp: Tcp::Open(Box::new(tcp)), user });
        let (setup, user) = to;
        let host = setup.host;
        self.sockets[acceptor] = Some(Socket {
            host,
            peer: initiator,
            connection,
            tcp: Tcp::Listening(Box::new(setup)),
            user,
        });
        self.stir(initiator);
        (initiator, acceptor)
    }

    /// The connections of `host` with the UE go by this from now on, those to come as well.
    pub(crate) fn tell(&mut self, host: Host, feedback: Value) {
        self.feedback = Some((host, feedback));
        for socket in 0..self.sockets.len() {
            self.inform(socket);
        }
    }

    /// Gives a socket the feedback that there is for it.
    fn inform(&mut self, id: SocketId) {
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

    /// Removes a connection's socket. Packets that are still under way to it are dropped.
    pub(crate) fn remove(&mut self, socket: SocketId) -> Option<Socket> {
        let removed = self.sockets.get_mut(socket)?.take()?;
        self.free.push(socket);
        self.agenda.set(self.lanes() + socket, Time::MAX);
        Some(removed)
    }

    /// Lets everything happen up to and including `until`, or until `done`. Whether it is done.
    pub(crate) fn run(&mut self, until: Time, mut done: impl FnMut(&World) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            let Some((at, source)) = self.agenda.first().filter(|(at, _)| *at <= until) else {
                self.now = until;
                return false;
            };
            self.now = at;
            self.events += 1;
            let lanes = self.lanes();
            if source < lanes {
                self.deliver(source);
            } else {
                self.time_out(source - lanes);
            }
        }
    }

    /// Takes what leaves a direction of a link by now.
    fn deliver(&mut self, lane: usize) {
        let (link, up) = (lane / 2, lane.is_multiple_of(2));
        let host = if up { link + 1 } else { link };
        while let Some((_, datagram)) = self.path.links[link].dequeue(way(lane), self.now) {
            self.arrive(host, datagram);
        }
        self.reschedule(lane);
    }

    fn reschedule(&mut self, lane: usize) {
        let next = self.path.links[lane / 2].next_event(way(lane));
        self.agenda.set(lane, next.unwrap_or(Time::MAX));
    }

    /// A packet has come to `host`: goes on, or is there.
    fn arrive(&mut self, host: Host, datagram: Datagram) {
        let id = datagram.to as usize;
        let Some(socket) =
            self.sockets[id].as_mut().filter(|socket| socket.connection == datagram.connection)
        else {
            return;
        };
        if socket.host != host {
            let to = socket.host;
            self.send(host, to, datagram);
            return;
        }
        match &mut socket.tcp {
            Tcp::Open(endpoint) => endpoint.receive(self.now, &datagram.segment),
            Tcp::Listening(setup) if datagram.segment.syn => {
                let Setup { config, control, .. } = (**setup).clone();
                let endpoint = Endpoint::accept(config, control, self.now, 0, &datagram.segment);
                socket.tcp = Tcp::Open(Box::new(endpoint));
                self.inform(id);
            }
            Tcp::Listening(_) => return,
        }
        self.stir(id);
    }

    fn send(&mut self, from: Host, to: Host, datagram: Datagram) {
        let lane = if to > from { 2 * from } else { 2 * (from - 1) + 1 };
        self.path.links[lane / 2].enqueue(way(lane), self.now, datagram);
        self.reschedule(lane);
    }

    fn time_out(&mut self, id: SocketId) {
        if let Some(endpoint) = self.sockets[id].as_mut().and_then(Socket::endpoint_mut)
            && endpoint.poll_timeout().is_some_and(|at| at <= self.now)
        {
            endpoint.on_timer(self.now);
            self.stir(id);
        } else {
            self.wind(id);
        }
    }

    /// Something has happened to a socket: lets its user act, and sends what is to be sent.
    pub(crate) fn stir(&mut self, id: SocketId) {
        self.touch(id);
        // A leg that moved lets the other one move.
        while let Some(flow) = self.stirred.pop() {
            Splitter::turn(self, flow);
        }
    }

    fn touch(&mut self, id: SocketId) {
        let now = self.now;
        let Some(socket) = self.sockets[id].as_mut() else { return };
        match &mut socket.user {
            User::Relay(flow) => self.stirred.push(*flow),
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

    /// Sends what a socket has to send.
    pub(crate) fn flush(&mut self, id: SocketId) {
        let Some(socket) = self.sockets[id].as_mut() else { return };
        let Socket { host, peer, connection, .. } = *socket;
        let Some(to) = self.sockets.get(peer).and_then(Option::as_ref).map(|peer| peer.host) else {
            return;
        };
        let lane = if to > host { 2 * host } else { 2 * (host.max(1) - 1) + 1 };
        let now = self.now;
        let Some(endpoint) = self.sockets[id].as_mut().and_then(Socket::endpoint_mut) else {
            return;
        };
        let link = &mut self.path.links[lane / 2];
        let mut sent = false;
        while let Some(transmit) = endpoint.poll_transmit(now) {
            link.enqueue(
                way(lane),
                now,
                Datagram::new(transmit.segment, peer as u32, connection, transmit.burst),
            );
            sent = true;
        }
        if sent {
            self.reschedule(lane);
        }
        self.wind(id);
    }

    /// Sets the alarm of a socket. One that only moves later is left, and set when it rings.
    fn wind(&mut self, id: SocketId) {
        let Some(endpoint) = self.sockets[id].as_ref().and_then(Socket::endpoint) else { return };
        let at = endpoint.poll_timeout().unwrap_or(Time::MAX);
        self.agenda.set(self.lanes() + id, at);
    }
}

/// Of each link's two lanes the first goes up.
fn way(lane: usize) -> Way {
    if lane.is_multiple_of(2) { Way::Up } else { Way::Down }
}
