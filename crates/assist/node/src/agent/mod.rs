//! The agent: keeps a host registered for the UEs that it sends to, and leaves what the daemons say
//! where the congestion controls read it. What is not renewed times out there, so that a daemon,
//! a connection or an agent that is lost means the base control, and nothing else.

mod daemon_connection;
mod flows;
mod legs;
mod regulate;
mod sink;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use midspan_assist_proto::fairness::window_per_flow;
use midspan_assist_proto::{Board, Entry, Update};
use midspan_units::{ByteSize, Span, Time};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

pub use daemon_connection::LinkStatus;
pub use legs::Legs;
pub use sink::{FeedbackMap, Memory, Sink};

use crate::clock;
use crate::config::{AgentConfig, FlowsFrom, MinRttFrom};
use crate::control::{Answer, Control, Request};
use crate::daemon::{Error, runtime};
use crate::tls::{Audit, AuditCounts};
use daemon_connection::{DaemonConnection, Wanted};
use flows::Flows;
use legs::Watch;
use regulate::Regulator;

/// How often this host's connections are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often it is seen whether the congestion controls still read what is left for them.
const REFRESH: Duration = Duration::from_millis(500);
/// The paper's alpha: a window of twice the bandwidth-delay product, for what waits in the hosts.
const ALPHA: u32 = 2;
/// How long a UE stays registered after its last connection.
const LINGER: Span = Span::from_secs(30);

/// What an agent knows and has done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Daemon by daemon.
    pub daemons: Vec<LinkStatus>,
    /// UE by UE.
    pub ues: Vec<AgentUe>,
    /// What QUIC refused by itself.
    pub audit: AuditCounts,
    /// Entries written for the congestion controls.
    pub written: u64,
    /// Entries that could not be written.
    pub write_errors: u64,
    /// The legs that go by feedback, UE by UE.
    pub legs: Vec<Legs>,
    /// For how long such legs have been watched, all that were.
    pub watched: Span,
    /// For how much of it they had no feedback that held.
    pub fallback: Span,
    /// Times that they had none for a second.
    pub alarms: u64,
}

/// What the congestion controls are told of one UE.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentUe {
    /// Its address.
    pub ue: IpAddr,
    /// What its link can carry, in bit/s.
    pub bandwidth_bps: u64,
    /// Round trip without queues.
    pub min_rtt: Span,
    /// Among how many flows it is shared.
    pub flows: f64,
    /// How long ago it was measured.
    pub age: Span,
    /// Whether that is so long ago that senders go as their base control does.
    pub timed_out: bool,
}

/// What the tasks of an agent have in common.
#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    board: Board,
    sink: Box<dyn Sink>,
    timeout: Span,
    min_rtt: MinRttFrom,
    links: Vec<LinkStatus>,
    written: u64,
    write_errors: u64,
    watch: Watch,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn update(&mut self, update: Update, distance: Span) {
        if let Some(entry) = self.board.update(update, distance) {
            self.write(&entry);
        }
    }

    fn count(&mut self, flows: BTreeMap<IpAddr, u32>, now: Time) {
        for entry in self.board.count(flows, now, self.timeout) {
            self.write(&entry);
        }
    }

    fn write(&mut self, entry: &Entry) {
        let min_rtt = match self.min_rtt {
            MinRttFrom::Network => entry.min_rtt,
            MinRttFrom::Sender => Span::ZERO,
            MinRttFrom::SenderSmoothed => midspan_cc::Feedback::SMOOTHED,
        };
        match self.sink.write(&Entry { min_rtt, ..*entry }, self.timeout) {
            Ok(()) => self.written += 1,
            Err(error) => {
                if self.write_errors == 0 {
                    tracing::error!("feedback cannot be left for the congestion controls: {error}");
                }
                self.write_errors += 1;
            }
        }
    }

    /// Sees whether what is left is still read, and leaves it again where that has changed.
    fn refresh(&mut self, now: Time) {
        let Some(said) = self.sink.refresh() else { return };
        tracing::warn!("{said}");
        let holds = |entry: &&Entry| now.since(entry.measured) < self.timeout;
        let entries: Vec<Entry> = self.board.entries().filter(holds).copied().collect();
        for entry in &entries {
            self.write(entry);
        }
    }

    /// Sees whether the legs that go by feedback have some.
    fn watch(&mut self, assisted: &BTreeMap<IpAddr, u32>, now: Time) {
        let holds = |ue| self.board.get(ue).is_some_and(|it| now.since(it.measured) < self.timeout);
        for ue in self.watch.look(now, assisted, holds) {
            let legs = assisted.get(&ue);
            tracing::warn!(%ue, legs, "no feedback for a second: they go as their base control does");
        }
    }

    /// A UE is of no more interest, or nothing may be known of it.
    fn forget(&mut self, ue: IpAddr) {
        if self.board.forget(ue)
            && let Err(error) = self.sink.remove(ue)
        {
            tracing::warn!("{ue}: {error}");
        }
    }
}

