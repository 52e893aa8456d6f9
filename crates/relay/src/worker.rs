//! One event loop, with the flows that its own listeners took.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_observe::subscriber;
use midspan_split::{Cause, Leg, Patience, PerLeg, Refusal, Watermarks, takes_nearby};
use midspan_steer::{HeldSyn, Slot};
use midspan_units::{ByteSize, Time};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use socket2::Socket;

use crate::config::{Config, Dscp, Forward};
use crate::confirm::{Confirmations, Released};
use crate::counters::{Count, Counters};
use crate::flow::{LiveFlow, Next, Others, Story, Told};
use crate::greeting::{Greeted, Greetings};
use crate::interception::is_probe;
use crate::observe::Asked;
use crate::opening::Opening;
use crate::outbox::Outbox;
use crate::pool::Pool;
use crate::proxy_protocol::Ends;
use crate::shared::{HeldSlot, Phase, Settings, Shared, lower};
use crate::slab::{Key, Slab};
use crate::socket::{self, Accepted, Family, Listener, NotAccepted, Place};

/// Events taken from the kernel at a time.
const EVENTS: usize = 512;
/// Connections taken from a listener at a time.
const ACCEPTS: usize = 64;
/// How long a listener rests when the system has no room for its connections.
const REST: Duration = Duration::from_millis(10);
/// How long a draining relay still takes connections: those whose handshake was under way when
/// the rules that brought them were removed.
const LAST_HANDSHAKES: Duration = Duration::from_secs(1);
/// The same for one that another relay has taken over from, which is in no hurry: enough for a SYN+ACK
/// that is sent again.
const RETIRING: Duration = Duration::from_secs(4);
/// How long a server may take to answer before it counts as silent: enough for two more SYNs.
const DOUBT: Duration = Duration::from_secs(3);

/// How often a worker says that it lives; BPF believes it for half a second.
const BEAT: Duration = Duration::from_millis(100);
/// The same where BPF does not steer, and only the operator is told.
const SLOW_BEAT: Duration = Duration::from_secs(1);
/// Connections after which it says so at once, for the room that it has is less.
const NEWS: u64 = 64;

/// What a worker last said of itself.
#[derive(Debug, Clone, Copy)]
struct Beat {
    /// When the next is due.
    due: Instant,
    /// Whether it takes connections.
    open: bool,
    /// How many it had taken.
    taken: u64,
}

/// Flows looked at in one go for having been still too long.
const LOOKS: usize = 1024;

/// A round through all flows, now and then, for those that have been still too long.
#[derive(Debug)]
struct Rounds {
    interval: Duration,
    /// When the next round begins, or this one goes on.
    due: Instant,
    /// The slot where it goes on.
    next: usize,
    /// What the time is counted from.
    origin: Instant,
}

impl Rounds {
    /// None if nothing is to be looked for.
    fn new(patience: &Patience) -> Option<Rounds> {
        let (interval, now) = (patience.interval()?.into(), Instant::now());
        Some(Rounds { interval, due: now + interval, next: 0, origin: now })
    }
}

/// What a worker may have in buffers however small its share would be.
const LEAST_BUFFERED: u64 = 1 << 20;

/// What epoll says of things that are not flows. No flow's word has the top 32 bits set like this.
const WAKE: u64 = u64::MAX;
const GREETINGS: u64 = u64::MAX - 1;
const CONFIRMATIONS: u64 = u64::MAX - 2;
const LISTENERS: u64 = u64::MAX - 0xffff;

/// What a flow's sockets are watched for.
const FLOW: EventFlags = EventFlags::IN
    .union(EventFlags::PRI)
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

