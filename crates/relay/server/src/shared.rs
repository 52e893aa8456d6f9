//! What the workers and their supervisor share.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use midspan_config::{Config, Handshake};
use midspan_interception::Injector;
use midspan_interception::Probes;
use midspan_observe::Histogram;
use midspan_sockets::Place;
use midspan_split::{Admission, Limits};
use midspan_steer::{Counts, FirstWindow, FlowRecord, HeldSyn, Slot, Tally};
use midspan_threads::Privileges;
use midspan_threads::wake::{self, raise};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::clock::Epoch;
use crate::command::Commands;
use crate::counters::{Counters, Snapshot};
use crate::decide::Board;
use crate::forward::Forward;
use crate::inbox::Inbox;
use crate::observe::measures::Measures;
use crate::observe::observer::Observer;
use crate::passed::{Passed, PassedSnapshot, Treatment};
use crate::questions::Questions;
use crate::settings::Settings;

/// What the workers are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Take new flows.
    Run,
    /// Take no new flows, and end when the last one has.
    Drain,
    /// The same, and another relay has everything that is not the flows' own.
    Retire,
    /// Reset all flows and end.
    Stop,
}

#[derive(Debug)]
pub(crate) struct Shared {
    settings: Mutex<Arc<Settings>>,
    /// How often the settings were changed.
    generation: AtomicU64,
    /// Where the workers listen.
    pub(crate) place: Place,
    pub(crate) observer: Observer,
    /// What the threads keep.
    pub(crate) privileges: Privileges,
    pub(crate) epoch: Epoch,
    pub(crate) steered_by: OnceLock<&'static str>,
    pub(crate) commands: Commands,
    /// Sets how much is logged, or says in one line why it cannot.
    log_level: OnceLock<Hook<SetLevel>>,
    /// The congestion control of the client's leg where the configuration names none; unset if that is the
    /// kernel's choice.
    pub(crate) for_clients: OnceLock<&'static str>,
    /// What sets initial windows of connections to clients; unset if that is left to the kernel.
    pub(crate) first_window: OnceLock<FirstWindow>,
    /// The handshake where the configuration names none.
    pub(crate) handshake: OnceLock<Handshake>,
    /// Reads the configuration again.
    load: OnceLock<Hook<Load>>,
    /// How the configuration was read again last, if it was.
    reload: Mutex<Option<Reload>>,
    /// What BPF has decided, if it steers.
    pub(crate) tally: OnceLock<Tally>,
    pub(crate) descriptors: Descriptors,
    pub(crate) admission: Arc<Admission<IpAddr>>,
    phase: AtomicU8,
    /// One for each worker.
    pub(crate) ends: Vec<WorkerEnd>,
    /// Written to by each worker when it ends.
    pub(crate) ended: OwnedFd,
    /// How held SYNs are sent on, if any are held.
    pub(crate) injector: OnceLock<Injector>,
    /// Where connections of proofs go.
    pub(crate) probes: Arc<Probes>,
    /// Workers whose place in the steering program's maps is theirs.
    pub(crate) slots: AtomicUsize,
    /// What was decided by what was learned, if it is.
    pub(crate) board: OnceLock<Arc<Board>>,
    /// What passed of connections, by [`Treatment`].
    passed: [Passed; Treatment::ALL.len()],
}

/// A worker's place in the steering program's maps, as long as it is its own.
#[derive(Debug)]
pub(crate) struct HeldSlot {
    slot: Slot,
    shared: Arc<Shared>,
}

impl HeldSlot {
    pub(crate) fn new(slot: Slot, shared: Arc<Shared>) -> HeldSlot {
        shared.slots.fetch_add(1, Ordering::AcqRel);
        HeldSlot { slot, shared }
    }
}

