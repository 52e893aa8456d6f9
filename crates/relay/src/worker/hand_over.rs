//! A worker that has too many flows leaves new connections to the one that has fewest.

use super::Worker;
use crate::flow::Carried;
use crate::shared::{Handed, Phase, raise};

impl Worker {
    /// Who is to have a new connection in place of this worker.
    ///
    /// Who opens many connections at once is faster than a worker on the same processor, which finds all of them at its own
    /// listener when it runs again: too late for the kernel to be told that it has enough.
    pub(super) fn who_has_fewer(&self) -> Option<usize> {
        let has_enough = self.place.as_ref().is_some_and(|place| !place.nearby);
        // Later the others may end before they see it.
        if !has_enough || self.shared.phase() != Phase::Run {
            return None;
        }
        let flows = |&index: &usize| self.shared.ends[index].flows();
        let other = (0..self.shared.ends.len()).min_by_key(flows)?;
        (flows(&other) < self.flows.len() as u64).then_some(other)
    }

    pub(super) fn hand_over(&self, to: usize, connection: Handed) {
        let end = &self.shared.ends[to];
        end.handed().push(connection);
        self.counters().handed_over.add(1);
        raise(&end.wake);
    }

    /// Takes what other workers have left to this one.
    pub(super) fn take_handed(&mut self) {
        let handed = std::mem::take(&mut *self.shared.ends[self.index].handed());
        for (accepted, forward) in handed {
            self.carried = Carried::Little;
            self.keep(accepted, forward, None);
        }
    }

    pub(super) fn is_handed_nothing(&self) -> bool {
        self.shared.ends[self.index].handed().is_empty()
    }
}
