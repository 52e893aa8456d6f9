//! A running relay, seen from outside.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use midspan_config::Config;
use midspan_decide::Board;
use midspan_legs::{Counters, Snapshot};
use midspan_split::{Admission, Key};
use midspan_steer::{Counts, Tally};
use midspan_sys::clock::Epoch;
use midspan_telemetry::{
    Answer, Brief, Counter, Gone, LegStatistics, Observer, Reload, Source, Treatment,
    TreatmentSnapshot,
};
use midspan_threads::wake::raise;
use tokio::sync::oneshot;

use crate::command::{Command, Commands, Reply};
use crate::hook::Hook;
use crate::phase::Phase;
use crate::queries::{Query, Scanned};
use crate::reload::Reloader;
use crate::workers::Workers;

/// A view of a running relay that can be passed around.
#[derive(Debug, Clone)]
pub struct Monitor(pub(crate) Arc<View>);

type SetLevel = dyn Fn(&str) -> Result<(), String> + Send + Sync;

/// What is looked at. Nothing of the relay looks here.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) workers: Arc<Workers>,
    pub(crate) counters: Arc<[Counters]>,
    pub(crate) observer: Arc<Observer>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) admission: Arc<Admission<IpAddr>>,
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
        Snapshot::sum(self.0.counters.iter())
    }

    /// What became of connections and packets where BPF steers; none where it does not.
    pub fn verdicts(&self) -> Option<Counts> {
        self.0.verdicts()
    }

    /// What passed of connections that were treated so, where BPF steers.
    pub fn treatment(&self, treatment: Treatment) -> TreatmentSnapshot {
        self.0.observer.treatment(treatment)
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

    /// Flows that may be open at one time: as configured, within what the descriptor limit allows.
    pub fn flow_limit(&self) -> u32 {
        self.0.flow_limit()
    }
}

impl View {
    /// Asks a worker, which is woken for it.
    fn query<T: Send + 'static>(
        &self,
        worker: usize,
        query: impl FnOnce(oneshot::Sender<T>) -> Query,
    ) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        let handle = &self.workers.handles[worker];
        handle.queries.leave(query(reply));
        raise(&handle.wake);
        Box::pin(async { answer.await.map_err(|_| Gone) })
    }

    /// Has the supervisor do something.
    fn tell(&self, command: fn(Reply) -> Command) -> Answer<Result<String, String>> {
        let (reply, done) = oneshot::channel();
        self.commands.give(command(reply));
        Box::pin(async { done.await.map_err(|_| Gone) })
    }
}

impl Source for View {
    fn started(&self) -> Epoch {
        self.epoch
    }

    fn phase(&self) -> &'static str {
        match self.workers.phase() {
            Phase::Run => "running",
            Phase::Drain => "draining",
            Phase::Retire => "replaced",
            Phase::Stop => "stopping",
        }
    }

    fn steered_by(&self) -> &'static str {
        self.steered_by
    }

    fn workers(&self) -> usize {
        self.workers.count()
    }

    fn heartbeat_ages(&self) -> Vec<Duration> {
        self.workers.heartbeat_ages().collect()
    }

    fn flow_limit(&self) -> u32 {
        self.admission.limit()
    }

    fn last_reload(&self) -> Option<Reload> {
        self.reloader.last()
    }

    fn counters(&self) -> Vec<Counter> {
        let sum = Snapshot::sum(self.counters.iter());
        sum.described().map(|(name, help, value)| Counter { name, help, value }).collect()
    }

    fn verdicts(&self) -> Option<Counts> {
        match self.tally.as_ref()?.read() {
            Ok(counts) => Some(counts),
            Err(error) => {
                tracing::error!(%error, "the verdicts cannot be read");
                None
            }
        }
    }

    fn board(&self) -> Option<&Board> {
        self.board.as_deref()
    }

    fn observer(&self) -> &Observer {
        &self.observer
    }

    fn flows(&self, worker: usize) -> Answer<Vec<Brief>> {
        let flows = self.query(worker, Query::Scan);
        Box::pin(async { Ok(flows.await?.iter().map(brief).collect()) })
    }

    fn legs(&self, worker: usize, flows: Vec<Key>) -> Answer<Vec<LegStatistics>> {
        self.query(worker, |reply| Query::Detail(flows, reply))
    }

    fn drain(&self) -> Answer<Result<String, String>> {
        self.tell(Command::Drain)
    }

    fn reload(&self) -> Answer<Result<String, String>> {
        self.tell(Command::Reload)
    }

    fn set_log_level(&self, level: &str) -> Result<(), String> {
        let set = self.log_level.get().ok_or("how much is logged cannot be changed here")?;
        set(level)
    }
}

fn brief(flow: &Scanned) -> Brief {
    let Scanned { key, metadata, totals, seen } = *flow;
    let (client, server, start) = (metadata.client, metadata.server, metadata.start);
    Brief { key, client, server, start, connected: metadata.connected.is_some(), totals, seen }
}