/// Runs an agent until a signal ends it.
///
/// # Errors
/// When it cannot begin.
pub fn run(config: AgentConfig) -> Result<(), Error> {
    let sink = FeedbackMap::pinned(&config.pins).map_err(Error::system("the map for feedback"))?;
    runtime()?.block_on(async {
        let stop = crate::signals::stop()?;
        let prepared = Prepared::new(config, Box::new(sink))?;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        prepared.run(stop).await;
        Ok(())
    })
}

/// An agent in a thread of this process. Ends when dropped.
#[derive(Debug)]
pub struct Agent {
    shared: Shared,
    audit: Audit,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts one that leaves feedback in `sink`.
    ///
    /// # Errors
    /// When it cannot begin.
    pub fn start(config: AgentConfig, sink: Box<dyn Sink>) -> Result<Agent, Error> {
        // Whoever comes back before the settings are known to be good would say so too late.
        config.identity.load()?;
        let prepared = Prepared::new_shared(&config, sink);
        let audit = Audit::default();
        let (stop, stopped) = oneshot::channel();
        let (shared, known) = (prepared.clone(), audit.clone());
        let work = move || match runtime() {
            Ok(runtime) => runtime.block_on(async {
                match Prepared::with(config, shared, known) {
                    Ok(prepared) => prepared.run(async { drop(stopped.await) }).await,
                    Err(error) => tracing::error!("{error}"),
                }
            }),
            Err(error) => tracing::error!("{error}"),
        };
        let thread = thread::Builder::new()
            .name("assist-agent".into())
            .spawn(work)
            .map_err(Error::system("starting a thread"))?;
        Ok(Agent { shared: prepared, audit, stop: Some(stop), thread: Some(thread) })
    }

