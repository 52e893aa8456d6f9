//! All that is decided for the flows of one worker, but for what each of them decides by itself.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use midspan_units::{Span, Time};

use crate::admission::{Admission, Refusal};
use crate::flow::{Cause, Flow};
use crate::idle::IdleTimeouts;
use crate::leg::{Leg, PerLeg};
use crate::pump::{Action, Failure, Legs, Outcome, Pump, Readiness, Write};
use crate::read_ahead::ReadAhead;
use crate::slab::{Key, Slab};
use crate::timers::{Armed, Timer, Timers};

/// Bytes that a flow may move in each direction before other flows get their turn.
const TURN: u64 = 1 << 20;
/// How long a server may take to answer before it counts as silent: enough for two more SYNs (RFC 6298, 2.1).
const SILENCE: Span = Span::from_secs(3);
/// When a connect is tried again for the first time that finds its client's port in use by a former connection to
/// the same server.
const PORT_RETRY: Span = Span::from_millis(1);
/// How long it is tried: less than [`SILENCE`], as such a server is not silent.
const PORT_RETRIES: Span = Span::from_secs(2);
/// How often a flow is looked at that waits for its last bytes to be acknowledged.
const DRAIN_LOOK: Span = Span::from_millis(10);
/// Slots looked at in one go for flows that have been idle for too long.
const IDLE_SWEEP: usize = 1024;

/// What a [`Worker`]'s decisions are carried out with: sockets and buffers, whatever these are. No call blocks.
pub trait Host {
    /// Whose flows are limited: an address or a prefix.
    type Client: Copy + Eq + Hash + fmt::Debug;
    /// What a flow has beside what is decided of it.
    type Flow: fmt::Debug;

    /// A flow's connections, and what is between them.
    fn legs<'a>(&'a mut self, key: Key, flow: &'a mut Self::Flow) -> impl Legs + 'a;

    /// A flow's server has answered. What it is sent before the client's bytes is sent now.
    ///
    /// # Errors
    /// When that cannot be sent, with what the server's connection failed of, if it did.
    fn connected(&mut self, key: Key, flow: &mut Self::Flow) -> Result<(), Option<Failure>>;

    /// The server that was tried cannot be connected to: begins to connect to the next one that there is for a flow. False
    /// if there is none.
    fn connect_to_next(&mut self, key: Key, flow: &mut Self::Flow) -> bool;

    /// Tries again to connect from the client's port.
    fn connect_again(&mut self, key: Key, flow: &mut Self::Flow) -> ConnectAgain;

    /// A flow's server has not answered for so long that its answers may come by another way: 3 s.
    fn is_silent(&mut self, flow: &mut Self::Flow);

    /// Has what arrives on a leg told no longer, or again. False if that cannot be.
    fn mask_reads(&mut self, key: Key, flow: &mut Self::Flow, leg: Leg, masked: bool) -> bool;

    /// Buffers that there are to be had.
    fn free_buffers(&self) -> u64;

    /// A flow waits for a buffer from now on.
    fn waits_for_buffer(&mut self) {}

    /// Whether what is [posted](Write::Posted) must be sent before the next turn.
    fn must_send(&self) -> bool {
        false
    }

    /// Sends what is posted, where `of` still has it for that leg: the flow, and whether more comes soon. Says how much of
    /// it was tried, and for whom is asked by number.
    fn send<'a>(&mut self, of: impl Fn(Key, Leg) -> Option<(&'a Self::Flow, bool)>) -> usize
    where
        Self::Flow: 'a;

    /// For which leg the one of this number was.
    fn sent_for(&self, index: usize) -> (Key, Leg);

    /// What came of it; none if it was not tried.
    fn sent(&mut self, index: usize, flow: &mut Self::Flow) -> Option<Write>;

    /// A flow is over: closes its connections, in order if there is no `cause`, and gives back what it had.
    fn ended(&mut self, over: Over<'_, Self>, cause: Option<Cause>)
    where
        Self: Sized;

    /// A client has as many flows as it may now, or has had so until now.
    fn say_full(&mut self, client: Self::Client);
}