impl Deref for HeldSlot {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.slot
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        self.shared.slots.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What one worker is seen and reached by.
#[derive(Debug)]
pub(crate) struct WorkerEnd {
    pub(crate) counters: Counters,
    pub(crate) measures: Measures,
    /// When it last said that it lives, in nanoseconds since the relay started.
    beat: AtomicU64,
    pub(crate) wake: OwnedFd,
    pub(crate) questions: Questions,
    /// SYNs that are held for it, and that it has not seen yet.
    pub(crate) held: Mutex<Vec<HeldSyn>>,
    /// What other workers leave to it.
    pub(crate) inbox: Inbox,
}

impl WorkerEnd {
    /// Flows that it has, or is about to.
    pub(crate) fn flows(&self) -> u64 {
        self.counters.active.get() + self.inbox.len() as u64
    }
}

type SetLevel = dyn Fn(&str) -> Result<(), String> + Send + Sync;
type Load = dyn Fn() -> Result<Config, String> + Send + Sync;

/// What whoever started the relay does for it.
struct Hook<F: ?Sized>(Box<F>);

impl<F: ?Sized> fmt::Debug for Hook<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        forwards: Vec<Arc<Forward>>,
        workers: usize,
        place: Place,
        observer: Observer,
        privileges: Privileges,
    ) -> io::Result<Shared> {
        let descriptors = Descriptors::share_out(workers, forwards.len());
        let flows = descriptors.limit(&config);
        if let Some(wanted) = config.limits.flows
            && wanted > flows
        {
            tracing::warn!(
                wanted,
                flows,
                "limits.flows is cut to what the descriptor limit allows"
            );
        }
        let limits = descriptors.limits(&config);
        let end = || {
            Ok(WorkerEnd {
                counters: Counters::default(),
                measures: Measures::new(),
                beat: AtomicU64::new(0),
                wake: wake::flag()?,
                questions: Questions::default(),
                held: Mutex::default(),
                inbox: Inbox::default(),
            })
        };
        let ends = (0..workers).map(|_| end()).collect::<io::Result<Vec<_>>>()?;
        Ok(Shared {
            settings: Mutex::new(Arc::new(Settings { config, forwards })),
            generation: AtomicU64::new(0),
            place,
            observer,
            privileges,
            epoch: Epoch::now(),
            steered_by: OnceLock::new(),
            commands: Commands::new()?,
            log_level: OnceLock::new(),
            for_clients: OnceLock::new(),
            first_window: OnceLock::new(),
            handshake: OnceLock::new(),
            load: OnceLock::new(),
            reload: Mutex::default(),
            tally: OnceLock::new(),
            descriptors,
            admission: Arc::new(Admission::new(limits)),
            phase: AtomicU8::new(Phase::Run as u8),
            ends,
            ended: wake::flag()?,
            injector: OnceLock::new(),
            probes: Arc::default(),
            slots: AtomicUsize::new(0),
            board: OnceLock::new(),
            passed: Default::default(),
        })
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often the settings were changed.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Changes the settings, and tells the workers.
    pub(crate) fn set_settings(&self, settings: Settings) {
        let limits = self.descriptors.limits(&settings.config);
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        self.admission.set_limits(limits);
        self.generation.fetch_add(1, Ordering::Release);
        for end in &self.ends {
            raise(&end.wake);
        }
    }

    pub(crate) fn last_reload(&self) -> Option<Reload> {
        *self.reload.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps how the configuration was read again just now.
    pub(crate) fn note_reload(&self, succeeded: bool) {
        let mut last = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.and_then(|last| last.success);
        *last = Some(Reload { succeeded, success: succeeded.then(SystemTime::now).or(before) });
    }

    pub(crate) fn load_config(&self) -> Result<Config, String> {
        match self.load.get() {
            Some(Hook(load)) => {
                let mut config = load()?;
                config.complete(self.for_clients.get().copied());
                config.settle_handshake(self.handshake.get().copied().unwrap_or(Handshake::Early));
                Ok(config)
            }
            None => Err("there is no configuration to read again".into()),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Run,
            1 => Phase::Drain,
            2 => Phase::Retire,
            _ => Phase::Stop,
        }
    }

    /// Goes on to a later phase, and tells the workers.
    pub(crate) fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::Release);
        for end in &self.ends {
            raise(&end.wake);
        }
    }

    /// A worker says that it lives.
    pub(crate) fn beat(&self, worker: usize, now: Instant) {
        let since = now.saturating_duration_since(self.epoch.instant);
        self.ends[worker].beat.store(since.as_nanos() as u64, Ordering::Relaxed);
    }

    /// How long ago each worker last said that it lives.
    pub(crate) fn heartbeat_ages(&self) -> impl Iterator<Item = Duration> {
        let now = self.epoch.instant.elapsed();
        let beat = |end: &WorkerEnd| Duration::from_nanos(end.beat.load(Ordering::Relaxed));
        self.ends.iter().map(move |end| now.saturating_sub(beat(end)))
    }

    /// Takes in what passed of a connection that has ended.
    pub(crate) fn record(&self, record: &FlowRecord) {
        self.passed[Treatment::of(record.verdict) as usize].add(record);
        self.observer.passed(record, &self.epoch);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::sum(self.ends.iter().map(|end| &end.counters))
    }
}

/// How the process's descriptors are used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptors {
    /// Flows, with two each.
    pub(crate) flows: u32,
    /// Pipes of each worker, with two each.
    pub(crate) pipes_per_worker: usize,
}

