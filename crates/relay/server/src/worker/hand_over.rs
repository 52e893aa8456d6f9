//! New connections that a worker with too many flows leaves to one with fewer.

use midspan_threads::wake::raise;

use super::EventLoop;
use crate::inbox::{Handed, Inbox};

impl EventLoop {
    /// Who is to have a new connection in place of this worker.
    ///
    /// Who opens many connections at once is faster than a worker on the same processor, which finds all of them at its own
    /// listener when it runs again: too late for the kernel to be told that it has enough.
    pub(super) fn who_has_fewer(&self) -> Option<usize> {
        let has_enough = self.processor.is_some_and(|own| !own.nearby);
        if !has_enough {
            return None;
        }
        let flows = |&index: &usize| self.host.context.flows(index);
        let other = (0..self.host.context.workers.count()).min_by_key(flows)?;
        (flows(&other) < self.flows.flows().len() as u64).then_some(other)
    }

    /// Leaves something to another worker, or gives it back if that one has ended.
    pub(super) fn hand_over(&self, to: usize, what: Handed) -> Result<(), Handed> {
        let other = &self.host.context.workers.handles[to];
        other.inbox.leave(what)?;
        raise(&other.wake);
        Ok(())
    }

    /// Takes what other workers have left to this one.
    pub(super) fn take_handed(&mut self) {
        for handed in self.inbox().take() {
            let (accepted, forward) = *handed;
            self.keep(accepted, forward, None);
        }
    }

    pub(super) fn inbox(&self) -> &Inbox {
        &self.host.handle().inbox
    }
}
