//! The servers that a listener passes connections on to, and which of them are left alone for a while.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long a server is left alone that could not be connected to.
const REST: Duration = Duration::from_secs(10);

/// Servers in order, in common to all workers.
#[derive(Debug)]
pub struct Servers(RwLock<Arc<[Arc<Server>]>>);

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    made: Instant,
    /// Until when it is left alone, in nanoseconds since it was made; 0 if the last connect went well.
    rests: AtomicU64,
}

impl Servers {
    pub(crate) fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Servers {
        Servers(RwLock::new(addresses.into_iter().map(Server::new).collect()))
    }

    /// Goes on with other addresses, in this order; with the order of before if they are the same. What is known of those
    /// that stay is kept. Whether any has changed.
    pub(crate) fn become_these(&self, addresses: &[SocketAddr]) -> bool {
        let old = self.now();
        let sorted = |mut addresses: Vec<SocketAddr>| {
            addresses.sort_unstable();
            addresses.dedup();
            addresses
        };
        if sorted(addresses.to_vec()) == sorted(self.addresses()) {
            return false;
        }
        let known = |address: &SocketAddr| old.iter().find(|server| server.address == *address);
        let server = |address| known(address).cloned().unwrap_or_else(|| Server::new(*address));
        let new = addresses.iter().map(server).collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new;
        true
    }

    /// All, in order.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.now().iter().map(|server| server.address).collect()
    }

    /// Whom to connect to: the first that is not left alone, or else the first. When a server's rest is over,
    /// it is given out once, and rests on unless that connection [comes about](Servers::answered): so others do
    /// not wait for it too.
    pub fn first(&self, now: Instant) -> Option<SocketAddr> {
        let all = self.now();
        let ready = all.iter().find(|server| server.is_ready(now) && server.is_claimed(now));
        ready.or(all.first()).map(|server| server.address)
    }

    /// Whom to connect to where that fails, in order: those last that are left alone.
    pub fn others(&self, first: SocketAddr, now: Instant) -> Vec<SocketAddr> {
        let all = self.now();
        let others = all.iter().filter(|server| server.address != first);
        let (ready, resting): (Vec<_>, Vec<_>) = others.partition(|server| server.is_ready(now));
        ready.into_iter().chain(resting).map(|server| server.address).collect()
    }

    /// A server could not be connected to.
    pub fn failed(&self, address: SocketAddr, now: Instant) {
        for server in self.now().iter().filter(|server| server.address == address) {
            if server.rests.swap(server.rest(now), Ordering::Relaxed) == 0 {
                tracing::debug!(server = %address, "it cannot be connected to; others are preferred for {REST:?}");
            }
        }
    }

    /// A server was connected to.
    pub fn answered(&self, address: SocketAddr) {
        for server in self.now().iter().filter(|server| server.address == address) {
            if server.rests.load(Ordering::Relaxed) != 0 {
                server.rests.store(0, Ordering::Relaxed);
            }
        }
    }

    fn now(&self) -> Arc<[Arc<Server>]> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Server {
    fn new(address: SocketAddr) -> Arc<Server> {
        Arc::new(Server { address, made: Instant::now(), rests: AtomicU64::new(0) })
    }

    fn since_made(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.made).as_nanos() as u64
    }

    /// The end of a rest that begins now.
    fn rest(&self, now: Instant) -> u64 {
        self.since_made(now) + REST.as_nanos() as u64
    }

    fn is_ready(&self, now: Instant) -> bool {
        self.rests.load(Ordering::Relaxed) <= self.since_made(now)
    }

    /// Whether it is given out now: for one that has rested only once.
    fn is_claimed(&self, now: Instant) -> bool {
        let rests = self.rests.load(Ordering::Relaxed);
        let claim = |rests| {
            let rest = self.rest(now);
            self.rests.compare_exchange(rests, rest, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        rests == 0 || rests <= self.since_made(now) && claim(rests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> ([SocketAddr; 3], Servers, Instant) {
        let all = [1, 2, 3].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let servers = Servers::new(all);
        (all, servers, Instant::now())
    }

    #[test]
    fn one_that_failed_is_left_alone_and_then_tried_by_one() {
        let ([a, b, c], servers, now) = three();
        assert_eq!((servers.first(now), servers.others(a, now)), (Some(a), vec![b, c]));
        servers.failed(a, now);
        for at in [now, now + REST - Duration::from_nanos(1)] {
            assert_eq!((servers.first(at), servers.others(b, at)), (Some(b), vec![c, a]));
        }
        let then = now + REST;
        assert_eq!(servers.first(then), Some(a));
        // It is not known yet what comes of that.
        assert_eq!(servers.first(then), Some(b));
        assert_eq!(servers.first(then + REST), Some(a));
        servers.answered(a);
        assert_eq!(servers.first(then + REST), Some(a));
        assert_eq!(servers.first(then + REST), Some(a));
    }

    #[test]
    fn other_addresses_are_taken_and_what_is_known_is_kept() {
        let ([a, b, c], servers, now) = three();
        servers.failed(a, now);
        // Answers come in any order.
        assert!(!servers.become_these(&[c, a, b]));
        assert_eq!(servers.addresses(), [a, b, c]);
        let d = SocketAddr::from(([192, 0, 2, 1], 4));
        assert!(servers.become_these(&[a, d]));
        assert_eq!((servers.first(now), servers.others(d, now)), (Some(d), vec![a]));
        // A flow may still be on its way to one that is gone.
        servers.failed(c, now);
        servers.answered(c);
        assert_eq!(servers.addresses(), [a, d]);
    }

    #[test]
    fn where_all_have_failed_they_are_tried_in_order() {
        let ([a, b, c], servers, now) = three();
        for server in [c, a, b] {
            servers.failed(server, now);
        }
        assert_eq!((servers.first(now), servers.others(a, now)), (Some(a), vec![b, c]));
        servers.answered(b);
        assert_eq!((servers.first(now), servers.others(b, now)), (Some(b), vec![a, c]));
        assert_eq!(Servers::new([]).first(now), None);
    }
}
