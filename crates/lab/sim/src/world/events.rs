//! What happens in the world, one event after the other.

use midspan_tcp::Endpoint;
use midspan_units::Time;

use super::{World, recall, way};
use crate::host::{ENB, Host};
use crate::net::Net;
use crate::packet::Datagram;
use crate::relay;
use crate::socket::{Setup, Socket, SocketId, Tcp, User};
use crate::splitter::Splitter;

impl World {
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
            let lanes = self.lanes;
            if source < lanes {
                self.deliver(source);
            } else {
                self.time_out(source - lanes);
            }
        }
    }

    /// Takes what leaves a lane by now.
    fn deliver(&mut self, lane: usize) {
        while let Some((host, datagram)) = self.net.dequeue(self.now, lane) {
            self.arrive(host, datagram);
        }
        self.reschedule(lane);
        if let Net::Cells(mobile) = &mut self.net {
            while let Some(handover) = mobile.handover() {
                if let Some(held) = held_at(ENB, handover.user, &self.sockets, &self.flows) {
                    mobile.move_context(&handover, held);
                }
            }
        }
    }

    /// A packet has come to `host`: goes on, or is there.
    fn arrive(&mut self, host: Host, datagram: Datagram) {
        if let Some(tapped) = &mut self.tapped {
            tapped.came(self.now, host, &datagram);
        }
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
        if let Some(hold) = &mut socket.hold {
            hold.came(&mut self.latenesses, (host, socket.ue), &datagram.segment, self.now);
        }
        match &mut socket.tcp {
            Tcp::Open(endpoint) => endpoint.receive(self.now, &datagram.segment),
            Tcp::Listening(setup) if datagram.segment.syn => {
                let Setup { mut config, control, .. } = (**setup).clone();
                config.remembered_rtt = recall(&self.remembered, socket.acquaintance);
                let mut endpoint =
                    Endpoint::accept(config, control, self.now, 0, &datagram.segment);
                if socket.end.is_some() {
                    endpoint.watch();
                }
                socket.tcp = Tcp::Open(Box::new(endpoint));
                self.deliver_feedback(id);
            }
            Tcp::Listening(_) => return,
        }
        self.wake(id);
    }

    fn send(&mut self, from: Host, to: Host, datagram: Datagram) {
        if let Some(tapped) = &mut self.tapped {
            tapped.sent(self.now, from, &datagram);
        }
        let lane = self.net.enqueue(self.now, from, way(from, to), datagram);
        self.reschedule(lane);
    }

    fn time_out(&mut self, id: SocketId) {
        // A socket of a base station's relay that is moved to another one does nothing meanwhile.
        if let Net::Cells(mobile) = &self.net
            && let Some(socket) = &self.sockets[id]
            && let Some(until) = mobile.moving(self.now, socket.host, socket.ue)
        {
            self.agenda.set(self.lanes + id, until);
            return;
        }
        let Some(socket) = self.sockets[id].as_mut() else { return };
        if socket.timeout().is_none_or(|at| at > self.now) {
            self.rearm(id);
            return;
        }
        if let Some(endpoint) = socket.endpoint_mut()
            && endpoint.poll_timeout().is_some_and(|at| at <= self.now)
        {
            endpoint.on_timer(self.now);
        }
        self.wake(id);
    }

    /// Something has happened to a socket: lets its user act, and sends what is to be sent.
    pub(crate) fn wake(&mut self, id: SocketId) {
        self.run_user(id);
        // A leg that moved lets the other one move.
        while let Some(flow) = self.woken.pop() {
            relay::turn(self, flow);
        }
    }
}

/// Bytes that relays on `host` hold of a UE's, in their sockets and between them; none without a
/// relay of its there.
fn held_at(host: Host, ue: u32, sockets: &[Option<Socket>], flows: &[Splitter]) -> Option<u64> {
    let here = || sockets.iter().flatten().filter(|socket| socket.host == host && socket.ue == ue);
    here().next()?;
    let in_socket = |socket: &Socket| {
        socket.endpoint().map_or(0, |endpoint| {
            endpoint.written() - endpoint.acknowledged() + endpoint.readable()
        })
    };
    // Each flow has a socket of its on either side.
    let between = |socket: &Socket| match socket.user {
        User::Relay(flow) => flows[flow].held(),
        User::Application(_) => 0,
    };
    Some(here().map(|socket| in_socket(socket) + between(socket) / 2).sum())
}