/// A flow that is over.
pub struct Over<'a, H: Host> {
    /// What has crossed it.
    pub flow: &'a Flow,
    /// Whose it was.
    pub client: H::Client,
    /// What it has beside.
    pub host: H::Flow,
    /// How many the worker has left.
    pub left: usize,
}

/// What trying to connect again comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectAgain {
    /// It is under way.
    Begun,
    /// A former connection still has the port.
    InUse,
    /// It cannot be.
    Failed,
}

/// How a flow's server leg begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// The connect is under way, and so many of the client's bytes went with its SYN (RFC 7413).
    Connecting(u64),
    /// A former connection still has the client's port.
    PortInUse,
}

/// What is set, and may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How long a server may take to answer.
    pub connect_timeout: Span,
    /// How long flows may be idle.
    pub idle_timeouts: IdleTimeouts,
    /// Whether silent servers are [told](Host::is_silent) of.
    pub tells_silence: bool,
}

/// Why a worker is to be called again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Flows have work to do.
    Work,
    /// A flow's timer.
    Timer(Timer),
    /// A round through all flows for those that have been idle for too long.
    IdleSweep,
}

/// A flow as a worker has it.
#[derive(Debug)]
pub struct Entry<H: Host> {
    pump: Pump,
    armed: Armed,
    /// When its client was taken.
    start: Time,
    /// Among those with work to do.
    queued: bool,
    /// Among those that wait for a buffer.
    waiting: bool,
    client: H::Client,
    host: H::Flow,
}

impl<H: Host> Entry<H> {
    /// What has crossed it.
    pub fn flow(&self) -> &Flow {
        self.pump.flow()
    }

    /// What it has beside.
    pub fn host(&self) -> &H::Flow {
        &self.host
    }
}

/// The flows of one worker: which has its turn, which waits for a buffer, which has a timer running, and how each
/// ends.
///
/// In a round, tell it of [events](Worker::event), have it [see to the timers](Worker::run_timers) and
/// [give turns](Worker::take_turns), and then wait until something happens, or [until](Worker::poll_timeout) it is
/// time.
#[derive(Debug)]
pub struct Worker<H: Host> {
    rules: Rules,
    admission: Arc<Admission<H::Client>>,
    flows: Slab<Entry<H>>,
    /// Flows with work to do, in turn.
    queue: VecDeque<Key>,
    /// Flows that wait for a buffer, first come first served.
    waiting: VecDeque<Key>,
    timers: Timers,
    idle_sweep: Option<IdleSweep>,
}

/// A round through all flows, now and then.
#[derive(Debug, Clone, Copy)]
struct IdleSweep {
    interval: Span,
    /// When the next begins, or this one goes on.
    due: Time,
    /// The slot where it goes on.
    next: usize,
}

impl IdleSweep {
    /// None if nothing is to be looked for.
    fn new(idle_timeouts: &IdleTimeouts, now: Time) -> Option<IdleSweep> {
        let interval = idle_timeouts.interval()?;
        Some(IdleSweep { interval, due: now + interval, next: 0 })
    }
}

impl<H: Host> Worker<H> {
    /// A worker without flows, which shares the limits with others.
    pub fn new(rules: Rules, admission: Arc<Admission<H::Client>>, now: Time) -> Worker<H> {
        Worker {
            rules,
            admission,
            flows: Slab::new(),
            queue: VecDeque::new(),
            waiting: VecDeque::new(),
            timers: Timers::default(),
            idle_sweep: IdleSweep::new(&rules.idle_timeouts, now),
        }
    }

    /// Its flows.
    pub fn flows(&self) -> &Slab<Entry<H>> {
        &self.flows
    }

    /// What a flow has beside what is decided of it, if it is still there.
    pub fn host_mut(&mut self, key: Key) -> Option<&mut H::Flow> {
        Some(&mut self.flows.get_mut(key)?.host)
    }

