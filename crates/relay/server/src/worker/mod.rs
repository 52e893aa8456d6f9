//! A worker: one event loop, with the flows that its own listeners took. What is decided of these is decided by
//! [`Worker`]; this waits, hears and does.

mod admin_queries;
mod beat;
mod connect;
mod context;
mod deferred_accept;
mod hand_over;
mod host;
mod intake;
mod processor;
mod server_window;
mod watch;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_config::{Config, LegConfig, ReadAheadKind};
use midspan_forward::{Frontend, ProxyHeaderWait};
use midspan_legs::{Outbox, Pool, readiness};
use midspan_sockets::{self as sockets, Family};
use midspan_split::{
    Cause, DeferredAccept, Drain, DrainKind, FirstWindows, Heartbeat, Host, PerLeg, ReadAhead,
    Rules, Worker,
};
use midspan_sys::sockdiag;
use midspan_threads::wake::lower;
use midspan_units::{ByteSize, Time};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventFlags};
use rustix::io::Errno;

use crate::phase::Phase;
use crate::settings::Settings;
use admin_queries::AdminQueries;
pub(crate) use context::Context;
pub(crate) use host::LiveHost;
use intake::frontends;
use processor::Processor;
pub(crate) use processor::set_priority;
use watch::{leg_of, watch};

/// Events taken from the kernel at a time.
const EVENTS: usize = 512;
/// What a worker may have in buffers however small its share would be.
const LEAST_BUFFERED: u64 = 1 << 20;

/// What epoll says of things that are not flows. No flow's word has the top 32 bits set like this.
const WAKE: u64 = u64::MAX;
const PROXY_HEADERS: u64 = u64::MAX - 1;
const PROBED: u64 = u64::MAX - 2;
const LISTENERS: u64 = u64::MAX - 0xffff;

pub(crate) struct EventLoop {
    flows: Worker<LiveHost>,
    host: LiveHost,
    frontends: Vec<Frontend>,
    /// Those of them at which connections wait.
    waiting_at: Vec<usize>,
    heartbeat: Heartbeat,
    /// When resting listeners are watched again.
    rest_until: Option<Instant>,
    /// None if it may run anywhere.
    processor: Option<Processor>,
    proxy_headers: ProxyHeaderWait,
    deferred: DeferredAccept<LiveHost>,
    /// While it drains.
    drain: Option<Drain>,
    admin_queries: AdminQueries,
    /// That of the settings.
    version: u64,
}

impl EventLoop {
    /// Sets up a worker and its listeners, in the calling thread's network namespace. An error comes
    /// with the place that it is about.
    pub(crate) fn new(context: Context, index: usize) -> Result<EventLoop, (String, io::Error)> {
        let settings = context.settings.get();
        let config = &settings.config;
        let frontends = frontends(&settings, context.place)?;
        let events = |error| ("a worker's events".to_owned(), error);
        let proxy_headers = ProxyHeaderWait::new().map_err(events)?;
        let probed_servers =
            epoll::create(CreateFlags::CLOEXEC).map_err(|error| events(error.into()))?;
        let watched = || {
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            watch(&epoll, &context.workers.handles[index].wake, WAKE, EventFlags::IN)?;
            watch(&epoll, proxy_headers.fd(), PROXY_HEADERS, EventFlags::IN)?;
            watch(&epoll, &probed_servers, PROBED, EventFlags::IN)?;
            for (word, frontend) in (LISTENERS..).zip(&frontends) {
                watch(&epoll, &frontend.listener.fd, word, EventFlags::IN)?;
            }
            Ok(epoll)
        };
        let epoll = watched().map_err(events)?;
        let limit = share_of_buffers(config, context.workers.count());
        let (now, version) = (Instant::now(), context.settings.version());
        let rules = rules(config, false);
        Ok(EventLoop {
            flows: Worker::new(rules, context.admission.clone(), context.epoch.time(now)),
            waiting_at: Vec::with_capacity(frontends.len()),
            frontends,
            heartbeat: Heartbeat::new(context.epoch.time(now)),
            rest_until: None,
            processor: None,
            proxy_headers,
            deferred: DeferredAccept::default(),
            drain: None,
            admin_queries: AdminQueries::default(),
            version,
            host: LiveHost {
                pool: Pool::new(limit, config.buffer, context.descriptors.pipes_per_worker),
                outbox: Outbox::default(),
                slot: None,
                windows: first_windows(config),
                index,
                epoll,
                probed_servers,
                clients: IpNet::aggregate(&config.clients),
                settings,
                context,
                now,
            },
        })
    }

    /// Its listeners for IPv4 and IPv6.
    pub(crate) fn listeners(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let of = |family| {
            self.frontends.iter().find(|one| one.listener.family == family && one.forward.is_none())
        };
        [of(Family::V4), of(Family::V6)].map(|one| one.map(|one| one.listener.fd.as_fd()))
    }

