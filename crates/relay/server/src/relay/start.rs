//! The steps of a start.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use midspan_config::{Config, Handshake, InterceptionKind, PolicyConfig};
use midspan_forward::{self as forward, Forward};
use midspan_interception::{
    Interception, InterceptionError, Reinjector, Steered, take_accounts, take_held,
};
use midspan_learning::Learning;
use midspan_legs::Counters;
use midspan_sockets::{self as sockets, LeastTimeout, ListenAddress, RegisteredControls};
use midspan_split::{Admission, Descriptors};
use midspan_steer::{FlowRecord, Tally};
use midspan_succession::{InstanceLock, retire_predecessor};
use midspan_sys::clock::Epoch;
use midspan_sys::process;
use midspan_telemetry::{Listeners, Observer, Served};
use midspan_threads::wake::raise;
use midspan_threads::{Background, Privileges};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::names::Names;
use super::{Error, Interceptor, Relay, Start};
use crate::command::Commands;
use crate::hook::Hook;
use crate::monitor::{Monitor, View};
use crate::reload::Reloader;
use crate::settings::{Settings, WatchedSettings};
use crate::worker::{self, Context, EventLoop};
use crate::workers::Workers;

/// How BPF begins to steer.
pub(super) type Begin = fn(&mut Steered, &Config) -> Result<(), InterceptionError>;