    /// What is set.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Other rules from now on: timeouts of connects for those that begin, idle timeouts for all.
    pub fn set_rules(&mut self, rules: Rules, now: Time) {
        if rules.idle_timeouts != self.rules.idle_timeouts {
            self.idle_sweep = IdleSweep::new(&rules.idle_timeouts, now);
        }
        self.rules = rules;
    }

    /// Gives memory back that as many flows as now have no use for.
    pub fn give_back(&mut self) {
        self.flows.give_back();
    }

    // Flows come.

    /// Takes a flow of `client` into account. It must be [opened](Worker::open) then.
    ///
    /// # Errors
    /// When a limit is reached.
    pub fn admit(&mut self, client: H::Client, host: &mut H) -> Result<(), Refusal> {
        if self.admission.admit(client)? {
            host.say_full(client);
        }
        Ok(())
    }

    /// Opens a flow that was [admitted](Worker::admit), whose client is connected. `ahead` is how far each leg is read ahead of
    /// the other.
    ///
    /// # Errors
    /// When `make` cannot begin to connect to its server; it is no longer admitted then.
    pub fn open<E>(
        &mut self,
        client: H::Client,
        ahead: PerLeg<ReadAhead>,
        now: Time,
        host: &mut H,
        make: impl FnOnce(Key, &mut H) -> Result<(H::Flow, Opened), E>,
    ) -> Result<Key, E> {
        let mut how = Opened::PortInUse;
        let opened = self.flows.insert_with(|key| {
            let (flow, opened) = make(key, host)?;
            how = opened;
            let mut pump = Pump::new(ahead);
            if let Opened::Connecting(early) = opened
                && early > 0
            {
                pump.early(early);
            }
            let (queued, waiting) = (false, false);
            Ok(Entry {
                pump,
                armed: Armed::none(),
                start: now,
                queued,
                waiting,
                client,
                host: flow,
            })
        });
        let key = match opened {
            Ok(key) => key,
            Err(error) => {
                self.release(client, host);
                return Err(error);
            }
        };
        self.await_answer(key, now);
        if how == Opened::PortInUse {
            self.start(Timer::Port, now + PORT_RETRY, key);
        }
        Ok(key)
    }

    // What happened.

    /// Takes in what has become of a flow's leg. Without effect if the flow has ended.
    pub fn event(&mut self, key: Key, leg: Leg, what: Readiness, now: Time, host: &mut H) {
        let Some(entry) = self.flows.get_mut(key) else { return };
        let outcome = entry.pump.event(leg, what, &mut host.legs(key, &mut entry.host));
        match outcome {
            Outcome::Work => {}
            Outcome::Connected => {
                entry.armed.stop(Timer::Connect);
                entry.armed.stop(Timer::Silence);
                if let Err(failure) = host.connected(key, &mut entry.host) {
                    let mut legs = host.legs(key, &mut entry.host);
                    entry.pump.lose(Leg::Server, failure, &mut legs);
                }
            }
            Outcome::Refused => return self.connect_to_next(key, Cause::ConnectFailed, now, host),
        }
        self.enqueue(key);
    }

    /// Resets a flow.
    pub fn fail(&mut self, key: Key, cause: Cause, host: &mut H) {
        if let Some(entry) = self.flows.get_mut(key) {
            entry.pump.fail(cause);
            self.remove(key, Some(cause), host);
        }
    }

    /// Resets all flows.
    pub fn fail_all(&mut self, cause: Cause, host: &mut H) {
        let open: Vec<Key> = self.flows.keys().collect();
        open.into_iter().for_each(|key| self.fail(key, cause, host));
    }

    // What is to be done now.

