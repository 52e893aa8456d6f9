//! The relay from start to end.

mod names;
mod supervisor;

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use midspan_config::{Config, ConfigError, Handshake, InterceptionKind, PolicyConfig};
use midspan_forward as forward;
use midspan_interception::{
    Interception, InterceptionError, Steered, SynReinjector, probe_clients, take_accounts,
    take_held,
};
use midspan_learning::Learning;
use midspan_legs::{BUFFER, Counters, Snapshot};
use midspan_sockets::{self as sockets, LeastTimeout, ListenAddress, RegisteredControls};
use midspan_split::Admission;
use midspan_steer::FlowRecord;
use midspan_succession::{InstanceLock, retire_predecessor};
use midspan_sys::clock::Epoch;
use midspan_telemetry::{Listeners, ObserveError, Observer, Served};
use midspan_threads::wake::raise;
use midspan_threads::{Background, Privileges};
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::command::Commands;
use crate::descriptors::Descriptors;
use crate::hook::Hook;
use crate::monitor::{Monitor, View};
use crate::phase::Phase;
use crate::reload::Reloader;
use crate::settings::{Settings, WatchedSettings};
use crate::worker::{self, Context, EventLoop};
use crate::workers::Workers;
use names::Names;
use supervisor::Signals;

/// Why the relay did not start, or did not end as it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A leg's sockets cannot be set up as configured.
    #[error("{leg}: {error}")]
    Leg {
        /// The table of the configuration.
        leg: &'static str,
        /// What the kernel says.
        error: io::Error,
    },
    /// The port cannot be listened on.
    #[error("cannot listen at {at}: {error}")]
    Listen {
        /// Where.
        at: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// Connections cannot be intercepted.
    #[error(transparent)]
    Interception(#[from] InterceptionError),
    /// The system refused something that a relay cannot do without.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel says.
        error: io::Error,
    },
    /// What is to be told to who looks from outside cannot be.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// A worker ended that should not have.
    #[error("a worker failed: {0}")]
    Worker(String),
}

/// How a relay takes its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Only if no other relay takes the connections of this network namespace.
    Alone,
    /// In the place of the one that does, if one does, which drains then.
    Replacing,
}

/// Runs a relay until SIGTERM or SIGINT, and gives what it did. Once it is ready, `started` is
/// called with a view of it.
///
/// The first signal drains: no new connections are taken, and open flows have
/// `config.drain_timeout` to end. The second ends at once, and resets them. Readiness and stop are
/// told to systemd, if it listens.
///
/// # Errors
/// When the relay cannot start, or a worker or the interception fails while it runs.
pub fn run(config: Config, start: Start, started: impl FnOnce(Monitor)) -> Result<Snapshot, Error> {
    let signals = Signals::catch().map_err(|error| Error::System { what: "signals", error })?;
    // Else the allocator keeps what buffers have once taken.
    midspan_sys::process::give_back_from(BUFFER as usize);
    let privileges = Privileges::needed(&config);
    let relay = Relay::start_at(config, start, privileges, Steered::begin)?;
    started(relay.monitor());
    relay.supervise(&signals)
}

/// Proves that BPF can steer to a relay in the calling thread's network namespace, and that what it
/// steers arrives, with a relay that takes nobody's connections but the proof's own.
///
/// # Errors
/// What is in the way. [`InterceptionError::Taken`] if a relay runs here, which has proven it.
pub fn prove_steering() -> Result<(), Error> {
    let mut config = Config::new(probe_clients());
    config.interception = InterceptionKind::Bpf;
    config.handshake = Some(Handshake::Early);
    config.workers = 1;
    config.pin = false;
    Relay::start_at(config, Start::Alone, Privileges::All, Steered::prove).map(drop)
}

/// A running relay. Dropping it ends it at once; flows still open are reset.
#[derive(Debug)]
pub struct Relay {
    /// What its workers were given.
    context: Context,
    /// Who is told of flows.
    observer: Arc<Observer>,
    commands: Arc<Commands>,
    reloader: Arc<Reloader>,
    monitor: Monitor,
    /// What its threads keep.
    privileges: Privileges,
    /// A processor for each worker; empty if they are to be moved about.
    processors: Vec<usize>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    interceptor: Interceptor,
    served: Served,
    accounts: Option<Background>,
    decide: Option<Background>,
    held: Option<Background>,
    /// SYNs cannot be held, and that was said.
    holds_nothing: bool,
    names: Option<Names>,
    _controls: RegisteredControls,
    /// Keeps a second relay from taking connections in the same network namespace.
    lock: Option<InstanceLock>,
}

