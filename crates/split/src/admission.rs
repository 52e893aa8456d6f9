use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;

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

/// Who has how many flows open, against the [`Limits`]. A client is whatever the caller tells
/// clients apart by: an address or a prefix.
///
/// Memory is taken at the start, for one client per flow up to [`Ledger::ROOM`]; past so many
/// clients at one time it grows.
#[derive(Debug)]
pub struct Ledger<C> {
    limits: Limits,
    flows: u32,
    clients: HashMap<C, u32>,
}

impl<C: Eq + Hash> Ledger<C> {
    /// Clients at one time for which memory is taken at the start.
    pub const ROOM: u32 = 1 << 16;

    /// An empty ledger.
    pub fn new(limits: Limits) -> Self {
        let room = limits.flows.min(Self::ROOM) as usize;
        Ledger { limits, flows: 0, clients: HashMap::with_capacity(room) }
    }

    /// Other limits from now on. What is open stays, though it be more.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// All clients that have flows open.
    pub fn clients(&self) -> impl Iterator<Item = &C> {
        self.clients.keys()
    }

    /// Takes a new flow of `client` into account. Every flow admitted must be
    /// [released](Ledger::release) once.
    ///
    /// # Errors
    /// When a limit is reached; nothing changes then.
    pub fn admit(&mut self, client: C) -> Result<(), Refusal> {
        if self.flows >= self.limits.flows {
            return Err(Refusal::TooManyFlows);
        }
        match self.clients.entry(client) {
            Entry::Occupied(open) if *open.get() >= self.limits.flows_per_client => {
                return Err(Refusal::TooManyOfClient);
            }
            Entry::Occupied(mut open) => *open.get_mut() += 1,
            Entry::Vacant(_) if self.limits.flows_per_client == 0 => {
                return Err(Refusal::TooManyOfClient);
            }
            Entry::Vacant(first) => {
                first.insert(1);
            }
        }
        self.flows += 1;
        Ok(())
    }

    /// A flow of `client` is over. Without effect if none was admitted.
    pub fn release(&mut self, client: C) {
        if let Entry::Occupied(mut open) = self.clients.entry(client) {
            self.flows -= 1;
            match open.get() {
                1 => drop(open.remove()),
                _ => *open.get_mut() -= 1,
            }
        }
    }

    /// Flows open now.
    pub fn flows(&self) -> u32 {
        self.flows
    }

    /// How many more flows there is room for in all.
    pub fn room(&self) -> u32 {
        self.limits.flows.saturating_sub(self.flows)
    }

    /// Whether a client has as many flows as it may.
    pub fn is_full(&self, client: &C) -> bool {
        self.clients.get(client).copied().unwrap_or(0) >= self.limits.flows_per_client
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
        let mut ledger = Ledger::new(Limits { flows: 3, flows_per_client: 2 });
        assert_eq!(ledger.admit("a"), Ok(()));
        assert_eq!(ledger.admit("a"), Ok(()));
        assert_eq!(ledger.admit("a"), Err(Refusal::TooManyOfClient));
        assert_eq!(ledger.admit("b"), Ok(()));
        assert_eq!(ledger.admit("c"), Err(Refusal::TooManyFlows));
        ledger.release("a");
        assert_eq!(ledger.admit("c"), Ok(()));
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
        let mut ledger = Ledger::new(Limits { flows: 3, flows_per_client: 3 });
        (0..3).for_each(|_| ledger.admit("a").unwrap());
        ledger.set_limits(Limits { flows: 2, flows_per_client: 1 });
        assert_eq!((ledger.flows(), ledger.room(), ledger.is_full(&"a")), (3, 0, true));
        assert_eq!(ledger.admit("b"), Err(Refusal::TooManyFlows));
        (0..2).for_each(|_| ledger.release("a"));
        assert_eq!(ledger.admit("a"), Err(Refusal::TooManyOfClient));
        assert_eq!(ledger.admit("b"), Ok(()));
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
        fn the_ledger_adds_up(
            steps in prop::collection::vec((any::<bool>(), 0u8..6), 0..300),
            flows in 0u32..12,
            flows_per_client in 0u32..4,
        ) {
            let mut ledger = Ledger::new(Limits { flows, flows_per_client });
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
                        Ok(())
                    };
                    prop_assert_eq!(ledger.admit(client), expected);
                    open[here] += u32::from(expected.is_ok());
                } else {
                    ledger.release(client);
                    open[here] = open[here].saturating_sub(1);
                }
                prop_assert_eq!(ledger.flows(), open.iter().sum::<u32>());
            }
            for (client, count) in (0u8..).zip(open) {
                (0..count).for_each(|_| ledger.release(client));
            }
            prop_assert!(ledger.clients.is_empty());
            prop_assert_eq!(ledger.flows(), 0);
        }
    }
}
