use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::first_window::ClientLink;
use crate::parts::Parts;

/// How many flows are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Flows at one time, in all.
    pub flows: u32,
    /// Flows at one time of one client.
    pub flows_per_client: u32,
}

/// Why a new flow is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// [`Limits::flows`] are open.
    TooManyFlows,
    /// [`Limits::flows_per_client`] of this client are open.
    TooManyOfClient,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Refusal::TooManyFlows => "as many flows are open as the limit allows",
            Refusal::TooManyOfClient => "as many flows of this client are open as the limit allows",
        })
    }
}

/// Who has how many flows open, against the [`Limits`], for all workers. A client is whatever the caller tells clients apart
/// by: an address or a prefix.
///
/// Both limits hold exactly, whoever asks at the same time: the count of all is one number, and clients are kept in parts
/// that are locked one at a time, for a look into a table. Memory is taken at the start, for one client per flow up to
/// [`Admission::ROOM`]; past so many clients at one time it grows.
#[derive(Debug)]
pub struct Admission<C> {
    limit: AtomicU32,
    limit_per_client: AtomicU32,
    flows: AtomicU32,
    clients: Parts<C, Open>,
}

/// What a client has open, and what is known of its link; of one that has nothing open, too, for as long as its place is not
/// wanted.
#[derive(Debug, Default)]
struct Open {
    flows: u32,
    link: Arc<ClientLink>,
}

impl<C: Copy + Eq + Hash> Admission<C> {
    /// Clients at one time for which memory is taken at the start.
    pub const ROOM: u32 = 1 << 16;

    /// Nobody has a flow.
    pub fn new(limits: Limits) -> Self {
        Admission {
            limit: AtomicU32::new(limits.flows),
            limit_per_client: AtomicU32::new(limits.flows_per_client),
            flows: AtomicU32::new(0),
            clients: Parts::with_capacity(limits.flows.min(Self::ROOM) as usize),
        }
    }

    /// Other limits from now on. What is open stays, though it be more.
    pub fn set_limits(&self, limits: Limits) {
        self.limit.store(limits.flows, Ordering::Relaxed);
        self.limit_per_client.store(limits.flows_per_client, Ordering::Relaxed);
    }

    /// All clients that have flows open, each as it was at some moment of the call.
    pub fn clients(&self) -> Vec<C> {
        let mut clients = Vec::new();
        for part in self.clients.all() {
            let open = part.iter().filter(|(_, open)| open.flows > 0);
            clients.extend(open.map(|(client, _)| *client));
        }
        clients
    }

    /// Takes a new flow of `client` into account, and says whether the client may have no more now. Every flow admitted must
    /// be [released](Admission::release) once.
    ///
    /// # Errors
    /// When a limit is reached; nothing changes then.
    #[allow(
        deprecated,
        reason = "`try_update`, the newer name of `fetch_update`, is not in Rust 1.88"
    )]
    pub fn admit(&self, client: C) -> Result<bool, Refusal> {
        let limit = self.limit.load(Ordering::Relaxed);
        let one_more = |flows| (flows < limit).then_some(flows + 1);
        self.flows
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .map_err(|_| Refusal::TooManyFlows)?;
        let most = self.limit_per_client.load(Ordering::Relaxed);
        let mut part = self.clients.of(&client);
        if part.get(&client).map_or(0, |open| open.flows) >= most {
            self.flows.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal::TooManyOfClient);
        }
        if part.len() == part.capacity() && !part.contains_key(&client) {
            part.retain(|_, open| open.flows > 0);
        }
        let open = part.entry(client).or_default();
        open.flows += 1;
        Ok(open.flows >= most)
    }

    /// A flow of `client` is over: says whether the client could have had no more until now. Without effect if none was
    /// admitted.
    pub fn release(&self, client: C) -> bool {
        let mut part = self.clients.of(&client);
        let Some(open) = part.get_mut(&client).filter(|open| open.flows > 0) else { return false };
        let was_full = open.flows >= self.limit_per_client.load(Ordering::Relaxed);
        open.flows -= 1;
        self.flows.fetch_sub(1, Ordering::Relaxed);
        was_full
    }

    /// Flows open now.
    pub fn flows(&self) -> u32 {
        self.flows.load(Ordering::Relaxed)
    }

    /// Flows that may be open at one time.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// How many more flows there is room for in all.
    pub fn room(&self) -> u32 {
        self.limit().saturating_sub(self.flows())
    }

    /// Whether a client has as many flows as it may.
    pub fn is_full(&self, client: &C) -> bool {
        let open = self.clients.of(client).get(client).map_or(0, |open| open.flows);
        open >= self.limit_per_client.load(Ordering::Relaxed)
    }

    /// What is known of a client's link, which its flows share and keep up to date; nothing, and nobody's, if it has none
    /// open and is not remembered.
    pub fn link(&self, client: &C) -> Arc<ClientLink> {
        self.clients.of(client).get(client).map(|open| open.link.clone()).unwrap_or_default()
    }
}

/// What each of the workers offers to take of the `room` that is left of `limit` flows: a like part, as what is offered
/// may come to all of them before any has taken one; and nothing of the last one in 32, at most 64 a worker, as each still
/// offers what another has taken lately. Who comes beyond what is offered passes, and who was let in beyond the
/// limit waits.
pub const fn room_of_each(room: u32, limit: u32, workers: u32) -> u32 {
    let most = workers.saturating_mul(64);
    let spare = if limit / 32 < most { limit / 32 } else { most };
    room.saturating_sub(spare).div_ceil(workers)
}

