//! One event loop, with the flows that its own listeners took.

mod beat;
mod connect;
mod hand_over;
mod held;
mod intake;
mod processor;
mod rounds;
mod turns;
mod watch;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_split::{Cause, PerLeg, ReadAhead};
use midspan_steer::HeldSyn;
use midspan_sys::sockdiag;
use midspan_units::ByteSize;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use beat::Beat;
use intake::listeners;
use processor::Processor;
pub(crate) use processor::set_priority;
use rounds::Rounds;
use watch::leg_of;

use crate::config::{Config, LegConfig, ReadAheadKind};
use crate::confirm::Confirmations;
use crate::counters::Counters;
use crate::flow::{LiveFlow, Means, Told};
use crate::greeting::Greetings;
use crate::observe::Asked;
use crate::outbox::Outbox;
use crate::pool::Pool;
use crate::shared::{HeldSlot, Phase, Settings, Shared, lower};
use crate::slab::{Key, Slab};
use crate::socket::{self, Family, Listener};

/// Events taken from the kernel at a time.
const EVENTS: usize = 512;
/// How long a draining relay still takes connections, at most: those whose handshake was under way when
/// the rules that brought them were removed.
const LAST_HANDSHAKES: Duration = Duration::from_secs(1);
/// How often a draining worker looks whether there still are any.
const LOOK_FOR_HANDSHAKES: Duration = Duration::from_millis(20);
/// The same for one that another relay has taken over from, which is in no hurry: enough for a SYN+ACK
/// that is sent again.
const RETIRING: Duration = Duration::from_secs(4);
/// What a worker may have in buffers however small its share would be.
const LEAST_BUFFERED: u64 = 1 << 20;

/// What epoll says of things that are not flows. No flow's word has the top 32 bits set like this.
const WAKE: u64 = u64::MAX;
const GREETINGS: u64 = u64::MAX - 1;
const CONFIRMATIONS: u64 = u64::MAX - 2;
const LISTENERS: u64 = u64::MAX - 0xffff;

pub(crate) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    /// Those of them at which connections wait.
    waiting_at: Vec<usize>,
    /// The place among those that BPF steers to.
    slot: Option<HeldSlot>,
    beat: Beat,
    /// When resting listeners are watched again.
    rest_until: Option<Instant>,
    clients: Vec<IpNet>,
    flows: Slab<LiveFlow>,
    pool: Pool,
    outbox: Outbox,
    /// Flows with work to do, in turn.
    queue: VecDeque<Key>,
    /// Flows that wait for a buffer, first come first served.
    waiting: VecDeque<Key>,
    /// When connects are given up. All have the same time, so the first in is the first due.
    connects: VecDeque<(Instant, Key)>,
    /// Flows whose client's port a former connection still has, and when they try again.
    port_waits: BinaryHeap<Reverse<(Instant, Key)>>,
    /// Held SYNs whose client's port a former connection still has: when to ask again, and when they came.
    held_waits: VecDeque<(Instant, Instant, HeldSyn)>,
    /// None if it may run anywhere.
    processor: Option<Processor>,
    /// Flows of which one leg has failed, and when to look again how much the other has delivered.
    lingering: VecDeque<(Instant, Key)>,
    greetings: Greetings,
    confirmations: Confirmations,
    /// When each of them has lasted so long that its server's answers may come by another way.
    doubts: VecDeque<(Instant, Instant, Key)>,
    rounds: Option<Rounds>,
    /// While a worker drains: until when it listens, and when it looks whether it still has to.
    last_accept: Option<(Instant, Instant)>,
    asked: Asked,
    /// As they were last seen to be.
    settings: Arc<Settings>,
    generation: u64,
}