/// Who steers connections to the relay.
#[derive(Debug)]
enum Interceptor {
    /// Somebody else, or nobody yet.
    Foreign,
    Nftables(Interception),
    Bpf(Box<Steered>),
}

impl Relay {
    /// Starts workers and then interception, in the calling thread's network namespace. The
    /// interception ends with the calling thread. SIGPIPE must be ignored, as it is in Rust programs.
    ///
    /// # Errors
    /// When a setting cannot be used, the port is taken, a privilege is missing, or the rules are
    /// refused. Nothing is left behind then.
    pub fn start(config: Config) -> Result<Relay, Error> {
        Relay::start_at(config, Start::Alone, Privileges::All, Steered::begin)
    }

    /// Starts in the place of the relay that takes the connections of this network namespace, if one
    /// does, which drains then.
    ///
    /// # Errors
    /// As [`Relay::start`]; and when the relay that runs cannot be replaced.
    pub fn replace(config: Config) -> Result<Relay, Error> {
        Relay::start_at(config, Start::Replacing, Privileges::All, Steered::begin)
    }

    /// Starts, and has BPF steer as `begin` does.
    fn start_at(
        mut config: Config,
        start: Start,
        privileges: Privileges,
        begin: fn(&mut Steered, &Config) -> Result<(), InterceptionError>,
    ) -> Result<Relay, Error> {
        config.check()?;
        leave_out_ipv6(&mut config)?;
        let controls = RegisteredControls::register(&config);
        config.complete(controls.for_clients());
        for (leg, settings, mptcp) in [
            ("client_leg", &config.client_leg, config.mptcp),
            ("server_leg", &config.server_leg, false),
        ] {
            sockets::probe(settings, mptcp).map_err(|error| Error::Leg { leg, error })?;
        }
        warn_of_fast_open(&config);
        let system = |what| move |error| Error::System { what, error };
        let intercepts =
            config.interception != InterceptionKind::None && !config.clients.is_empty();
        let lock = if intercepts { take_lock(start)? } else { None };
        let forwards = forward::resolve(&config)?;
        let port = config.port;
        let count = worker_count(&config).map_err(system("workers"))?;
        let replaces = intercepts && lock.is_none();
        // The one that is to be replaced still has them.
        let listeners = if replaces { None } else { Some(Listeners::open(&config)?) };
        let observer = Arc::new(Observer::open(&config, count, privileges)?);
        let mut interceptor = if intercepts { load(&config, count)? } else { Interceptor::Foreign };
        if replaces && !matches!(&interceptor, Interceptor::Bpf(steered) if steered.is_adopted()) {
            return Err(InterceptionError::NotReplaceable.into());
        }
        let place = match interceptor {
            Interceptor::Bpf(_) => ListenAddress::Private,
            _ => ListenAddress::Port(port),
        };
        let reinjector = match &interceptor {
            Interceptor::Bpf(_) => hold_by(&config)?,
            _ => None,
        };
        // Nothing was said, and SYNs cannot be held.
        let holds_nothing = config.handshake.is_none() && reinjector.is_none();
        let handshake = match interceptor {
            Interceptor::Bpf(_) if !holds_nothing => Handshake::Learned,
            _ => Handshake::Early,
        };
        config.settle_handshake(handshake);
        let descriptors = Descriptors::share_out(count, forwards.len());
        warn_of_flows(&config, descriptors);
        let context = Context {
            workers: Arc::new(Workers::new(count).map_err(system("workers"))?),
            counters: (0..count).map(|_| Counters::default()).collect(),
            admission: Arc::new(Admission::new(descriptors.limits(&config))),
            observer: observer.clone(),
            descriptors,
            epoch: Epoch::now(),
            place,
            first_window: sockets::first_window(&config).map(Arc::new),
            reinjector: Arc::default(),
            probes: Arc::default(),
            settings: Arc::new(WatchedSettings::new(Settings { config, forwards })),
        };
        let settings = context.settings.get();
        let config = &settings.config;
        let least_timeout = LeastTimeout::set(config);
        let mut workers = (0..count)
            .map(|index| EventLoop::new(context.clone(), index))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|(at, error)| Error::Listen { at, error })?;
        drop(least_timeout);
        let (mut tally, mut learning) = (None, None);
        if let Interceptor::Bpf(steered) = &mut interceptor {
            steered.set_probes(context.probes.clone());
            steered.look_at_rules(config)?;
            match reinjector {
                Some(reinjector) => use_reinjector(reinjector, steered, &context.reinjector)?,
                None if steered.consults() => begin_to_inject(steered, &context.reinjector)?,
                None => {}
            }
            for (index, worker) in workers.iter_mut().enumerate() {
                worker.set_slot(steered.slot(index, worker.listeners())?);
            }
            tally = Some(steered.tally()?);
            if config.decide.is_some() {
                let (chances, open) = (steered.chances()?, steered.open_flows()?);
                learning =
                    Learning::begin(config, chances, open).map_err(InterceptionError::from)?;
            }
        }
        let commands = Arc::new(Commands::new().map_err(system("workers"))?);
        let reloader = Arc::new(Reloader::new(controls.for_clients(), handshake));
        let monitor = Monitor(Arc::new(View {
            settings: context.settings.clone(),
            workers: context.workers.clone(),
            counters: context.counters.clone(),
            observer: observer.clone(),
            commands: commands.clone(),
            reloader: reloader.clone(),
            descriptors,
            epoch: context.epoch,
            steered_by: match interceptor {
                Interceptor::Bpf(_) => "BPF",
                Interceptor::Foreign | Interceptor::Nftables(_) if intercepts => "nftables",
                Interceptor::Foreign | Interceptor::Nftables(_) => "somebody else",
            },
            tally,
            board: learning.as_ref().map(Learning::board),
            log_level: Hook::default(),
        }));
        let mut relay = Relay {
            context,
            observer,
            commands,
            reloader,
            monitor,
            privileges,
            processors: if count > 1 { processors(count) } else { Vec::new() },
            threads: Vec::new(),
            interceptor: Interceptor::Foreign,
            served: Served::default(),
            accounts: None,
            decide: None,
            held: None,
            holds_nothing: false,
            names: None,
            _controls: controls,
            lock,
        };
        for (index, worker) in workers.into_iter().enumerate() {
            let thread = relay.spawn(index, worker).map_err(system("threads"))?;
            relay.threads.push(thread);
        }
        match &mut interceptor {
            Interceptor::Bpf(steered) => {
                begin(steered, config)?;
                steered.lower(privileges)?;
            }
            Interceptor::Foreign if intercepts => {
                interceptor = Interceptor::Nftables(Interception::install(config)?)
            }
            Interceptor::Foreign | Interceptor::Nftables(_) => {}
        }
        relay.interceptor = interceptor;
        if replaces {
            relay.lock = retire_and_lock(config.mark);
        }
        if !config.forward.is_empty() {
            let names = Names::follow(relay.context.settings.clone(), privileges);
            relay.names = Some(names.map_err(system("threads"))?);
        }
        let listeners = listeners.map_or_else(|| Listeners::open(config), Ok);
        match listeners.and_then(|listeners| listeners.serve(relay.monitor.0.clone(), privileges)) {
            Ok(served) => relay.served = served,
            // It has others' connections already.
            Err(error) if replaces => tracing::error!(%error, "nobody can look in"),
            Err(error) => return Err(error.into()),
        }
        relay.learn(learning)?;
        Ok(relay)
    }

    /// Begins to take what the steering program tells of connections, if that steers.
    fn learn(&mut self, learning: Option<Learning>) -> Result<(), Error> {
        let Interceptor::Bpf(steered) = &self.interceptor else { return Ok(()) };
        let system = |error| Error::System { what: "threads", error };
        let decide = learning.map(|learning| learning.run(self.privileges)).transpose();
        let (ended, thread) = decide.map_err(system)?.unzip();
        self.decide = thread;
        let (observer, epoch) = (self.observer.clone(), self.context.epoch);
        let take = move |record: &FlowRecord| {
            observer.connection_ended(record, &epoch);
            if let Some(ended) = &ended {
                ended.add(record);
            }
        };
        let idle = self.context.settings.get().config.account_idle.into();
        let accounts = take_accounts(steered.accounts()?, idle, self.privileges, take);
        self.accounts = Some(accounts.map_err(system)?);
        if self.context.reinjector.get().is_some() {
            let Context { reinjector, workers, .. } = &self.context;
            self.held = Some(take_held_for(steered, reinjector, workers)?.map_err(system)?);
        }
        Ok(())
    }

    /// A view of this relay that can be passed around.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Takes no new connections any more, and lets workers end when their last flow has.
    pub fn drain(&mut self) {
        // BPF is told by each worker.
        if let Interceptor::Nftables(interception) = &mut self.interceptor
            && let Err(error) = interception.take_no_more()
        {
            tracing::error!(%error, "the interception rules could not be changed");
        }
        self.context.workers.advance(Phase::Drain);
    }

    /// Resets all flows, removes the rules, and gives what the relay has done.
    ///
    /// # Errors
    /// When a worker had failed.
    pub fn stop(mut self) -> Result<Snapshot, Error> {
        self.end()
    }

    fn spawn(&self, index: usize, mut worker: EventLoop) -> io::Result<JoinHandle<io::Result<()>>> {
        let (workers, privileges) = (self.context.workers.clone(), self.privileges);
        let nice = self.context.settings.get().config.nice;
        let processor = self.processors.get(index).copied();
        std::thread::Builder::new().name(format!("relay-{index}")).spawn(move || {
            /// Tells the supervisor however the worker ends, a panic included.
            struct Ended(Arc<Workers>);
            impl Drop for Ended {
                fn drop(&mut self) {
                    raise(&self.0.ended);
                }
            }
            worker::set_priority(nice);
            privileges.lower();
            let _ended = Ended(workers);
            if let Some(processor) = processor {
                worker.set_processor(processor);
            }
            worker.run()
        })
    }

    fn end(&mut self) -> Result<Snapshot, Error> {
        // First no new connections, then the flows, then the rules that carry their packets:
        // resets must still find their way.
        if let Interceptor::Nftables(interception) = &mut self.interceptor {
            // If nft is gone so are the rules, which is as good.
            let _ = interception.take_no_more();
        }
        self.context.workers.advance(Phase::Stop);
        let ends: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        self.accounts = None;
        self.decide = None;
        self.held = None;
        self.names = None;
        self.interceptor = Interceptor::Foreign;
        if let Some(flow_log) = self.observer.flow_log() {
            flow_log.close();
        }
        let done = self.monitor.snapshot();
        let verdicts = self.monitor.verdicts();
        let verdicts = verdicts.iter().flat_map(midspan_steer::Counts::entries);
        let counts =
            done.entries().chain(verdicts.map(|(verdict, count)| (verdict.label(), count)));
        for (name, count) in counts.filter(|&(_, count)| count > 0) {
            tracing::info!("{name} {count}");
        }
        for end in ends {
            match end {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(Error::Worker(error.to_string())),
                Err(_) => return Err(Error::Worker("it panicked".into())),
            }
        }
        Ok(done)
    }
}

