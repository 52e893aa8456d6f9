//! The relay from start to end.

mod names;
mod start;
mod supervisor;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use midspan_config::{Config, ConfigError, Handshake, InterceptionKind};
use midspan_interception::{Interception, InterceptionError, Steered, probe_clients};
use midspan_legs::{BUFFER, Snapshot};
use midspan_sockets::RegisteredControls;
use midspan_succession::InstanceLock;
use midspan_telemetry::{ObserveError, Observer, Served};
use midspan_threads::{Background, Privileges, Signals};

use crate::command::Commands;
use crate::monitor::Monitor;
use crate::phase::Phase;
use crate::reload::Reloader;
use crate::worker::Context;
use names::Names;

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

impl Drop for Relay {
    fn drop(&mut self) {
        if !self.threads.is_empty()
            && let Err(error) = self.end()
        {
            tracing::error!(%error, "while ending");
        }
    }
}
