use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use midspan_units::{Span, Time};

use crate::SessionId;

/// A registration: whose, and under which number.
pub(crate) type Key = (SessionId, u32);

/// A peer, by whatever its sessions have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PeerId(u64);

/// Whose datagram goes next: peers take turns, one datagram each, so that one with much to send is in
/// nobody's way; and none sends more than its budget.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Between two datagrams of one peer, on the mean.
    interval: Span,
    ids: BTreeMap<String, PeerId>,
    next: u64,
    peers: BTreeMap<PeerId, Peer>,
    waiting: BinaryHeap<Reverse<(Time, PeerId)>>,
    ready: VecDeque<PeerId>,
}

/// What a peer has.
#[derive(Debug)]
pub(crate) struct Peer {
    name: String,
    /// Connections.
    pub(crate) sessions: usize,
    /// Registrations of all of them.
    pub(crate) registrations: usize,
    /// What it has sent is paid for until then.
    paid: Time,
    due: BinaryHeap<Reverse<(Time, Key)>>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is due, ever.
    Idle,
    /// Not before then.
    Waits(Time),
    /// It is in the line.
    Ready,
}

/// A registration whose turn it is.
pub(crate) struct Turn {
    pub(crate) peer: PeerId,
    pub(crate) key: Key,
    /// Since when it could have been, by its due time and its peer's budget.
    pub(crate) since: Time,
}

/// So much may be sent ahead of the budget: all registrations of a peer may become due at once.
const BURST: Span = Span::from_millis(100);

impl Turns {
    /// Of peers that send `rate` datagrams a second at most.
    pub(crate) fn new(rate: u64) -> Turns {
        Turns {
            interval: Span::from_nanos(1_000_000_000 / rate.max(1)),
            ids: BTreeMap::new(),
            next: 0,
            peers: BTreeMap::new(),
            waiting: BinaryHeap::new(),
            ready: VecDeque::new(),
        }
    }

    /// Another session of the peer of this name, if it has fewer than `most`.
    pub(crate) fn open(&mut self, name: &str, most: usize) -> Option<PeerId> {
        let id = *self.ids.entry(name.to_owned()).or_insert_with(|| {
            self.next += 1;
            PeerId(self.next)
        });
        let peer = self.peers.entry(id).or_insert_with(|| Peer {
            name: name.to_owned(),
            sessions: 0,
            registrations: 0,
            paid: Time::ZERO,
            due: BinaryHeap::new(),
            state: State::Idle,
        });
        if peer.sessions >= most {
            return None;
        }
        peer.sessions += 1;
        Some(id)
    }

    /// One session less.
    pub(crate) fn close(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.sessions -= 1;
        if peer.sessions == 0
            && let Some(peer) = self.peers.remove(&id)
        {
            self.ids.remove(&peer.name);
        }
    }

    pub(crate) fn peer(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(&id)
    }

    /// The registration is due then.
    pub(crate) fn push(&mut self, id: PeerId, due: Time, key: Key) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.due.push(Reverse((due, key)));
        let at = due.max(peer.allowed());
        let sooner = match peer.state {
            State::Idle => true,
            State::Waits(until) => at < until,
            State::Ready => false,
        };
        if sooner {
            peer.state = State::Waits(at);
            self.waiting.push(Reverse((at, id)));
        }
    }

    /// When there is a turn next. `holds` says whether a registration is still due at that time.
    pub(crate) fn next(&mut self, holds: impl Fn(Key, Time) -> bool) -> Option<Time> {
        while let Some(id) = self.ready.front() {
            if let Some(due) = self.peers.get_mut(id).and_then(|peer| peer.head(&holds)) {
                return Some(due);
            }
            self.rest();
        }
        loop {
            let &Reverse((at, id)) = self.waiting.peek()?;
            let peer = self.peers.get_mut(&id).filter(|peer| peer.state == State::Waits(at));
            let Some(peer) = peer else {
                self.waiting.pop();
                continue;
            };
            let due = peer.head(&holds).map(|due| due.max(peer.allowed()));
            if due == Some(at) {
                return due;
            }
            self.waiting.pop();
            peer.state = due.map_or(State::Idle, State::Waits);
            self.waiting.extend(due.map(|due| Reverse((due, id))));
        }
    }

    /// The next turn at `now`; the registration is not due any more.
    pub(crate) fn take(&mut self, now: Time, holds: impl Fn(Key, Time) -> bool) -> Option<Turn> {
        while let Some(&Reverse((at, id))) = self.waiting.peek().filter(|it| it.0.0 <= now) {
            self.waiting.pop();
            if let Some(peer) = self.peers.get_mut(&id).filter(|it| it.state == State::Waits(at)) {
                peer.state = State::Ready;
                self.ready.push_back(id);
            }
        }
        while let Some(&id) = self.ready.front() {
            let Some(peer) = self.peers.get_mut(&id) else {
                self.ready.pop_front();
                continue;
            };
            let Some(due) = peer.head(&holds) else {
                self.rest();
                continue;
            };
            let since = due.max(peer.allowed());
            self.ready.pop_front();
            if since > now {
                peer.state = State::Waits(since);
                self.waiting.push(Reverse((since, id)));
                continue;
            }
            let Some(Reverse((_, key))) = peer.due.pop() else { continue };
            self.ready.push_back(id);
            return Some(Turn { peer: id, key, since });
        }
        None
    }

    /// The peer has sent one.
    pub(crate) fn pay(&mut self, id: PeerId, now: Time) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.paid = peer.paid.max(now) + self.interval;
        }
    }

    /// The first in the line has nothing to send.
    fn rest(&mut self) {
        if let Some(peer) = self.ready.pop_front().and_then(|id| self.peers.get_mut(&id)) {
            peer.state = State::Idle;
        }
    }
}

impl Peer {
    fn allowed(&self) -> Time {
        Time::from_nanos(self.paid.as_nanos().saturating_sub(BURST.as_nanos()))
    }

    /// When its first registration is due; those that were rescheduled, or are gone, are dropped.
    fn head(&mut self, holds: impl Fn(Key, Time) -> bool) -> Option<Time> {
        while let Some(&Reverse((due, key))) = self.due.peek() {
            if holds(key, due) {
                return Some(due);
            }
            self.due.pop();
        }
        None
    }
}