    /// What it knows and has done.
    pub fn status(&self) -> AgentStatus {
        status(&self.shared, &self.audit)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An agent that may begin.
struct Prepared {
    config: Arc<AgentConfig>,
    shared: Shared,
    audit: Audit,
    questions: mpsc::Receiver<crate::control::Question>,
    _control: Option<Control>,
}

impl Prepared {
    fn new(config: AgentConfig, sink: Box<dyn Sink>) -> Result<Prepared, Error> {
        config.identity.load()?;
        let shared = Prepared::new_shared(&config, sink);
        Prepared::with(config, shared, Audit::default())
    }

    fn new_shared(config: &AgentConfig, sink: Box<dyn Sink>) -> Shared {
        let status = |daemon: &crate::config::DaemonAddress| LinkStatus {
            daemon: daemon.address.to_string(),
            ..LinkStatus::default()
        };
        Shared(Arc::new(Mutex::new(State {
            board: Board::new(config.target()),
            sink,
            timeout: config.timeout(),
            min_rtt: config.min_rtt,
            links: config.daemons.iter().map(status).collect(),
            written: 0,
            write_errors: 0,
            watch: Watch::default(),
        })))
    }

    fn with(config: AgentConfig, shared: Shared, audit: Audit) -> Result<Prepared, Error> {
        let (questions_to, questions) = mpsc::channel(16);
        let control = config.control.as_deref().map(|path| {
            Control::listen(path, questions_to.clone()).map_err(Error::system("control socket"))
        });
        let control = control.transpose()?;
        Ok(Prepared { config: Arc::new(config), shared, audit, questions, _control: control })
    }

    async fn run(mut self, stop: impl Future<Output = ()>) {
        let (wanted, watched) = watch::channel(Arc::new(Wanted::default()));
        for (index, daemon) in self.config.daemons.iter().enumerate() {
            let link = DaemonConnection {
                index,
                config: self.config.clone(),
                daemon: daemon.clone(),
                shared: self.shared.clone(),
                wanted: watched.clone(),
                audit: self.audit.clone(),
            };
            tokio::spawn(link.run());
        }
        drop(watched);
        tokio::pin!(stop);
        let mut look = tokio::time::interval(LOOK);
        let mut refresh = tokio::time::interval(REFRESH);
        let mut seen = BTreeMap::new();
        let mut regulator = Regulator::default();
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some((request, answer)) = self.questions.recv() => {
                    let said = match request {
                        Request::State => {
                            Answer::Agent(Box::new(status(&self.shared, &self.audit)))
                        }
                        Request::Map { .. } | Request::Unmap { .. } => {
                            Answer::refused("an agent knows no RNTIs")
                        }
                    };
                    let _ = answer.send(said);
                }
                _ = refresh.tick() => self.shared.lock().refresh(clock::now()),
                _ = look.tick() => {
                    if let Some(flows) = self.look(&wanted, &mut seen).await
                        && let Some(me) = self.config.regulate
                    {
                        let window = self.window(me, flows.receiving.len());
                        regulator.apply(&flows.receiving, window);
                    }
                }
            }
        }
        regulator.release();
        // The links notice that nobody wants anything, and say goodbye.
        drop(wanted);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    /// Sees which UEs there are connections with, and how many flows.
    async fn look(
        &self,
        wanted: &watch::Sender<Arc<Wanted>>,
        seen: &mut BTreeMap<IpAddr, Time>,
    ) -> Option<Flows> {
        let config = self.config.clone();
        let me = config.report.or(config.regulate);
        let looked = tokio::task::spawn_blocking(move || Flows::look(&config.ues, me)).await;
        let flows = match looked {
            Ok(Ok(flows)) => flows,
            Ok(Err(error)) => {
                tracing::warn!("this host's connections: {error}");
                return None;
            }
            Err(_) => return None,
        };
        let now = clock::now();
        seen.extend(flows.to.keys().map(|ue| (*ue, now)));
        let mut ues: BTreeSet<IpAddr> = BTreeSet::new();
        if self.config.always {
            ues.extend(self.config.ues.iter().flat_map(|prefix| prefix.hosts()));
        }
        seen.retain(|_, last| now.since(*last) < LINGER);
        ues.extend(seen.keys());
        ues.extend(self.config.regulate);
        let receiving = u16::try_from(flows.receiving.len()).unwrap_or(u16::MAX);
        let reported = self.config.report.map(|me| (me, receiving));
        self.shared.lock().watch(&flows.assisted, now);
        if self.config.flows == FlowsFrom::Counted {
            self.shared.lock().count(flows.to.clone(), now);
        }
        let new = Wanted { ues, flows: reported };
        wanted.send_if_modified(|old| {
            let changed = **old != new;
            if changed {
                for gone in old.ues.difference(&new.ues) {
                    self.shared.lock().forget(*gone);
                }
                *old = Arc::new(new);
            }
            changed
        });
        Some(flows)
    }

    /// What each of this UE's flows may have in flight; None while nothing fresh is known.
    fn window(&self, me: IpAddr, flows: usize) -> Option<ByteSize> {
        let state = self.shared.lock();
        let entry = state.board.entries().find(|entry| entry.ue == me)?;
        let fresh = clock::now().since(entry.measured) < state.timeout;
        let flows = u32::try_from(flows).unwrap_or(u32::MAX);
        fresh.then(|| window_per_flow(ALPHA, entry.bandwidth, entry.min_rtt, flows))
    }
}

fn status(shared: &Shared, audit: &Audit) -> AgentStatus {
    let now = clock::now();
    let state = shared.lock();
    let ue = |entry: &Entry| AgentUe {
        ue: entry.ue,
        bandwidth_bps: entry.bandwidth.as_bps(),
        min_rtt: entry.min_rtt,
        flows: f64::from(entry.fairness.as_256ths()) / 256.0,
        age: now.since(entry.measured),
        timed_out: now.since(entry.measured) >= state.timeout,
    };
    let (watched, fallback, alarms) = state.watch.totals();
    AgentStatus {
        legs: state.watch.legs(),
        watched,
        fallback,
        alarms,
        daemons: state.links.clone(),
        ues: state.board.entries().map(ue).collect(),
        audit: audit.counts(),
        written: state.written,
        write_errors: state.write_errors,
    }
}