/// Whether a worker that has `own` of `all` flows should take the connections that arrive on its own
/// processor, which is cheapest, rather than a like share of all: as long as that leaves it with not
/// much more than an even share among the `workers`. One that `does` not do so begins again when it
/// has no more than that, so that it does not change its mind with every flow.
pub const fn takes_nearby(does: bool, own: u64, all: u64, workers: u64) -> bool {
    /// Flows more than an even share that always are too few to matter.
    const FEW: u64 = 4;
    let even = all / workers;
    own <= if does { even + even / 4 + FEW } else { even }
}

/// Bytes of buffers in use, against a limit.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    limit: u64,
    used: u64,
}

impl Budget {
    /// Nothing used of `limit` bytes.
    pub const fn new(limit: u64) -> Self {
        Budget { limit, used: 0 }
    }

    /// Another limit from now on. What is used stays, though it be more.
    pub const fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Whether `bytes` more fit.
    pub const fn has(&self, bytes: u64) -> bool {
        self.limit.saturating_sub(self.used) >= bytes
    }

    /// Takes `bytes`, or nothing and answers false.
    #[must_use]
    pub const fn take(&mut self, bytes: u64) -> bool {
        let fits = self.has(bytes);
        if fits {
            self.used += bytes;
        }
        fits
    }

    /// Gives `bytes` back.
    pub const fn give_back(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// Bytes in use.
    pub const fn used(&self) -> u64 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_are_told_apart() {
        let admission = Admission::new(Limits { flows: 3, flows_per_client: 2 });
        assert_eq!(admission.admit("a"), Ok(false));
        assert_eq!(admission.admit("a"), Ok(true));
        assert_eq!(admission.admit("a"), Err(Refusal::TooManyOfClient));
        assert_eq!(admission.admit("b"), Ok(false));
        assert_eq!(admission.admit("c"), Err(Refusal::TooManyFlows));
        assert!(admission.release("a"));
        assert_eq!(admission.admit("c"), Ok(false));
    }

    #[test]
    fn what_all_workers_offer_is_no_more_than_there_is() {
        assert_eq!(room_of_each(1, 1, 2), 1);
        assert_eq!(room_of_each(7_460, 7_460, 2), 3_666);
        assert_eq!(room_of_each(129, 7_460, 2), 1);
        assert_eq!(room_of_each(128, 7_460, 2), 0);
        assert_eq!(room_of_each(u32::MAX, u32::MAX, u32::MAX), 1);
        assert_eq!(room_of_each(0, 0, 4), 0);
    }

    #[test]
    fn whoever_has_too_much_leaves_what_is_nearby_to_the_others() {
        assert!(takes_nearby(true, 4, 4, 2));
        assert!(!takes_nearby(true, 16, 16, 2));
        assert!(takes_nearby(true, 600, 1000, 2));
        assert!(!takes_nearby(true, 700, 1000, 2));
        assert!(takes_nearby(true, 1000, 1000, 1));
        assert!(!takes_nearby(false, 600, 1000, 2));
        assert!(takes_nearby(false, 500, 1000, 2));
        assert!(takes_nearby(false, 0, 0, 2));
    }

    #[test]
    fn lower_limits_are_for_what_comes() {
        let admission = Admission::new(Limits { flows: 3, flows_per_client: 3 });
        assert!((0..3).all(|_| admission.admit("a").is_ok()));
        admission.set_limits(Limits { flows: 2, flows_per_client: 1 });
        assert_eq!((admission.flows(), admission.room(), admission.is_full(&"a")), (3, 0, true));
        assert_eq!(admission.admit("b"), Err(Refusal::TooManyFlows));
        (0..2).for_each(|_| assert!(admission.release("a")));
        assert_eq!(admission.admit("a"), Err(Refusal::TooManyOfClient));
        assert_eq!(admission.admit("b"), Ok(true));
        let mut budget = Budget::new(10);
        assert!(budget.take(7));
        budget.set_limit(5);
        assert!(!budget.has(1) && budget.has(0));
        budget.give_back(7);
        assert!(budget.take(5) && !budget.take(1));
    }

    #[test]
    fn a_budget_is_never_overdrawn() {
        let mut budget = Budget::new(10);
        assert!(budget.take(7) && !budget.take(4) && budget.take(3));
        budget.give_back(7);
        assert_eq!(budget.used(), 3);
        assert!(budget.has(7) && !budget.has(8));
    }

    proptest! {
        /// Whatever comes and goes: within the limits, and nobody is remembered once gone.
        #[test]
        fn what_is_admitted_adds_up(
            steps in prop::collection::vec((any::<bool>(), 0u8..6), 0..300),
            flows in 0u32..12,
            flows_per_client in 0u32..4,
        ) {
            let admission = Admission::new(Limits { flows, flows_per_client });
            let mut open = [0u32; 6];
            for (comes, client) in steps {
                let here = usize::from(client);
                if comes {
                    let all: u32 = open.iter().sum();
                    let expected = if all >= flows {
                        Err(Refusal::TooManyFlows)
                    } else if open[here] >= flows_per_client {
                        Err(Refusal::TooManyOfClient)
                    } else {
                        Ok(open[here] + 1 >= flows_per_client)
                    };
                    prop_assert_eq!(admission.admit(client), expected);
                    open[here] += u32::from(expected.is_ok());
                } else {
                    let was_full = open[here] > 0 && open[here] >= flows_per_client;
                    prop_assert_eq!(admission.release(client), was_full);
                    open[here] = open[here].saturating_sub(1);
                }
                prop_assert_eq!(admission.flows(), open.iter().sum::<u32>());
            }
            for (client, count) in (0u8..).zip(open) {
                (0..count).for_each(|_| _ = admission.release(client));
            }
            prop_assert!(admission.clients().is_empty());
            prop_assert_eq!(admission.flows(), 0);
        }
    }
}