impl Worker {
    /// Sets up a worker and its listeners, in the calling thread's network namespace. An error comes
    /// with the place that it is about.
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Result<Worker, (String, io::Error)> {
        let settings = shared.settings();
        let config = &settings.config;
        let listeners = listeners(&settings, shared.place)?;
        let events = |error| ("a worker's events".to_owned(), error);
        let greetings = Greetings::new().map_err(events)?;
        let confirmations = Confirmations::new().map_err(events)?;
        let watched = || {
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            watch(&epoll, &shared.ends[index].wake, WAKE, EventFlags::IN)?;
            watch(&epoll, greetings.fd(), GREETINGS, EventFlags::IN)?;
            watch(&epoll, confirmations.fd(), CONFIRMATIONS, EventFlags::IN)?;
            for (word, listener) in (LISTENERS..).zip(&listeners) {
                watch(&epoll, &listener.fd, word, EventFlags::IN)?;
            }
            Ok(epoll)
        };
        let epoll = watched().map_err(events)?;
        let limit = share_of_buffers(config, &shared);
        Ok(Worker {
            index,
            epoll,
            waiting_at: Vec::with_capacity(listeners.len()),
            listeners,
            slot: None,
            beat: Beat::none(),
            rest_until: None,
            clients: IpNet::aggregate(&config.clients),
            flows: Slab::new(),
            pool: Pool::new(limit, config.buffer, shared.descriptors.pipes_per_worker),
            outbox: Outbox::new(),
            queue: VecDeque::new(),
            waiting: VecDeque::new(),
            connects: VecDeque::new(),
            port_waits: BinaryHeap::new(),
            held_waits: VecDeque::new(),
            processor: None,
            lingering: VecDeque::new(),
            greetings,
            confirmations,
            doubts: VecDeque::new(),
            rounds: Rounds::new(&config.limits.patience()),
            last_accept: None,
            asked: Asked::default(),
            generation: shared.generation(),
            settings,
            shared,
        })
    }

    /// Its listeners for IPv4 and IPv6.
    pub(crate) fn listeners(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let of = |family| {
            self.listeners.iter().find(|one| one.family == family && one.forward.is_none())
        };
        [of(Family::V4), of(Family::V6)].map(|one| one.map(|one| one.fd.as_fd()))
    }