    /// Does what it is time for.
    pub fn run_timers(&mut self, now: Time, host: &mut H) {
        while let Some((timer, key)) =
            self.timers.take(now, |key| Some(&self.flows.get(key)?.armed))
        {
            let Some(entry) = self.flows.get_mut(key) else { continue };
            entry.armed.stop(timer);
            match timer {
                Timer::Connect => self.connect_to_next(key, Cause::ConnectTimedOut, now, host),
                Timer::Silence => host.is_silent(&mut entry.host),
                Timer::Port => self.connect_again(key, now, host),
                Timer::Drain => {
                    entry.pump.look_after_last(now, &mut host.legs(key, &mut entry.host));
                    self.enqueue(key);
                }
            }
        }
        self.end_idle_flows(now, host);
    }

    /// Gives each flow that has work to do now one turn.
    pub fn take_turns(&mut self, now: Time, host: &mut H) {
        for _ in 0..self.queue.len() {
            let Some(key) = self.queue.pop_front() else { break };
            let Some(entry) = self.flows.get_mut(key) else { continue };
            entry.queued = false;
            let action = entry.pump.turn(now, TURN, &mut host.legs(key, &mut entry.host));
            self.go_on(key, action, now, host);
            self.mask_reads(key, host);
            if host.must_send() {
                self.send(now, host);
            }
        }
        self.send(now, host);
        self.wake_waiting(host);
    }

    /// When to call again if nothing happens before, and why; none if there is nothing to wait for.
    pub fn poll_timeout(&mut self, now: Time) -> Option<(Time, Reason)> {
        if !self.queue.is_empty() {
            return Some((now, Reason::Work));
        }
        let timer = self.timers.next(|key| Some(&self.flows.get(key)?.armed));
        let timer = timer.map(|(due, timer)| (due, Reason::Timer(timer)));
        let idle_sweep = self.idle_sweep.map(|idle_sweep| (idle_sweep.due, Reason::IdleSweep));
        timer.into_iter().chain(idle_sweep).min_by_key(|&(due, _)| due)
    }

    /// Lets flows that wait for a buffer try again, as many as there are buffers.
    pub fn wake_waiting(&mut self, host: &H) {
        let mut free = host.free_buffers();
        while free > 0
            && let Some(key) = self.waiting.pop_front()
        {
            if let Some(entry) = self.flows.get_mut(key) {
                entry.waiting = false;
                self.enqueue(key);
                free -= 1;
            }
        }
    }

    /// Does what a flow wants after a turn.
    fn go_on(&mut self, key: Key, action: Action, now: Time, host: &mut H) {
        match action {
            Action::Wait => self.await_drain(key, now),
            Action::Turn => self.enqueue(key),
            Action::Buffer => {
                if let Some(entry) = self.flows.get_mut(key).filter(|entry| !entry.waiting) {
                    entry.waiting = true;
                    host.waits_for_buffer();
                    self.waiting.push_back(key);
                }
            }
            Action::Close => self.remove(key, None, host),
            Action::Abort(cause) => self.remove(key, Some(cause), host),
        }
    }

    /// Sends what is posted.
    fn send(&mut self, now: Time, host: &mut H) {
        let flows = &self.flows;
        let posted = |key, to| {
            let entry: &Entry<H> = flows.get(key)?;
            entry.pump.is_posted(to).then(|| (&entry.host, entry.pump.has_more(to)))
        };
        for index in 0..host.send(posted) {
            let (key, to) = host.sent_for(index);
            let Some(entry) = self.flows.get_mut(key) else { continue };
            let written = host.sent(index, &mut entry.host);
            let action = entry.pump.completed(to, written, &mut host.legs(key, &mut entry.host));
            self.go_on(key, action, now, host);
        }
    }

    /// Masks read interest in a flow's legs where nothing more may be read, and unmasks it again.
    fn mask_reads(&mut self, key: Key, host: &mut H) {
        for leg in Leg::BOTH {
            let Some(entry) = self.flows.get_mut(key) else { return };
            let Some(masked) = entry.pump.should_mask_reads(leg) else { continue };
            if host.mask_reads(key, &mut entry.host, leg, masked) {
                entry.pump.set_reads_masked(leg, masked);
            } else {
                // Not to be told would be to wait for ever.
                self.fail(key, Cause::Inconsistent, host);
            }
        }
    }

