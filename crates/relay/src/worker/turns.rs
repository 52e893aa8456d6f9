//! Flows with work to do get their turns, and end.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use midspan_split::{Action, Cause, Leg};
use midspan_units::Time;

use super::Worker;
use crate::counters::Counters;
use crate::flow::Means;
use crate::slab::Key;

/// Bytes that a flow may move in each direction before other flows get their turn.
const TURN: u64 = 1 << 20;
/// How often a flow is looked at that waits for its last bytes to be acknowledged.
const LOOK: Duration = Duration::from_millis(10);

impl Worker {
    pub(super) fn enqueue(&mut self, key: Key) {
        if let Some(flow) = self.flows.get_mut(key)
            && !flow.queued
        {
            flow.queued = true;
            self.queue.push_back(key);
        }
    }

    /// Gives each flow that is queued now one turn.
    pub(super) fn take_turns(&mut self) {
        let now = self.now();
        for _ in 0..self.queue.len() {
            let Some(key) = self.queue.pop_front() else { break };
            let Some(flow) = self.flows.get_mut(key) else { continue };
            flow.queued = false;
            let means = Means {
                key,
                pool: &mut self.pool,
                outbox: &mut self.outbox,
                counters: &self.shared.ends[self.index].counters,
            };
            let action = flow.turn(now, TURN, means);
            self.go_on(key, action);
            self.mask_reads(key);
            if self.outbox.is_full() {
                self.send_out();
            }
        }
        self.send_out();
        self.wake_waiting();
        self.counters().buffered.set(self.pool.used());
        self.counters().pipes.set(self.pool.pipes() as u64);
    }

    /// Does what a flow wants after a turn.
    fn go_on(&mut self, key: Key, action: Action) {
        let counters = &self.shared.ends[self.index].counters;
        match action {
            Action::Wait => self.let_linger(key),
            Action::Turn => self.enqueue(key),
            Action::Buffer => {
                if let Some(flow) = self.flows.get_mut(key).filter(|flow| !flow.waiting) {
                    flow.waiting = true;
                    counters.buffer_waits.add(1);
                    self.waiting.push_back(key);
                }
            }
            Action::Close => {
                counters.closed.add(1);
                self.remove(key, None);
            }
            Action::Abort(cause) => {
                count_abort(counters, cause);
                self.remove(key, Some(cause));
            }
        }
    }

    /// Has a flow that waits for its last bytes to be acknowledged looked at again.
    fn let_linger(&mut self, key: Key) {
        if let Some(flow) = self.flows.get_mut(key)
            && flow.is_lingering()
            && !flow.lingers
        {
            flow.lingers = true;
            self.lingering.push_back((Instant::now() + LOOK, key));
        }
    }

    /// Looks at the flows of which one leg has failed, and the other one's peer has not yet acknowledged all
    /// that came before.
    pub(super) fn look_after_lingering(&mut self) {
        let mut now = None;
        while let Some(&(due, key)) = self.lingering.front() {
            if *now.get_or_insert_with(Instant::now) < due {
                break;
            }
            self.lingering.pop_front();
            let time = self.now();
            let means = Means {
                key,
                pool: &mut self.pool,
                outbox: &mut self.outbox,
                counters: &self.shared.ends[self.index].counters,
            };
            if let Some(flow) = self.flows.get_mut(key) {
                flow.lingers = false;
                flow.look_after_last(time, means);
                self.enqueue(key);
            }
        }
    }

    /// Sends what is in the outbox.
    fn send_out(&mut self) {
        let flows = &self.flows;
        let count = self.outbox.send(|key, to| flows.get(key)?.outgoing(to));
        for index in 0..count {
            let (key, to, sent) = self.outbox.result(index);
            let Some(flow) = self.flows.get_mut(key) else { continue };
            let means = Means {
                key,
                pool: &mut self.pool,
                outbox: &mut self.outbox,
                counters: &self.shared.ends[self.index].counters,
            };
            let action = flow.sent_out(to, sent, means);
            self.go_on(key, action);
        }
        self.outbox.clear();
    }

    /// Lets flows that wait for a buffer try again, as many as there are buffers.
    pub(super) fn wake_waiting(&mut self) {
        let mut free = self.pool.free_buffers();
        while free > 0
            && let Some(key) = self.waiting.pop_front()
        {
            if let Some(flow) = self.flows.get_mut(key) {
                flow.waiting = false;
                self.enqueue(key);
                free -= 1;
            }
        }
    }

    /// The time, as flows are told it.
    fn now(&self) -> Time {
        Time::from_nanos(self.shared.epoch.instant.elapsed().as_nanos() as u64)
    }

    pub(super) fn fail(&mut self, key: Key, cause: Cause) {
        if let Some(flow) = self.flows.get_mut(key) {
            flow.fail(cause);
            count_abort(self.counters(), cause);
            self.remove(key, Some(cause));
        }
    }

    /// Ends a flow, in order or because of this.
    fn remove(&mut self, key: Key, cause: Option<Cause>) {
        if let Some(mut flow) = self.flows.remove(key) {
            // The next client of the server is told when that has answered.
            if let Some(Cause::ConnectFailed | Cause::ConnectTimedOut) = cause
                && let Some(slot) = &self.slot
            {
                slot.distrust(flow.story().server);
            }
            let end = &self.shared.ends[self.index];
            self.shared.observer.ended(end, self.index, &flow, cause);
            flow.release(&mut self.pool);
            self.counters().buffered.set(self.pool.used());
            self.release(flow.client);
            self.counters().active.set(self.flows.len() as u64);
        }
    }

    /// Takes a flow out of account.
    pub(super) fn release(&self, client: IpAddr) {
        if self.shared.admission.release(client) {
            self.say_full(client);
        }
    }

    /// Says whether a client is full. Others may say so of the same client at the same time, and what is said last
    /// must be true: so who has said something sees whether it still is.
    pub(super) fn say_full(&self, client: IpAddr) {
        let Some(slot) = &self.slot else { return };
        let mut said = None;
        loop {
            let full = self.shared.admission.is_full(client);
            if said == Some(full) {
                return;
            }
            said = Some(full);
            if let Err(error) = slot.set_full(client, full) {
                tracing::debug!(%error, "a full client's further connections are reset, not passed");
            }
        }
    }

    /// Says of every client whether it is full, after the limit was changed.
    pub(super) fn say_who_is_full(&self) {
        for client in self.shared.admission.clients() {
            self.say_full(client);
        }
    }
}

fn count_abort(counters: &Counters, cause: Cause) {
    let count = match cause {
        Cause::ConnectFailed => &counters.connect_failed,
        Cause::ConnectTimedOut => &counters.connect_timed_out,
        Cause::Reset(Leg::Client) => &counters.reset_by_client,
        Cause::Reset(Leg::Server) => &counters.reset_by_server,
        Cause::Idle => &counters.idle,
        Cause::HalfClosed => &counters.half_closed,
        Cause::Stopped => &counters.stopped,
        Cause::Inconsistent => {
            tracing::error!("{cause}, which is a fault of the relay; both legs are reset");
            &counters.inconsistent
        }
    };
    count.add(1);
}