    /// Runs until the relay stops, or drains and the last flow has ended.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.beat();
            events.clear();
            self.wait(&mut events)?;
            for event in &events {
                self.event(event);
            }
            self.accept();
            self.take_turns();
            self.asked.step(&self.flows);
            self.give_up_connects();
            self.retry_connects();
            self.retry_asking();
            self.look_after_lingering();
            self.give_up_greetings();
            self.voice_doubts();
            self.give_up_confirmations();
            self.end_still_flows();
            self.rest_over();
            if self.is_done() {
                return Ok(());
            }
        }
    }

    /// Waits for events.
    fn wait(&self, events: &mut Vec<Event>) -> io::Result<()> {
        let timeout = self.timeout();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Goes on with the settings as they are now, for new connections.
    fn take_settings(&mut self) {
        self.generation = self.shared.generation();
        let before = std::mem::replace(&mut self.settings, self.shared.settings());
        let Settings { config, forwards } = &*self.settings;
        self.clients = IpNet::aggregate(&config.clients);
        self.pool.set_limit(share_of_buffers(config, &self.shared));
        self.rounds = Rounds::new(&config.limits.patience());
        for listener in &mut self.listeners {
            if before.config.client_leg != config.client_leg
                && let Err(error) = socket::reconfigure(listener, &config.client_leg)
            {
                tracing::error!(%error, "a listener could not be set up as configured");
            }
            if let Some(forward) = &mut listener.forward
                && let Some(new) = forwards.iter().find(|new| new.listen == forward.listen)
            {
                *forward = new.clone();
            }
        }
        if self.index == 0
            && before.config.limits.flows_per_client != config.limits.flows_per_client
        {
            self.say_who_is_full();
        }
        self.wake_waiting();
        // There may be room now, or none.
        self.beat.due = Instant::now();
    }

    fn counters(&self) -> &Counters {
        &self.shared.ends[self.index].counters
    }

    fn event(&mut self, event: &Event) {
        let Event { flags, data, .. } = *event;
        match data.u64() {
            // What for is seen when the events are done with.
            WAKE => {
                let end = &self.shared.ends[self.index];
                lower(&end.wake);
                self.asked.take_up(&end.questions);
                if self.generation != self.shared.generation() {
                    self.take_settings();
                }
                self.take_held();
                self.take_handed();
            }
            CONFIRMATIONS => {
                for released in self.confirmations.hear() {
                    self.send_on(released);
                }
            }
            GREETINGS => self.hear_greetings(),
            listener @ LISTENERS..CONFIRMATIONS => {
                let listener = (listener - LISTENERS) as usize;
                // It may be told of twice.
                if !self.waiting_at.contains(&listener) {
                    self.waiting_at.push(listener);
                }
            }
            word => {
                let (key, leg) = leg_of(word);
                let means = Means {
                    key,
                    pool: &mut self.pool,
                    outbox: &mut self.outbox,
                    counters: &self.shared.ends[self.index].counters,
                };
                if let Some(flow) = self.flows.get_mut(key) {
                    match flow.event(leg, flags, means) {
                        Told::Work => self.enqueue(key),
                        Told::Connected => {
                            self.copy_marking(key);
                            self.enqueue(key);
                        }
                        Told::TryAnother => self.connect_to_another(key, Cause::ConnectFailed),
                    }
                }
            }
        }
    }

    /// How long there is nothing to do unless something happens.
    fn timeout(&self) -> Option<Timespec> {
        if !self.queue.is_empty() || self.asked.is_busy() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let connect = self.connects.front().map(|&(due, _)| due);
        let doubt = self.doubts.front().map(|&(at, ..)| at);
        let retry = self.port_waits.peek().map(|&Reverse((at, _))| at);
        let asking = self.held_waits.front().map(|&(at, ..)| at);
        let look = self.lingering.front().map(|&(at, _)| at);
        let last_accept = self.last_accept.filter(|_| !self.listeners.is_empty());
        let last_accept = last_accept.map(|(until, look)| until.min(look));
        let beat = Some(self.beat.due);
        let greeting = self.greetings.next_due();
        let confirmation = self.confirmations.next_due();
        let round = self.rounds.as_ref().map(|rounds| rounds.due);
        let due = [
            connect,
            doubt,
            look,
            retry,
            asking,
            self.rest_until,
            last_accept,
            beat,
            round,
            greeting,
            confirmation,
        ]
        .into_iter()
        .flatten()
        .min()?;
        let wait = due.saturating_duration_since(Instant::now());
        // Rounded up, as waking early would only mean to wait again.
        Timespec::try_from(wait + Duration::from_millis(1)).ok()
    }

    fn is_done(&mut self) -> bool {
        match self.shared.phase() {
            Phase::Run => false,
            Phase::Drain | Phase::Retire => {
                self.listen_no_more();
                self.listeners.is_empty()
                    && self.flows.len() == 0
                    && self.greetings.len() == 0
                    && self.confirmations.len() == 0
                    && self.held_waits.is_empty()
                    && self.inbox().close()
            }
            Phase::Stop => {
                self.beat();
                while !self.inbox().close() {
                    self.take_handed();
                }
                let open: Vec<Key> = self.flows.keys().collect();
                open.into_iter().for_each(|key| self.fail(key, Cause::Stopped));
                true
            }
        }
    }

    /// Closes the listeners of a worker that drains, once nobody's handshake with them can be under way.
    fn listen_no_more(&mut self) {
        if self.listeners.is_empty() {
            return;
        }
        let now = Instant::now();
        let retires = self.shared.phase() == Phase::Retire;
        let last = if retires { RETIRING } else { LAST_HANDSHAKES };
        // Packets that had been steered are on their way to the listener: the first look is not at once.
        let (until, look) = self.last_accept.get_or_insert((now + last, now + LOOK_FOR_HANDSHAKES));
        if now < *until {
            if now < *look {
                return;
            }
            *look = now + LOOK_FOR_HANDSHAKES;
            // Other sockets of a relay in use are many to look through, and it is in no hurry.
            if retires || self.flows.len() > 0 || sockdiag::handshakes_under_way().unwrap_or(true) {
                return;
            }
        }
        self.close_listeners();
    }
}

/// How far a new flow's legs are read ahead of each other.
fn read_ahead(config: &Config) -> PerLeg<ReadAhead> {
    let buffer = config.buffer.as_bytes();
    let of = |draining: &LegConfig| match config.read_ahead {
        ReadAheadKind::Fixed => ReadAhead::fixed(buffer),
        ReadAheadKind::Auto => {
            ReadAhead::measured(buffer, draining.notsent_lowat.map(ByteSize::as_bytes))
        }
    };
    PerLeg { client: of(&config.server_leg), server: of(&config.client_leg) }
}

/// What one worker may have in buffers.
fn share_of_buffers(config: &Config, shared: &Shared) -> ByteSize {
    let share = config.limits.buffered.as_bytes() / shared.ends.len() as u64;
    ByteSize::from_bytes(share.max(LEAST_BUFFERED))
}

fn watch(epoll: &OwnedFd, fd: &OwnedFd, word: u64, flags: EventFlags) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, EventData::new_u64(word), flags)?)
}