/// Makes the link by which held SYNs come back, if servers are to be asked first: as it was said, or as is done if
/// nothing was, where it can be.
fn hold_by(config: &Config) -> Result<Option<SynReinjector>, InterceptionError> {
    if config.handshake == Some(Handshake::Early) && !config.confirms() {
        return Ok(None);
    }
    match SynReinjector::new() {
        Ok(reinjector) => Ok(Some(reinjector)),
        Err(error) if config.confirms() => Err(InterceptionError::Inject(error)),
        Err(error) => {
            tracing::warn!(
                %error,
                "SYNs cannot be held: clients are told that they are connected before their server was asked"
            );
            Ok(None)
        }
    }
}

/// The same, for rules of this host's that are to be asked.
fn begin_to_inject(
    steered: &mut Steered,
    used: &OnceLock<SynReinjector>,
) -> Result<(), InterceptionError> {
    let reinjector = SynReinjector::new().map_err(InterceptionError::Inject)?;
    use_reinjector(reinjector, steered, used)
}

/// Has held SYNs given to the workers that they are for.
fn take_held_for(
    steered: &Steered,
    reinjector: &Arc<OnceLock<SynReinjector>>,
    workers: &Arc<Workers>,
) -> Result<io::Result<Background>, InterceptionError> {
    let workers = workers.clone();
    Ok(take_held(steered.held()?, reinjector.clone(), move |syn| workers.hold(syn)))
}