pub(crate) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    /// The place among those that BPF steers to.
    slot: Option<HeldSlot>,
    beat: Beat,
    /// When resting listeners are watched again.
    rest_until: Option<Instant>,
    clients: Vec<IpNet>,
    marks: Watermarks,
    flows: Slab<LiveFlow>,
    pool: Pool,
    outbox: Outbox,
    /// Flows with work to do, in turn.
    queue: VecDeque<Key>,
    /// Flows that wait for a buffer, first come first served.
    waiting: VecDeque<Key>,
    /// When connects are given up. All have the same time, so the first in is the first due.
    connects: VecDeque<(Instant, Key)>,
    /// The processor that it is kept on, and whether it prefers connections that arrive there.
    processor: Option<(usize, bool)>,
    /// When servers' handshakes are acknowledged at the latest, in the order of time.
    handshakes: VecDeque<(Instant, Key)>,
    greetings: Greetings,
    confirmations: Confirmations,
    /// When each of them has lasted so long that its server's answers may come by another way.
    doubts: VecDeque<(Instant, Instant, Key)>,
    rounds: Option<Rounds>,
    /// When a draining worker closes its listeners.
    last_accept: Option<Instant>,
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
            listeners,
            slot: None,
            beat: Beat { due: Instant::now(), open: false, taken: 0 },
            rest_until: None,
            clients: IpNet::aggregate(&config.clients),
            marks: Watermarks::up_to(config.buffer.as_bytes()),
            flows: Slab::new(),
            pool: Pool::new(limit, config.buffer, shared.descriptors.pipes_per_worker),
            outbox: Outbox::new(),
            queue: VecDeque::new(),
            waiting: VecDeque::new(),
            connects: VecDeque::new(),
            processor: None,
            handshakes: VecDeque::new(),
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

    /// Has BPF steer to it, as long as it says that it lives.
    pub(crate) fn set_slot(&mut self, slot: Slot) {
        self.slot = Some(HeldSlot::new(slot, self.shared.clone()));
    }

    /// Is kept on this processor.
    pub(crate) fn set_processor(&mut self, processor: usize) {
        self.processor = Some((processor, false));
    }

    /// Takes the connections that arrive on its own processor, unless it has too many flows already.
    fn balance(&mut self) {
        let Some((processor, nearby)) = self.processor else { return };
        let (own, all) = (self.flows.len() as u64, self.shared.ledger().flows().into());
        let wanted = takes_nearby(own, all, self.shared.ends.len() as u64);
        if wanted == nearby {
            return;
        }
        self.processor = Some((processor, wanted));
        for listener in &self.listeners {
            if let Err(error) = listener.prefer(wanted.then_some(processor)) {
                tracing::debug!(%error, "connections come from any processor");
            }
        }
    }

    /// Runs until the relay stops, or drains and the last flow has ended.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.beat();
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.event(event);
            }
            self.take_turns();
            self.asked.step(&self.flows);
            self.acknowledge_handshakes();
            self.give_up_connects();
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

    /// Says that it lives, if it is time to or something has changed, and what it has room for.
    fn beat(&mut self) {
        if self.shared.phase() >= Phase::Retire {
            self.slot = None;
        }
        let open = self.shared.phase() == Phase::Run && self.rest_until.is_none();
        let accepted = self.counters().accepted.get();
        let (now, beat) = (Instant::now(), self.beat);
        let is_news = open != beat.open || accepted - beat.taken >= NEWS;
        if now < beat.due && !(is_news && self.slot.is_some()) {
            return;
        }
        if let Some(slot) = &self.slot {
            let room = if self.pool.has_room() { self.shared.ledger().room() } else { 0 };
            if let Err(error) = slot.beat(open, room) {
                tracing::error!(%error, "a worker could not say that it lives");
            }
        }
        self.shared.beat(self.index, now);
        self.balance();
        let until_next = if self.slot.is_some() { BEAT } else { SLOW_BEAT };
        self.beat = Beat { due: now + until_next, open, taken: accepted };
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

    /// Says of every client whether it is full, after the limit was changed.
    fn say_who_is_full(&self) {
        let ledger = self.shared.ledger();
        for client in ledger.clients() {
            self.say_full(*client, ledger.is_full(client));
        }
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
            }
            CONFIRMATIONS => {
                for released in self.confirmations.hear() {
                    self.send_on(released);
                }
            }
            GREETINGS => self.hear_greetings(),
            listener @ LISTENERS..CONFIRMATIONS => self.accept((listener - LISTENERS) as usize),
            word => {
                let leg = if word & 1 == 0 { Leg::Client } else { Leg::Server };
                let key = Key::from_bits(word >> 1);
                let counters = &self.shared.ends[self.index].counters;
                if let Some(flow) = self.flows.get_mut(key) {
                    match flow.event(leg, flags, counters) {
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

    fn enqueue(&mut self, key: Key) {
        if let Some(flow) = self.flows.get_mut(key)
            && !flow.queued
        {
            flow.queued = true;
            self.queue.push_back(key);
        }
    }

    /// Gives each flow that is queued now one turn.
    fn take_turns(&mut self) {
        for _ in 0..self.queue.len() {
            let Some(key) = self.queue.pop_front() else { break };
            let Some(flow) = self.flows.get_mut(key) else { continue };
            flow.queued = false;
            let counters = &self.shared.ends[self.index].counters;
            let next = flow.turn(key, &mut self.pool, &mut self.outbox, counters);
            self.go_on(key, next);
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
    fn go_on(&mut self, key: Key, next: Next) {
        let counters = &self.shared.ends[self.index].counters;
        match next {
            Next::Wait => {}
            Next::Turn => self.enqueue(key),
            Next::Buffer => {
                if let Some(flow) = self.flows.get_mut(key).filter(|flow| !flow.waiting) {
                    flow.waiting = true;
                    counters.buffer_waits.add(1);
                    self.waiting.push_back(key);
                }
            }
            Next::Close => {
                counters.closed.add(1);
                self.remove(key, None);
            }
            Next::Abort(cause) => {
                count_abort(counters, cause);
                self.remove(key, Some(cause));
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
            let counters = &self.shared.ends[self.index].counters;
            let next = flow.sent_out(to, sent, &mut self.pool, counters);
            self.go_on(key, next);
        }
        self.outbox.clear();
    }

    /// Lets flows that wait for a buffer try again, as many as there are buffers.
    fn wake_waiting(&mut self) {
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

    /// Ends a flow, in order or because of this.
    fn remove(&mut self, key: Key, cause: Option<Cause>) {
        if let Some(mut flow) = self.flows.remove(key) {
            let end = &self.shared.ends[self.index];
            self.shared.observer.ended(end, self.index, &flow, cause);
            flow.release(&mut self.pool);
            self.counters().buffered.set(self.pool.used());
            self.release(flow.client);
            self.counters().active.set(self.flows.len() as u64);
        }
    }

    /// Takes a flow out of the ledger. Whether its client is full is told under the ledger's lock, so
    /// that what is told last is true.
    fn release(&self, client: IpAddr) {
        let mut ledger = self.shared.ledger();
        let was_full = ledger.is_full(&client);
        ledger.release(client);
        if was_full && !ledger.is_full(&client) {
            self.say_full(client, false);
        }
    }

    fn say_full(&self, client: IpAddr, full: bool) {
        if let Some(slot) = &self.slot
            && let Err(error) = slot.set_full(client, full)
        {
            tracing::debug!(%error, "a full client's further connections are reset, not passed");
        }
    }

    /// Takes what waits at a listener, up to a fair share; epoll tells again of the rest.
    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(listener) else { return };
            let forward = listener.forward.clone();
            match socket::accept(listener) {
                Ok(accepted) => self.welcome(accepted, forward),
                Err(NotAccepted::NoneWaiting) => return,
                Err(NotAccepted::Failed) => self.counters().refused_errors.add(1),
                Err(NotAccepted::NoRoom) => return self.rest(),
            }
        }
    }

    /// Takes what still waits at the listeners, which closing would reset, and closes them.
    fn close_listeners(&mut self) {
        for index in 0..self.listeners.len() {
            loop {
                let listener = &self.listeners[index];
                let forward = listener.forward.clone();
                match socket::accept(listener) {
                    Ok(accepted) => self.welcome(accepted, forward),
                    Err(NotAccepted::Failed) => self.counters().refused_errors.add(1),
                    Err(NotAccepted::NoneWaiting | NotAccepted::NoRoom) => break,
                }
            }
        }
        self.listeners.clear();
    }

    /// Takes a connection, once it is known whose it is; or resets it: dropping its socket does.
    fn welcome(&mut self, accepted: Accepted, forward: Option<Arc<Forward>>) {
        let Some(forward) = forward else { return self.take(accepted, None) };
        if !forward.is_told() {
            return self.introduce(accepted, forward, None);
        }
        if !forward.trusts(accepted.client.ip()) {
            return self.counters().refused_proxy.add(1);
        }
        // Each has a descriptor, of those that are there for flows.
        let room = self.shared.ledger().room() as usize / self.shared.ends.len();
        if self.greetings.len() >= room {
            return self.counters().refused_flows.add(1);
        }
        if let Some(greeted) = self.greetings.begin(accepted, forward) {
            self.greeted(greeted);
        }
    }

    fn hear_greetings(&mut self) {
        for greeted in self.greetings.hear() {
            self.greeted(greeted);
        }
    }

    fn give_up_greetings(&mut self) {
        let refused = self.greetings.give_up();
        self.counters().refused_header.add(refused);
    }

    fn greeted(&mut self, greeted: Greeted) {
        match greeted {
            Greeted::Whole(accepted, forward, ends) => self.introduce(accepted, forward, ends),
            Greeted::Refused => self.counters().refused_header.add(1),
        }
    }

    /// Takes a connection that is passed on, whose ends are its own unless a proxy has told others.
    fn introduce(&mut self, mut accepted: Accepted, forward: Arc<Forward>, ends: Option<Ends>) {
        if let Some(version) = forward.send {
            let client = accepted.client;
            let own = || Some(Ends { client, server: socket::address_of(&accepted.socket)? });
            let Some(ends) = ends.or_else(own) else {
                return self.counters().refused_errors.add(1);
            };
            accepted.preface = Some(ends.header(version));
        }
        if let Some(ends) = ends {
            accepted.client = ends.client;
        }
        self.take(accepted, Some(forward));
    }

    /// Starts a flow, to the first of `forward` that can be connected to, or else to whom the client
    /// wanted; or resets the client.
    fn take(&mut self, accepted: Accepted, forward: Option<Arc<Forward>>) {
        let confirmed = self.confirmations.claim(accepted.client, accepted.server);
        let server_leg = match self.admit(&accepted, forward.is_some(), confirmed) {
            Ok(server_leg) => server_leg,
            Err(refusal) => return refusal(self.counters()).add(1),
        };
        // Counted before the server can know of it, so that who knows of it finds it counted.
        let Accepted { client, server, opening, mptcp, .. } = accepted;
        self.counters().accepted.add(1);
        self.counters().active.set(self.flows.len() as u64 + 1);
        self.counters().mptcp.add(u64::from(mptcp));
        count_declined(self.counters(), opening, self.settings.config.fast_open);
        let start = Instant::now();
        let due = start + Duration::from(self.settings.config.connect_timeout);
        let spliced = PerLeg::default();
        let story = Story { client, server, start, connected: None, spliced };
        match self.start(accepted, story, server_leg, forward, due) {
            Ok(key) => {
                self.await_connect(due, key);
                self.balance();
            }
            Err(error) => {
                tracing::debug!(%server, %error, "the server leg could not connect");
                self.release(subscriber(client.ip()));
                self.counters().connect_failed.add(1);
                let end = &self.shared.ends[self.index];
                self.shared.observer.not_started(end, self.index, &story);
                self.counters().active.set(self.flows.len() as u64);
            }
        }
    }

    /// Whether the connection is taken. If so it is in the ledger, and this is its server leg's
    /// socket; if not this is the count of its kind.
    fn admit(
        &self,
        accepted: &Accepted,
        is_forwarded: bool,
        confirmed: Option<OwnedFd>,
    ) -> Result<ServerLeg, fn(&Counters) -> &Count> {
        let config = &self.settings.config;
        let Accepted { client, server, opening, .. } = accepted;
        if !is_forwarded {
            if is_probe(client.ip(), *server) {
                return Err(|counters| &counters.probes);
            }
            if self.listeners.iter().any(|listener| listener.is_at(*server)) {
                return Err(|counters| &counters.refused_direct);
            }
            if !self.clients.iter().any(|prefix| prefix.contains(&client.ip())) {
                return Err(|counters| &counters.refused_client);
            }
        }
        if !self.pool.has_room() {
            return Err(|counters| &counters.refused_buffered);
        }
        let open = || socket::open(*server, &config.server_leg, !is_forwarded, opening.dscp);
        let server_leg = match confirmed {
            Some(socket) => ServerLeg::Connected(socket),
            None => ServerLeg::New(open().map_err(|error| {
                let count: fn(&Counters) -> &Count = match Errno::from_io_error(&error) {
                    Some(Errno::MFILE | Errno::NFILE) => |counters| &counters.refused_descriptors,
                    _ => |counters| &counters.refused_errors,
                };
                count
            })?),
        };
        let client = subscriber(client.ip());
        let mut ledger = self.shared.ledger();
        match ledger.admit(client) {
            Ok(()) => {
                if ledger.is_full(&client) {
                    self.say_full(client, true);
                }
                Ok(server_leg)
            }
            Err(Refusal::TooManyFlows) => Err(|counters| &counters.refused_flows),
            Err(Refusal::TooManyOfClient) => Err(|counters| &counters.refused_flows_per_client),
        }
    }

    fn start(
        &mut self,
        accepted: Accepted,
        mut story: Story,
        server_leg: ServerLeg,
        forward: Option<Arc<Forward>>,
        due: Instant,
    ) -> io::Result<Key> {
        let Accepted { socket: client_leg, client, server, opening, preface, .. } = accepted;
        let mut others = Others::of(forward);
        let mut early = 0;
        // What one server may have got must not be sent to another as well.
        let sends_data = self.settings.config.fast_open
            && opening.data
            && others.is_empty()
            && preface.is_none();
        let mut connected = match server_leg {
            ServerLeg::Connected(socket) => Ok(socket),
            ServerLeg::New(socket) => {
                if matches!(others, Others::None) {
                    socket::bind_as(&socket, client, self.shared.place)?;
                }
                if sends_data {
                    self.counters().fast_open_accepted.add(1);
                    let connected = socket::connect_with_data_of(&client_leg, socket, server);
                    connected.map(|(fd, sent)| {
                        early = sent as u64;
                        fd
                    })
                } else {
                    socket::connect(socket, server)
                }
            }
        };
        while connected.is_err()
            && let Some(other) = others.next()
        {
            connected = self.connect_to(other, opening.dscp);
            story.server = other;
        }
        let mut flow = LiveFlow::new(story, client_leg, connected?, self.marks, others, due);
        (flow.dscp, flow.preface) = (opening.dscp, preface);
        if early > 0 {
            flow.early(early, self.counters());
        }
        let acknowledges_at = flow.acknowledges_at();
        let key = self.flows.insert_with(|key| {
            for (leg, bit) in [(Leg::Client, 0), (Leg::Server, 1)] {
                watch(&self.epoll, flow.fd(leg), key.to_bits() << 1 | bit, FLOW)?;
            }
            Ok::<_, io::Error>(flow)
        })?;
        self.handshakes.push_back((acknowledges_at, key));
        Ok(key)
    }

    /// Marks what is sent to a client as its server has marked its answer, which BPF has seen.
    fn copy_marking(&mut self, key: Key) {
        let Some(slot) = &self.slot else { return };
        if self.settings.config.client_leg.dscp != Dscp::Copy {
            return;
        }
        let Some(flow) = self.flows.get_mut(key) else { return };
        let Story { client, server, .. } = *flow.story();
        let marked = match slot.answer_dscp(client, server) {
            Ok(dscp) => socket::mark(flow.fd(Leg::Client), client.ip(), dscp.unwrap_or(0)),
            Err(error) => Err(error),
        };
        if let Err(error) = marked {
            tracing::debug!(%error, "a server's marking is not copied");
        }
    }

    /// Asks the servers of clients whose SYN is held.
    fn take_held(&mut self) {
        if self.shared.injector.get().is_none() {
            return;
        }
        let held = &self.shared.ends[self.index].held;
        let held = std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner));
        for syn in held {
            let released = match self.confirmations.come_again(syn) {
                Ok(released) => Some(released),
                Err(syn) => {
                    let connect = self.ask(&syn);
                    self.confirmations.begin(syn, connect)
                }
            };
            if let Some(released) = released {
                self.send_on(released);
            }
        }
    }

    /// Begins to connect to the server of a held SYN.
    fn ask(&self, syn: &HeldSyn) -> io::Result<OwnedFd> {
        let is_client = self.clients.iter().any(|prefix| prefix.contains(&syn.client.ip()));
        let has_room = self.confirmations.len() < self.settings.config.limits.half_open as usize;
        if !is_client || !has_room || self.shared.phase() != Phase::Run {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let leg = &self.settings.config.server_leg;
        let socket = socket::open(syn.server, leg, true, syn.dscp)?;
        socket::bind_as(&socket, syn.client, self.shared.place)?;
        let socket = socket::connect(socket, syn.server)?;
        // Its client comes only later, and has nothing to take along.
        rustix::net::sockopt::set_tcp_quickack(&socket, true)?;
        Ok(socket)
    }

    /// Sends a held SYN on: to our listener if its server has answered, and else to the server.
    fn send_on(&self, Released { syn, confirmed }: Released) {
        let (Some(slot), Some(injector)) = (&self.slot, self.shared.injector.get()) else { return };
        let sent = slot
            .release(syn.client, syn.server, confirmed)
            .and_then(|()| injector.inject(&syn.packet));
        if let Err(error) = sent {
            // The client sends it again.
            tracing::debug!(%error, "a held connection could not be sent on");
        }
    }

    fn give_up_confirmations(&mut self) {
        for released in self.confirmations.give_up() {
            self.send_on(released);
        }
    }

    fn connect_to(&self, server: SocketAddr, dscp: u8) -> io::Result<OwnedFd> {
        let socket = socket::open(server, &self.settings.config.server_leg, false, dscp)?;
        socket::connect(socket, server)
    }

    /// Connects a flow to the next of its servers, or fails it with `cause` if none is left.
    fn connect_to_another(&mut self, key: Key, cause: Cause) {
        let due = Instant::now() + Duration::from(self.settings.config.connect_timeout);
        let next = |flow: &mut LiveFlow| flow.next_server().map(|server| (server, flow.dscp));
        while let Some((server, dscp)) = self.flows.get_mut(key).and_then(next) {
            let connected = self.connect_to(server, dscp).and_then(|fd| {
                watch(&self.epoll, &fd, key.to_bits() << 1 | 1, FLOW)?;
                Ok(fd)
            });
            if let Ok(fd) = connected
                && let Some(flow) = self.flows.get_mut(key)
            {
                flow.replace_server_leg(fd, server, due);
                self.await_connect(due, key);
                return;
            }
        }
        self.fail(key, cause);
    }

    /// Stops watching the listeners for a while, rather than be told over and over of
    /// connections that cannot be taken.
    fn rest(&mut self) {
        self.watch_listeners(EventFlags::empty());
        self.rest_until = Some(Instant::now() + REST);
    }

    fn rest_over(&mut self) {
        if self.rest_until.is_some_and(|until| until <= Instant::now()) {
            self.rest_until = None;
            self.watch_listeners(EventFlags::IN);
        }
    }

    fn watch_listeners(&self, flags: EventFlags) {
        for (index, listener) in (0u64..).zip(&self.listeners) {
            let data = EventData::new_u64(LISTENERS + index);
            if let Err(error) = epoll::modify(&self.epoll, &listener.fd, data, flags) {
                tracing::error!(%error, "a listener could not be watched");
            }
        }
    }

    fn give_up_connects(&mut self) {
        let mut now = None;
        while let Some(&(due, key)) = self.connects.front() {
            let connecting = self.flows.get_mut(key).is_some_and(|flow| flow.is_due(due));
            if connecting && *now.get_or_insert_with(Instant::now) < due {
                break;
            }
            self.connects.pop_front();
            if connecting {
                self.connect_to_another(key, Cause::ConnectTimedOut);
            }
        }
    }

    /// Acknowledges handshakes whose clients have not sent anything in time.
    fn acknowledge_handshakes(&mut self) {
        let mut now = None;
        while let Some(&(due, key)) = self.handshakes.front() {
            let flow = self.flows.get_mut(key).filter(|flow| flow.keeps_ack());
            if flow.is_some() && *now.get_or_insert_with(Instant::now) < due {
                break;
            }
            self.handshakes.pop_front();
            if let Some(flow) = flow {
                flow.acknowledge();
            }
        }
    }

    fn await_connect(&mut self, due: Instant, key: Key) {
        self.connects.push_back((due, key));
        if self.slot.is_some() {
            self.doubts.push_back((Instant::now() + DOUBT, due, key));
        }
    }

    /// Has new connections to a server pass that has not answered for long: they show whether its
    /// answers come by another way than through here.
    fn voice_doubts(&mut self) {
        let mut now = None;
        while let Some(&(at, due, key)) = self.doubts.front() {
            let connecting = self.flows.get_mut(key).filter(|flow| flow.is_due(due));
            let server = connecting.and_then(|flow| socket::server_of(flow.fd(Leg::Client)));
            if server.is_some() && *now.get_or_insert_with(Instant::now) < at {
                break;
            }
            self.doubts.pop_front();
            if let (Some(server), Some(slot)) = (server, &self.slot) {
                self.counters().doubts.add(1);
                if let Err(error) = slot.doubt(server.ip()) {
                    tracing::debug!(%error, "a silent server's prefix could not be passed");
                }
            }
        }
    }

    /// Goes on with a round that is due: resets flows in which nothing has moved for too long.
    fn end_still_flows(&mut self) {
        let Some(rounds) = &mut self.rounds else { return };
        let now = Instant::now();
        if now < rounds.due {
            return;
        }
        let (from, to) = (rounds.next, rounds.next + LOOKS);
        if to < self.flows.slots() {
            rounds.next = to;
        } else {
            (rounds.next, rounds.due) = (0, now + rounds.interval);
        }
        let time = Time::from_nanos((now - rounds.origin).as_nanos() as u64);
        let patience = self.settings.config.limits.patience();
        for slot in from..to {
            if let Some((key, flow)) = self.flows.at(slot)
                && let Some(cause) = flow.overstays(&patience, time)
            {
                self.fail(key, cause);
            }
        }
    }

    fn fail(&mut self, key: Key, cause: Cause) {
        if let Some(flow) = self.flows.get_mut(key) {
            flow.fail(cause);
            count_abort(self.counters(), cause);
            self.remove(key, Some(cause));
        }
    }

    /// How long there is nothing to do unless something happens.
    fn timeout(&self) -> Option<Timespec> {
        if !self.queue.is_empty() || self.asked.is_busy() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let connect = self.connects.front().map(|&(due, _)| due);
        let doubt = self.doubts.front().map(|&(at, ..)| at);
        let last_accept = self.last_accept.filter(|_| !self.listeners.is_empty());
        let beat = Some(self.beat.due);
        let greeting = self.greetings.next_due();
        let confirmation = self.confirmations.next_due();
        let round = self.rounds.as_ref().map(|rounds| rounds.due);
        let due =
            [connect, doubt, self.rest_until, last_accept, beat, round, greeting, confirmation]
                .into_iter()
                .flatten()
                .min()?;
        let wait = due.saturating_duration_since(Instant::now());
        // Rounded up, as waking early would only mean to wait again.
        let mut wait = wait + Duration::from_millis(1);
        if let Some(&(due, _)) = self.handshakes.front() {
            wait = wait.min(due.saturating_duration_since(Instant::now()));
        }
        Timespec::try_from(wait).ok()
    }

    fn is_done(&mut self) -> bool {
        match self.shared.phase() {
            Phase::Run => false,
            Phase::Drain | Phase::Retire => {
                let now = Instant::now();
                let last =
                    if self.shared.phase() == Phase::Retire { RETIRING } else { LAST_HANDSHAKES };
                if now >= *self.last_accept.get_or_insert(now + last) {
                    self.close_listeners();
                }
                self.listeners.is_empty()
                    && self.flows.len() == 0
                    && self.greetings.len() == 0
                    && self.confirmations.len() == 0
            }
            Phase::Stop => {
                self.beat();
                let open: Vec<Key> = self.flows.keys().collect();
                open.into_iter().for_each(|key| self.fail(key, Cause::Stopped));
                true
            }
        }
    }
}

/// All places at which a worker listens.
fn listeners(settings: &Settings, place: Place) -> Result<Vec<Listener>, (String, io::Error)> {
    let config = &settings.config;
    let mut listeners = Vec::new();
    for family in [Family::V4, Family::V6] {
        let is_wanted = |prefix: &IpNet| Family::of(prefix.addr()) == family;
        if config.clients.iter().any(is_wanted) {
            let listener = socket::listen(family, place, config).map_err(|error| {
                let hint = "a port of any address (it takes CAP_NET_ADMIN, and one that is free)";
                (hint.to_owned(), error)
            });
            listeners.push(listener?);
        }
    }
    for forward in &settings.forwards {
        let address = &forward.listen;
        let family = Family::of(address.ip());
        let mut listener = socket::listen(family, Place::Open(*address), config)
            .map_err(|error| (address.to_string(), error))?;
        listener.forward = Some(forward.clone());
        listeners.push(listener);
    }
    Ok(listeners)
}

/// What one worker may have in buffers.
fn share_of_buffers(config: &Config, shared: &Shared) -> ByteSize {
    let share = config.limits.buffered.as_bytes() / shared.ends.len() as u64;
    ByteSize::from_bytes(share.max(LEAST_BUFFERED))
}

fn watch(epoll: &OwnedFd, fd: &OwnedFd, word: u64, flags: EventFlags) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, EventData::new_u64(word), flags)?)
}

/// Counts what a client has offered and the relay does not carry across.
fn count_declined(counters: &Counters, opening: Opening, accepts_fast_open: bool) {
    let Opening { mptcp, fast_open, other, .. } = opening;
    for (offered, count) in [
        (mptcp, &counters.declined_mptcp),
        (fast_open && !accepts_fast_open, &counters.declined_fast_open),
        (other, &counters.declined_options),
    ] {
        if offered {
            count.add(1);
        }
    }
}

/// The socket of a server leg.
enum ServerLeg {
    New(Socket),
    /// As its client's SYN was held.
    Connected(OwnedFd),
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