impl Relay {
    /// Starts, and has BPF steer as `begin` does. What was taken is given back in the opposite order if a step fails.
    pub(super) fn start_at(
        mut config: Config,
        start: Start,
        privileges: Privileges,
        begin: Begin,
    ) -> Result<Relay, Error> {
        let controls = complete(&mut config)?;
        let intercepts =
            config.interception != InterceptionKind::None && !config.clients.is_empty();
        let lock = if intercepts { take_lock(start)? } else { None };
        let replaces = intercepts && lock.is_none();
        let forwards = forward::resolve(&config)?;
        let count = worker_count(&config).map_err(system("workers"))?;
        // The one that is to be replaced still has them.
        let listeners = if replaces { None } else { Some(Listeners::open(&config)?) };
        let observer = Arc::new(Observer::open(&config, count, privileges)?);
        let mut interceptor = if intercepts { load(&config, count)? } else { Interceptor::Foreign };
        if replaces && !interceptor.is_adopted() {
            return Err(InterceptionError::NotReplaceable.into());
        }
        let reinjector = match &interceptor {
            Interceptor::Bpf(_) => make_reinjector(&config)?,
            Interceptor::Foreign | Interceptor::Nftables(_) => None,
        };
        let handshake = settle_handshake(&mut config, &interceptor, reinjector.is_some());
        let context = context(config, forwards, count, &interceptor, observer.clone())?;
        let mut workers = make_workers(&context)?;
        let (tally, learning) = join(&mut interceptor, &mut workers, reinjector, &context)?;
        let commands = Arc::new(Commands::new().map_err(system("workers"))?);
        let reloader = Arc::new(Reloader::new(controls.for_clients(), handshake));
        let view = View {
            workers: context.workers.clone(),
            counters: context.counters.clone(),
            observer: observer.clone(),
            commands: commands.clone(),
            reloader: reloader.clone(),
            admission: context.admission.clone(),
            epoch: context.epoch,
            steered_by: interceptor.label(intercepts),
            tally,
            board: learning.as_ref().map(Learning::board),
            log_level: Hook::default(),
        };
        let mut relay = Relay {
            context,
            observer,
            commands,
            reloader,
            monitor: Monitor(Arc::new(view)),
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
        relay.run_workers(workers)?;
        relay.intercept(interceptor, intercepts, begin)?;
        if replaces {
            relay.lock = retire_and_lock(relay.context.settings.get().config.mark);
        }
        relay.follow_names()?;
        relay.serve(listeners, replaces)?;
        relay.learn(learning)?;
        Ok(relay)
    }

    fn run_workers(&mut self, workers: Vec<EventLoop>) -> Result<(), Error> {
        for (index, worker) in workers.into_iter().enumerate() {
            let thread = self.spawn(index, worker).map_err(system("threads"))?;
            self.threads.push(thread);
        }
        Ok(())
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

    /// From now on connections come.
    fn intercept(
        &mut self,
        mut interceptor: Interceptor,
        intercepts: bool,
        begin: Begin,
    ) -> Result<(), Error> {
        let settings = self.context.settings.get();
        match &mut interceptor {
            Interceptor::Bpf(steered) => {
                begin(steered, &settings.config)?;
                steered.lower(self.privileges)?;
            }
            Interceptor::Foreign if intercepts => {
                interceptor = Interceptor::Nftables(Interception::install(&settings.config)?);
            }
            Interceptor::Foreign | Interceptor::Nftables(_) => {}
        }
        self.interceptor = interceptor;
        Ok(())
    }

    /// Follows the names of explicit mode's servers, if there are any.
    fn follow_names(&mut self) -> Result<(), Error> {
        if !self.context.settings.get().config.forward.is_empty() {
            let names = Names::follow(self.context.settings.clone(), self.privileges);
            self.names = Some(names.map_err(system("threads"))?);
        }
        Ok(())
    }

    /// Answers who looks from outside.
    fn serve(&mut self, listeners: Option<Listeners>, replaces: bool) -> Result<(), Error> {
        let settings = self.context.settings.get();
        let listeners = listeners.map_or_else(|| Listeners::open(&settings.config), Ok);
        let serve = |listeners: Listeners| listeners.serve(self.monitor.0.clone(), self.privileges);
        match listeners.and_then(serve) {
            Ok(served) => self.served = served,
            // It has others' connections already.
            Err(error) if replaces => tracing::error!(%error, "nobody can look in"),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Begins to take what the steering program tells of connections, if that steers.
    fn learn(&mut self, learning: Option<Learning>) -> Result<(), Error> {
        let Interceptor::Bpf(steered) = &self.interceptor else { return Ok(()) };
        let decide = learning.map(|learning| learning.run(self.privileges)).transpose();
        let (ended, thread) = decide.map_err(system("threads"))?.unzip();
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
        self.accounts = Some(accounts.map_err(system("threads"))?);
        if self.context.reinjector.get().is_some() {
            let Context { reinjector, workers, .. } = &self.context;
            self.held =
                Some(take_held_for(steered, reinjector, workers)?.map_err(system("threads"))?);
        }
        Ok(())
    }
}

impl Interceptor {
    /// Whether BPF steers, and goes on with what another relay has left.
    fn is_adopted(&self) -> bool {
        matches!(self, Interceptor::Bpf(steered) if steered.is_adopted())
    }

    /// What it is called before it has begun.
    const fn label(&self, intercepts: bool) -> &'static str {
        match self {
            Interceptor::Bpf(_) => "BPF",
            Interceptor::Foreign | Interceptor::Nftables(_) if intercepts => "nftables",
            Interceptor::Foreign | Interceptor::Nftables(_) => "somebody else",
        }
    }
}

fn system(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::System { what, error }
}

/// Checks the configuration, and completes it by what is to be had here.
fn complete(config: &mut Config) -> Result<RegisteredControls, Error> {
    config.check()?;
    leave_out_ipv6(config)?;
    let controls = RegisteredControls::register(config);
    config.complete(controls.for_clients());
    for (leg, settings, mptcp) in [
        ("client_leg", &config.client_leg, config.mptcp),
        ("server_leg", &config.server_leg, false),
    ] {
        sockets::probe(settings, mptcp).map_err(|error| Error::Leg { leg, error })?;
    }
    warn_of_fast_open(config);
    Ok(controls)
}

/// Settles how clients are answered where nothing was said of it, and gives what that is: only where BPF steers, and SYNs
/// can be held, may servers be asked first.
fn settle_handshake(config: &mut Config, interceptor: &Interceptor, holds: bool) -> Handshake {
    let holds_nothing = config.handshake.is_none() && !holds;
    let handshake = match interceptor {
        Interceptor::Bpf(_) if !holds_nothing => Handshake::Learned,
        _ => Handshake::Early,
    };
    config.settle_handshake(handshake);
    handshake
}

/// What so many workers are given.
fn context(
    config: Config,
    forwards: Vec<Arc<Forward>>,
    count: usize,
    interceptor: &Interceptor,
    observer: Arc<Observer>,
) -> Result<Context, Error> {
    let most = process::raise_descriptor_limit();
    let descriptors = Descriptors::share_out(most, count, forwards.len());
    let limits = descriptors.limits(config.limits.admission());
    warn_of_flows(&config, limits.flows);
    Ok(Context {
        workers: Arc::new(Workers::new(count).map_err(system("workers"))?),
        counters: (0..count).map(|_| Counters::default()).collect(),
        admission: Arc::new(Admission::new(limits)),
        observer,
        descriptors,
        epoch: Epoch::now(),
        place: match interceptor {
            Interceptor::Bpf(_) => ListenAddress::Private,
            Interceptor::Foreign | Interceptor::Nftables(_) => ListenAddress::Port(config.port),
        },
        first_window: sockets::first_window(&config).map(Arc::new),
        server_paths: Arc::default(),
        reinjector: Arc::default(),
        probes: Arc::default(),
        settings: Arc::new(WatchedSettings::new(Settings { config, forwards })),
    })
}

/// The workers, which listen then.
fn make_workers(context: &Context) -> Result<Vec<EventLoop>, Error> {
    let settings = context.settings.get();
    let _least_timeout = LeastTimeout::set(&settings.config);
    (0..context.workers.count())
        .map(|index| EventLoop::new(context.clone(), index))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|(at, error)| Error::Listen { at, error })
}

/// Has the steering program, if that steers, know the workers; and gives what it counts, and what learns from it.
fn join(
    interceptor: &mut Interceptor,
    workers: &mut [EventLoop],
    reinjector: Option<Reinjector>,
    context: &Context,
) -> Result<(Option<Tally>, Option<Learning>), Error> {
    let Interceptor::Bpf(steered) = interceptor else { return Ok((None, None)) };
    let settings = context.settings.get();
    let config = &settings.config;
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
    let tally = steered.tally()?;
    let learning = if config.decide.is_some() {
        let (chances, open) = (steered.chances()?, steered.open_flows()?);
        Learning::begin(config, chances, open).map_err(InterceptionError::from)?
    } else {
        None
    };
    Ok((Some(tally), learning))
}

/// Makes the link by which comes back what the steering program keeps, where it can be: SYNs whose servers are to be asked first,
/// as it was said or as is done if nothing was, and acknowledgements.
fn make_reinjector(config: &Config) -> Result<Option<Reinjector>, InterceptionError> {
    match Reinjector::new() {
        Ok(reinjector) => Ok(Some(reinjector)),
        Err(error) if config.confirms() => Err(InterceptionError::Inject(error)),
        Err(error) => {
            let without = if config.handshake == Some(Handshake::Early) {
                "acknowledgements cannot be sent again: clients learn of some losses by their own timers"
            } else {
                "SYNs cannot be held: clients are told that they are connected before their server was asked"
            };
            tracing::warn!(%error, "{without}");
            Ok(None)
        }
    }
}

/// Makes the link by which SYNs come back that this host's rules were asked of.
pub(super) fn begin_to_inject(
    steered: &mut Steered,
    used: &OnceLock<Reinjector>,
) -> Result<(), InterceptionError> {
    let reinjector = Reinjector::new().map_err(InterceptionError::Inject)?;
    use_reinjector(reinjector, steered, used)
}

/// Has held SYNs given to the workers that they are for.
pub(super) fn take_held_for(
    steered: &Steered,
    reinjector: &Arc<OnceLock<Reinjector>>,
    workers: &Arc<Workers>,
) -> Result<io::Result<Background>, InterceptionError> {
    let workers = workers.clone();
    Ok(take_held(steered.held()?, reinjector.clone(), move |syn| workers.hold(syn)))
}

fn use_reinjector(
    reinjector: Reinjector,
    steered: &mut Steered,
    used: &OnceLock<Reinjector>,
) -> Result<(), InterceptionError> {
    steered.set_reinjector(&reinjector)?;
    let _ = used.set(reinjector);
    Ok(())
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
fn warn_of_flows(config: &Config, flows: u32) {
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