fn use_reinjector(
    reinjector: SynReinjector,
    steered: &mut Steered,
    used: &OnceLock<SynReinjector>,
) -> Result<(), InterceptionError> {
    steered.set_reinjector(&reinjector)?;
    let _ = used.set(reinjector);
    Ok(())
}

impl Drop for Relay {
    fn drop(&mut self) {
        if !self.threads.is_empty()
            && let Err(error) = self.end()
        {
            tracing::error!(%error, "while ending");
        }
    }
}

/// The processors that this process may use, if they are as many as the workers: each worker then
/// keeps to one, and its connections with it.
fn processors(workers: usize) -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    if all.len() == workers { all } else { Vec::new() }
}

/// Leaves out clients of IPv6 where that is switched off, which this host neither forwards nor can listen for.
fn leave_out_ipv6(config: &mut Config) -> Result<(), InterceptionError> {
    let is_off =
        midspan_sys::sysctl::get("net.ipv6.conf.all.disable_ipv6").is_ok_and(|off| off == "1");
    let had = config.clients.len();
    if is_off {
        config.clients.retain(|prefix| prefix.addr().is_ipv4());
    }
    match config.clients.len() {
        left if left == had => Ok(()),
        0 if config.forward.is_empty() => Err(InterceptionError::NoIpv6),
        _ => {
            tracing::warn!(
                "net.ipv6.conf.all.disable_ipv6 is 1: prefixes of IPv6 among `clients` are left out"
            );
            Ok(())
        }
    }
}

