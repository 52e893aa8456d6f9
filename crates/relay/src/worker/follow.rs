//! Flows go to the worker on whose processor their packets arrive.

use std::convert::Infallible;

use midspan_split::{Cause, Leg, takes_nearby};
use rustix::event::epoll;
use socket2::SockRef;

use super::Worker;
use super::watch::watch_leg;
use crate::flow::LiveFlow;
use crate::inbox::Handed;
use crate::slab::Key;

impl Worker {
    /// Leaves a flow that has sent something to the worker on whose processor the packets of both its legs arrive, if
    /// that has not much more than its share.
    ///
    /// A connection is taken where its SYN arrives, but later packets may arrive elsewhere: the server's by another hash, the
    /// client's as interrupts are moved, and those of an end on this machine wherever that end runs. Then each packet takes what
    /// the kernel knows of the connection from one processor's cache to the other's and back.
    pub(super) fn follow(&mut self, key: Key) {
        let Some(place) = self.place.as_ref().filter(|_| !self.haste.is_at_ease()) else { return };
        let Some(flow) = self.flows.get_mut(key) else { return };
        if !flow.trail.is_due() || !flow.is_at_rest() {
            return;
        }
        let arrive_on = |leg| SockRef::from(flow.fd(leg)).cpu_affinity().ok();
        let processor = arrive_on(Leg::Client).filter(|&one| arrive_on(Leg::Server) == Some(one));
        let other = processor.and_then(|one| place.worker_of(one)).filter(|&one| one != self.index);
        if let Some(other) = flow.trail.leads_to(other)
            && self.has_place_for_one(other)
        {
            self.leave(key, other);
        }
    }

    fn has_place_for_one(&self, other: usize) -> bool {
        let all = self.shared.ledger().flows().into();
        takes_nearby(true, self.shared.ends[other].flows(), all, self.shared.ends.len() as u64)
    }

    fn leave(&mut self, key: Key, to: usize) {
        let Some(mut flow) = self.flows.remove(key) else { return };
        flow.trail.followed();
        for leg in Leg::BOTH {
            if let Err(error) = epoll::delete(&self.epoll, flow.fd(leg)) {
                tracing::debug!(%leg, %error, "a leg was not watched");
            }
        }
        match self.hand_over(to, Handed::Flow(Box::new(flow))) {
            Ok(()) => self.counters().moved.add(1),
            Err(back) => self.take_back(back),
        }
        self.counters().active.set(self.flows.len() as u64);
    }

    /// Goes on with a flow that was another worker's.
    pub(super) fn adopt(&mut self, mut flow: LiveFlow) {
        flow.arrive();
        let Ok(key) = self.flows.insert_with(|_| Ok::<_, Infallible>(flow));
        self.counters().active.set(self.flows.len() as u64);
        for leg in Leg::BOTH {
            let Some(flow) = self.flows.get(key) else { return };
            // The kernel tells of what has come meanwhile, too.
            if let Err(error) = watch_leg(&self.epoll, key, leg, flow.fd(leg)) {
                tracing::error!(%leg, %error, "a leg cannot be watched");
                self.fail(key, Cause::Inconsistent);
            }
        }
    }
}