impl Descriptors {
    /// Raises the soft limit to the hard one and shares it out: a quarter for pipes, the rest for
    /// flows, but for what the program needs itself.
    fn share_out(workers: usize, forwards: usize) -> Descriptors {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let limit = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        };
        // Unlimited is not meant literally: /proc/sys/fs/nr_open ends it.
        Self::of(limit.unwrap_or(1 << 20).min(1 << 20), workers, forwards)
    }

    /// How many flows may be open at one time. Never more than there are descriptors for: with
    /// some to spare a connection too many can be taken, and reset, instead of waiting for ever.
    pub(crate) fn limit(self, config: &Config) -> u32 {
        config.limits.flows.unwrap_or(u32::MAX).min(self.flows)
    }

    fn limits(self, config: &Config) -> Limits {
        let flows_per_client = config.limits.flows_per_client.unwrap_or(u32::MAX);
        Limits { flows: self.limit(config), flows_per_client }
    }

    fn of(limit: u64, workers: usize, forwards: usize) -> Descriptors {
        /// Standard streams, signals, nft or BPF, logs, who looks in.
        const PROGRAM: u64 = 64;
        /// Two of epoll, io_uring, wake-up, two listeners, a connection to be refused and its server leg.
        const WORKER: u64 = 8;
        let pipes_per_worker = limit / 8 / workers as u64;
        let taken = PROGRAM + workers as u64 * (WORKER + forwards as u64 + 2 * pipes_per_worker);
        let flows = limit.saturating_sub(taken) / 2;
        Descriptors {
            flows: u32::try_from(flows).unwrap_or(u32::MAX).max(1),
            pipes_per_worker: pipes_per_worker as usize,
        }
    }
}

/// A view of a running relay that can be passed around.
#[derive(Debug, Clone)]
pub struct Monitor(pub(crate) Arc<Shared>);

impl Monitor {
    /// What the relay has done so far.
    pub fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }

    /// What became of connections and packets where BPF steers; none where it does not.
    pub fn verdicts(&self) -> Option<Counts> {
        match self.0.tally.get()?.read() {
            Ok(counts) => Some(counts),
            Err(error) => {
                tracing::error!(%error, "the verdicts cannot be read");
                None
            }
        }
    }

    /// What passed of connections that were treated so, where BPF steers.
    pub fn passed(&self, treatment: Treatment) -> PassedSnapshot {
        self.0.passed[treatment as usize].snapshot()
    }

    /// How long connections took that were treated so.
    pub(crate) fn completions(&self, treatment: Treatment) -> &[Histogram] {
        self.0.passed[treatment as usize].completions()
    }

    /// Has requests of the admin socket to log more or less carried out by `set`, which says in one
    /// line why it cannot. Once; nothing follows from a second time.
    pub fn on_log_level(&self, set: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) {
        let _ = self.0.log_level.set(Hook(Box::new(set)));
    }

    /// Has the configuration read by `load` when it is to be read again. Once; nothing follows from a
    /// second time.
    pub fn on_reload(&self, load: impl Fn() -> Result<Config, String> + Send + Sync + 'static) {
        let _ = self.0.load.set(Hook(Box::new(load)));
    }

    pub(crate) fn set_log_level(&self, level: &str) -> Result<(), String> {
        match self.0.log_level.get() {
            Some(Hook(set)) => set(level),
            None => Err("how much is logged cannot be changed here".into()),
        }
    }

    /// Flows that may be open at one time: as configured, within what the descriptor limit allows.
    pub fn flow_limit(&self) -> u32 {
        self.0.descriptors.limit(&self.0.settings().config)
    }
}

/// How the configuration was read again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reload {
    /// Whether it was taken.
    pub(crate) succeeded: bool,
    /// When it last was.
    pub(crate) success: Option<SystemTime>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_enough_for_all_at_once() {
        for limit in [256, 1024, 20_000, 1 << 20] {
            for workers in [1, 2, 16] {
                let share = Descriptors::of(limit, workers, 0);
                let pipes = 2 * (share.pipes_per_worker * workers) as u64;
                assert!(u64::from(share.flows) * 2 + pipes < limit, "{limit} {workers} {share:?}");
            }
        }
        assert!(Descriptors::of(20_000, 2, 0).flows > 7_000);
        // Each of 100 listeners in each of two workers.
        let flows = Descriptors::of(20_000, 2, 0).flows - Descriptors::of(20_000, 2, 100).flows;
        assert_eq!(flows, 100);
    }
}