fn worker_count(config: &Config) -> io::Result<usize> {
    match config.workers {
        0 => Ok(std::thread::available_parallelism()?.get().min(midspan_steer::WORKERS as usize)),
        set => Ok(set),
    }
}

/// Loads BPF steering if it is asked for, or preferred and possible.
fn load(config: &Config, workers: usize) -> Result<Interceptor, InterceptionError> {
    let needs_bpf = config.policy != PolicyConfig::default()
        || config.limits.syn_rate.is_some()
        || config.confirms()
        || config.decide.is_some();
    match config.interception {
        InterceptionKind::Nftables | InterceptionKind::None => Ok(Interceptor::Foreign),
        InterceptionKind::Bpf => Ok(Interceptor::Bpf(Steered::load(config, workers)?.into())),
        InterceptionKind::Auto => match Steered::load(config, workers) {
            Ok(steered) => Ok(Interceptor::Bpf(steered.into())),
            Err(error) if needs_bpf => Err(InterceptionError::PolicyTakesBpf(error)),
            Err(error) => {
                tracing::info!(%error, "nftables steers instead of BPF");
                Ok(Interceptor::Foreign)
            }
        },
    }
}

/// Says how much of `limits.flows` cannot be had.
fn warn_of_flows(config: &Config, descriptors: Descriptors) {
    let flows = descriptors.limit(config);
    if let Some(wanted) = config.limits.flows
        && wanted > flows
    {
        tracing::warn!(wanted, flows, "limits.flows is cut to what the descriptor limit allows");
    }
}

/// Says what `fast_open` is in vain for.
fn warn_of_fast_open(config: &Config) {
    const CLIENT: u32 = 1;
    const SERVER: u32 = 2;
    let set = midspan_sys::sysctl::get("net.ipv4.tcp_fastopen");
    if let Some(set) = set.ok().and_then(|set| set.parse::<u32>().ok())
        && config.fast_open
        && set & (CLIENT | SERVER) != CLIENT | SERVER
    {
        tracing::warn!(
            "net.ipv4.tcp_fastopen is {set}: `fast_open` takes 3, which is 1 for the legs to servers \
             and 2 for those of clients"
        );
    }
}

/// The instance lock, or none if another relay has it and is to be replaced.
fn take_lock(start: Start) -> Result<Option<InstanceLock>, Error> {
    match InstanceLock::take() {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            Err(Error::System { what: "the claim on this network namespace", error })
        }
        Err(_) if start == Start::Replacing => Ok(None),
        Err(_) => Err(InterceptionError::Taken.into()),
    }
}

/// Takes the lock of the relay to which nothing comes any more. One that hangs keeps it, and
/// nothing else.
fn retire_and_lock(mark: u32) -> Option<InstanceLock> {
    if let Err(error) = retire_predecessor(mark) {
        tracing::warn!(%error, "the relay that was replaced does not retire; nothing comes to it");
    }
    InstanceLock::take_soon()
        .inspect_err(|error| tracing::warn!(%error, "this relay cannot be replaced while it runs"))
        .ok()
}
