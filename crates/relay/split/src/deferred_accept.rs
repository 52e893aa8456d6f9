//! The deferred accept: servers are asked before their clients are answered.

use core::net::SocketAddr;
use std::collections::{HashMap, VecDeque};
use std::fmt;

use midspan_units::{Span, Time};

use crate::slab::Key;
use crate::waits::Waits;

/// How long a server may take that its client has not asked again meanwhile. One that has is passed at
/// its first retransmission, a second after its SYN (RFC 6298, 2.1).
const PATIENCE: Span = Span::from_secs(3);
/// How long a client may take to come after its server has answered, which is not told so until then: Linux keeps an
/// acknowledgement back for 200 ms. One that comes later has its server connected to anew; one that does not
/// exist leaves no connection at a server.
const ARRIVAL: Span = Span::from_millis(150);
/// How often a server is asked from a port that a former connection still has.
const PORT_RETRY: Span = Span::from_millis(2);
/// How long it is tried: less than it takes the client to ask again (RFC 6298, 2.1).
const PORT_RETRIES: Span = Span::from_millis(800);

/// Who wants to connect to whom: the client, and the server.
pub type Ends = (SocketAddr, SocketAddr);

/// What servers are asked with, and SYNs are sent on with. No call blocks.
pub trait Asking {
    /// A client's SYN that is held.
    type Syn: fmt::Debug;
    /// The connection to a server.
    type Connection: fmt::Debug;

    /// Whose it is.
    fn ends(syn: &Self::Syn) -> Ends;

    /// Begins to connect to the server of a SYN. That it has answered, or has refused, is [told](DeferredAccept::event) by
    /// this key.
    fn ask(&mut self, key: Key, syn: &Self::Syn) -> ConnectAttempt<Self::Connection>;

    /// Whether a server has answered and not refused, and is still there.
    fn is_connected(&mut self, connection: &Self::Connection) -> bool;

    /// Lets a SYN go on: to the relay if its server has `answered`, and else to the server.
    fn send_on(&mut self, syn: Self::Syn, answered: bool);
}

/// What asking comes to.
#[derive(Debug)]
pub enum ConnectAttempt<C> {
    /// It is under way.
    Begun(C),
    /// A former connection still has the client's port.
    PortInUse,
    /// It cannot be.
    Failed,
}

/// The clients of one worker whose SYN is held until their server has answered.
#[derive(Debug)]
pub struct DeferredAccept<H: Asking> {
    asked: Waits<(H::Syn, H::Connection)>,
    by_ends: HashMap<Ends, Key>,
    /// Those whose port a former connection still has: when to ask again, and when they came.
    port_waits: VecDeque<(Time, Time, H::Syn)>,
    /// Connected, and waiting for their client.
    connected: HashMap<Ends, (Time, H::Connection)>,
    arrivals: VecDeque<(Time, Ends)>,
}

impl<H: Asking> Default for DeferredAccept<H> {
    fn default() -> Self {
        DeferredAccept {
            asked: Waits::new(PATIENCE),
            by_ends: HashMap::new(),
            port_waits: VecDeque::new(),
            connected: HashMap::new(),
            arrivals: VecDeque::new(),
        }
    }
}

impl<H: Asking> DeferredAccept<H> {
    /// Servers that are asked, and connections that wait for their client.
    pub fn len(&self) -> usize {
        self.asked.len() + self.port_waits.len() + self.connected.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a SYN, whose server is asked if fewer than `most` are.
    ///
    /// Where the server was asked before, for a SYN that its client has sent again or for another one with the same addresses
    /// and ports, and has not answered yet, it is asked no longer: the client shall ask it itself. The SYN that came before
    /// goes nowhere: this one does in its place.
    pub fn hold(&mut self, syn: H::Syn, most: usize, now: Time, host: &mut H) {
        let ends = H::ends(&syn);
        if self.connected.contains_key(&ends) {
            return host.send_on(syn, true);
        }
        if let Some((_, connection)) = self.take(&ends) {
            // The answer may be there, and we were not told yet.
            return self.settle(syn, connection, now, host);
        }
        if !self.port_waits.is_empty() {
            self.port_waits.retain(|(.., other)| H::ends(other) != ends);
        }
        match self.len() < most {
            true => self.ask(syn, now, now, host),
            false => host.send_on(syn, false),
        }
    }

    /// A server has answered or refused. Without effect if it is asked no longer.
    pub fn event(&mut self, key: Key, now: Time, host: &mut H) {
        let Some((syn, connection)) = self.asked.remove(key) else { return };
        self.by_ends.remove(&H::ends(&syn));
        self.settle(syn, connection, now, host);
    }

    /// The connection to the server of a client that has come.
    pub fn claim(&mut self, ends: &Ends) -> Option<H::Connection> {
        if self.connected.is_empty() {
            return None;
        }
        self.connected.remove(ends).map(|(_, connection)| connection)
    }

    /// When there is something for [`run_timers`](DeferredAccept::run_timers) to do.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        let asked = self.asked.poll_timeout();
        let arrival = self.arrivals.front().map(|&(due, _)| due);
        let port = self.port_waits.front().map(|&(due, ..)| due);
        [asked, arrival, port].into_iter().flatten().min()
    }

    /// Asks again from ports that were in use, and gives up servers that have not answered in time, and clients that have
    /// not come.
    pub fn run_timers(&mut self, now: Time, host: &mut H) {
        // Those that go to the end of the queue are not due.
        while let Some(&(due, came, _)) = self.port_waits.front()
            && due <= now
            && let Some((.., syn)) = self.port_waits.pop_front()
        {
            self.ask(syn, came, now, host);
        }
        while let Some((syn, connection)) = self.asked.take_expired(now) {
            // Before the client's own.
            drop(connection);
            self.by_ends.remove(&H::ends(&syn));
            host.send_on(syn, false);
        }
        while let Some(&(due, ends)) = self.arrivals.front() {
            let waits = self.connected.get(&ends).is_some_and(|&(at, _)| at == due);
            if waits && now < due {
                break;
            }
            if waits {
                // Its server is reset.
                self.connected.remove(&ends);
            }
            self.arrivals.pop_front();
        }
    }

    /// Asks the server of a SYN that came at this time.
    fn ask(&mut self, syn: H::Syn, came: Time, now: Time, host: &mut H) {
        match host.ask(self.asked.next_key(), &syn) {
            ConnectAttempt::Begun(connection) => {
                let ends = H::ends(&syn);
                let key = self.asked.insert((syn, connection), now);
                self.by_ends.insert(ends, key);
            }
            ConnectAttempt::PortInUse if now < came + PORT_RETRIES => {
                self.port_waits.push_back((now + PORT_RETRY, came, syn));
            }
            ConnectAttempt::PortInUse | ConnectAttempt::Failed => host.send_on(syn, false),
        }
    }

    /// Takes what is asked for these.
    fn take(&mut self, ends: &Ends) -> Option<(H::Syn, H::Connection)> {
        self.by_ends.remove(ends).and_then(|key| self.asked.remove(key))
    }

    /// Has a connection wait for its client, if the server has answered and not refused.
    fn settle(&mut self, syn: H::Syn, connection: H::Connection, now: Time, host: &mut H) {
        let answered = host.is_connected(&connection);
        if answered {
            let (due, ends) = (now + ARRIVAL, H::ends(&syn));
            self.connected.insert(ends, (due, connection));
            self.arrivals.push_back((due, ends));
        } else {
            // Before the client's own.
            drop(connection);
        }
        host.send_on(syn, answered);
    }
}