    /// Runs until the relay stops, or drains and the last flow has ended.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.host.now = Instant::now();
            for event in &events {
                self.event(event);
            }
            events.clear();
            self.accept();
            self.expire_proxy_headers();
            self.rest_over();
            let now = self.now();
            self.deferred.run_timers(now, &mut self.host);
            self.flows.run_timers(now, &mut self.host);
            self.flows.take_turns(now, &mut self.host);
            self.host.count_buffers();
            self.admin_queries.step(self.flows.flows(), self.host.now);
            if self.is_done() {
                return Ok(());
            }
            self.beat();
            self.wait(&mut events)?;
        }
    }

    /// When this round began, as flows are told it.
    fn now(&self) -> Time {
        self.host.context.epoch.time(self.host.now)
    }

    /// Waits for events.
    fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let timeout = self.timeout();
        match epoll::wait(
            &self.host.epoll,
            rustix::buffer::spare_capacity(events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Goes on with the settings as they are now, for new connections.
    fn take_settings(&mut self) {
        self.version = self.host.context.settings.version();
        let before = std::mem::replace(&mut self.host.settings, self.host.context.settings.get());
        let Settings { config, forwards } = &*self.host.settings;
        self.host.clients = IpNet::aggregate(&config.clients);
        self.host.windows = first_windows(config);
        self.host.pool.set_limit(share_of_buffers(config, self.host.context.workers.count()));
        for Frontend { listener, forward } in &mut self.frontends {
            if before.config.client_leg != config.client_leg
                && let Err(error) = sockets::reconfigure(listener, &config.client_leg)
            {
                tracing::error!(%error, "a listener could not be set up as configured");
            }
            if let Some(forward) = forward
                && let Some(new) = forwards.iter().find(|new| new.listen == forward.listen)
            {
                *forward = new.clone();
            }
        }
        if self.host.index == 0
            && before.config.limits.flows_per_client != config.limits.flows_per_client
        {
            // Of each again, after the limit was changed.
            for client in self.host.context.admission.clients() {
                self.host.say_full(client);
            }
        }
        self.set_rules();
        self.flows.wake_waiting(&self.host);
        // There may be room now, or none.
        let now = self.now();
        self.heartbeat.hurry(now);
    }

    fn set_rules(&mut self) {
        let rules = rules(&self.host.settings.config, self.host.slot.is_some());
        let now = self.now();
        self.flows.set_rules(rules, now);
    }

    fn event(&mut self, event: &Event) {
        let Event { flags, data, .. } = *event;
        match data.u64() {
            // What for is seen when the events are done with.
            WAKE => {
                let handle = self.host.handle();
                lower(&handle.wake);
                self.admin_queries.take_up(&handle.queries);
                if self.version != self.host.context.settings.version() {
                    self.take_settings();
                }
                self.take_held();
                self.take_handed();
            }
            PROBED => self.handle_probed(),
            PROXY_HEADERS => self.handle_proxy_headers(),
            listener @ LISTENERS..PROBED => {
                let listener = (listener - LISTENERS) as usize;
                // It may be told of twice.
                if !self.waiting_at.contains(&listener) {
                    self.waiting_at.push(listener);
                }
            }
            word => {
                let (key, leg) = leg_of(word);
                let now = self.now();
                self.flows.event(key, leg, readiness(flags), now, &mut self.host);
            }
        }
    }

    /// How long there is nothing to do unless something happens.
    fn timeout(&mut self) -> Option<Timespec> {
        if self.admin_queries.is_busy() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let now = self.now();
        let flows = self.flows.poll_timeout(now).map(|(due, _)| due);
        let moment = |due: Time| self.host.now + Duration::from(due.since(now));
        let drain = self.drain.as_ref().filter(|_| !self.frontends.is_empty());
        let timers = [
            flows,
            self.deferred.poll_timeout(),
            self.proxy_headers.poll_timeout(),
            drain.map(Drain::poll_timeout),
            Some(self.heartbeat.poll_timeout()),
        ];
        let timers = timers.into_iter().flatten().min().map(moment);
        let due = [timers, self.rest_until].into_iter().flatten().min()?;
        let wait = due.saturating_duration_since(self.host.now);
        // Rounded up, as waking early would only mean to wait again.
        let rounding = if wait.is_zero() { Duration::ZERO } else { Duration::from_millis(1) };
        Timespec::try_from(wait + rounding).ok()
    }

    fn is_done(&mut self) -> bool {
        match self.host.context.workers.phase() {
            Phase::Run => false,
            Phase::Drain | Phase::Retire => {
                self.listen_no_more();
                self.frontends.is_empty()
                    && self.flows.flows().is_empty()
                    && self.proxy_headers.len() == 0
                    && self.deferred.is_empty()
                    && self.inbox().close()
            }
            Phase::Stop => {
                self.beat();
                while !self.inbox().close() {
                    self.take_handed();
                }
                self.flows.fail_all(Cause::Stopped, &mut self.host);
                true
            }
        }
    }

    /// Closes the listeners of a worker that drains, once nobody's handshake with them can be under way.
    fn listen_no_more(&mut self) {
        if self.frontends.is_empty() {
            return;
        }
        let kind = match self.host.context.workers.phase() {
            Phase::Retire => DrainKind::Retire,
            _ => DrainKind::Drain,
        };
        let (now, holds_flows) = (self.now(), !self.flows.flows().is_empty());
        let drain = self.drain.get_or_insert_with(|| Drain::new(kind, now));
        let handshakes = || sockdiag::handshakes_under_way().unwrap_or(true);
        if drain.is_over(now, holds_flows, handshakes) {
            self.close_listeners();
        }
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

fn first_windows(config: &Config) -> FirstWindows {
    config.client_leg.first_windows(!config.clients.is_empty())
}

/// What the flows of a worker are decided by; silent servers are told of where connections can be passed.
fn rules(config: &Config, tells_silence: bool) -> Rules {
    Rules {
        connect_timeout: config.connect_timeout,
        idle_timeouts: config.limits.idle_timeouts(),
        tells_silence,
    }
}

/// What one worker may have in buffers.
fn share_of_buffers(config: &Config, workers: usize) -> ByteSize {
    let share = config.limits.buffered.as_bytes() / workers as u64;
    ByteSize::from_bytes(share.max(LEAST_BUFFERED))
}
