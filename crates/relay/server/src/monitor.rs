//! A running relay, seen from outside.

use std::sync::Arc;

use midspan_config::Config;
use midspan_decide::Board;
use midspan_observe::Histogram;
use midspan_steer::{Counts, Tally};

use crate::clock::Epoch;
use crate::command::Commands;
use crate::counters::Snapshot;
use crate::descriptors::Descriptors;
use crate::hook::Hook;
use crate::observe::observer::Observer;
use crate::passed::{PassedSnapshot, Treatment};
use crate::reload::Reloader;
use crate::settings::WatchedSettings;
use crate::statistics::Statistics;
use crate::workers::Workers;

/// A view of a running relay that can be passed around.
#[derive(Debug, Clone)]
pub struct Monitor(pub(crate) Arc<View>);

type SetLevel = dyn Fn(&str) -> Result<(), String> + Send + Sync;

/// What is looked at. Nothing of the relay looks here.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) settings: Arc<WatchedSettings>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) observer: Arc<Observer>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) descriptors: Descriptors,
    pub(crate) epoch: Epoch,
    /// Who brings connections.
    pub(crate) steered_by: &'static str,
    /// What BPF has decided, if it steers.
    pub(crate) tally: Option<Tally>,
    /// What was decided by what was learned, if it is.
    pub(crate) board: Option<Arc<Board>>,
    /// Sets how much is logged, or says in one line why it cannot.
    pub(crate) log_level: Hook<SetLevel>,
}

impl Monitor {
    /// What the relay has done so far.
    pub fn snapshot(&self) -> Snapshot {
        self.0.statistics.snapshot()
    }

    /// What became of connections and packets where BPF steers; none where it does not.
    pub fn verdicts(&self) -> Option<Counts> {
        match self.0.tally.as_ref()?.read() {
            Ok(counts) => Some(counts),
            Err(error) => {
                tracing::error!(%error, "the verdicts cannot be read");
                None
            }
        }
    }

    /// What passed of connections that were treated so, where BPF steers.
    pub fn passed(&self, treatment: Treatment) -> PassedSnapshot {
        self.0.statistics.passed(treatment).snapshot()
    }

    /// How long connections took that were treated so.
    pub(crate) fn completions(&self, treatment: Treatment) -> &[Histogram] {
        self.0.statistics.passed(treatment).completions()
    }

    /// Has requests of the admin socket to log more or less carried out by `set`, which says in one
    /// line why it cannot. Once; nothing follows from a second time.
    pub fn on_log_level(&self, set: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) {
        self.0.log_level.set(Box::new(set));
    }

    /// Has the configuration read by `load` when it is to be read again. Once; nothing follows from a
    /// second time.
    pub fn on_reload(&self, load: impl Fn() -> Result<Config, String> + Send + Sync + 'static) {
        self.0.reloader.load.set(Box::new(load));
    }

    pub(crate) fn set_log_level(&self, level: &str) -> Result<(), String> {
        let set = self.0.log_level.get().ok_or("how much is logged cannot be changed here")?;
        set(level)
    }

    /// Flows that may be open at one time: as configured, within what the descriptor limit allows.
    pub fn flow_limit(&self) -> u32 {
        self.0.descriptors.limit(&self.0.settings.get().config)
    }
}