    /// Goes on with a round that is due: resets flows in which nothing has moved for too long.
    fn end_idle_flows(&mut self, now: Time, host: &mut H) {
        let Some(idle_sweep) = self.idle_sweep.as_mut().filter(|idle_sweep| idle_sweep.due <= now)
        else {
            return;
        };
        let (from, to) = (idle_sweep.next, idle_sweep.next + IDLE_SWEEP);
        if to < self.flows.slots() {
            idle_sweep.next = to;
        } else {
            (idle_sweep.next, idle_sweep.due) = (0, now + idle_sweep.interval);
        }
        for slot in from..to {
            if let Some((key, entry)) = self.flows.at(slot)
                && let Some(cause) = entry.pump.check_idle(&self.rules.idle_timeouts, now)
            {
                self.fail(key, cause, host);
            }
        }
    }

    // The way to a server.

    /// Connects a flow to the next of its servers, or fails it with `cause` if none is left.
    fn connect_to_next(&mut self, key: Key, cause: Cause, now: Time, host: &mut H) {
        let Some(entry) = self.flows.get_mut(key) else { return };
        if host.connect_to_next(key, &mut entry.host) {
            entry.pump.replaced();
            self.await_answer(key, now);
        } else {
            self.fail(key, cause, host);
        }
    }

    /// Tries again to connect from a port that a former connection of its client still had.
    fn connect_again(&mut self, key: Key, now: Time, host: &mut H) {
        let Some(entry) = self.flows.get_mut(key) else { return };
        let tried_for = now.since(entry.start);
        match host.connect_again(key, &mut entry.host) {
            ConnectAgain::Begun => {}
            ConnectAgain::InUse if tried_for < PORT_RETRIES => {
                // Not many times, for one that lasts.
                self.start(Timer::Port, now + (tried_for / 4).max(PORT_RETRY), key);
            }
            ConnectAgain::InUse | ConnectAgain::Failed => {
                self.fail(key, Cause::ConnectFailed, host)
            }
        }
    }

    fn await_answer(&mut self, key: Key, now: Time) {
        let Rules { connect_timeout, tells_silence, .. } = self.rules;
        self.start(Timer::Connect, now + connect_timeout, key);
        if tells_silence && SILENCE < connect_timeout {
            self.start(Timer::Silence, now + SILENCE, key);
        } else if let Some(entry) = self.flows.get_mut(key) {
            // That of another server that was tried before.
            entry.armed.stop(Timer::Silence);
        }
    }

    // How a flow ends.

    /// Has a flow that waits for its last bytes to be acknowledged, of which the kernel tells nothing, looked at again.
    fn await_drain(&mut self, key: Key, now: Time) {
        if let Some(entry) = self.flows.get_mut(key)
            && entry.pump.is_lingering()
            && !entry.armed.has(Timer::Drain)
        {
            self.start(Timer::Drain, now + DRAIN_LOOK, key);
        }
    }

    /// Ends a flow, in order or because of this.
    fn remove(&mut self, key: Key, cause: Option<Cause>, host: &mut H) {
        let Some(Entry { pump, client, host: flow, .. }) = self.flows.remove(key) else { return };
        let over = Over { flow: pump.flow(), client, host: flow, left: self.flows.len() };
        host.ended(over, cause);
        self.release(client, host);
    }

    fn release(&mut self, client: H::Client, host: &mut H) {
        if self.admission.release(client) {
            host.say_full(client);
        }
    }

    fn enqueue(&mut self, key: Key) {
        if let Some(entry) = self.flows.get_mut(key)
            && !entry.queued
        {
            entry.queued = true;
            self.queue.push_back(key);
        }
    }

    fn start(&mut self, timer: Timer, due: Time, key: Key) {
        if let Some(entry) = self.flows.get_mut(key) {
            self.timers.start(timer, due, key, &mut entry.armed);
        }
    }
}
