//! What passed here of connections, split and not, so that the two can be compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midspan_steer::{AccountsSource, FlowRecord, Verdict};
use midspan_sys::clock::monotonic;
use serde::Serialize;

use crate::interception::is_probe;
use crate::shared::Shared;

/// How long records may wait, of which the kernel does not tell while they are few; and we, to see that
/// it is time to end.
const WAIT: Duration = Duration::from_millis(100);
/// How often idle connections are looked for.
const LOOK: Duration = Duration::from_secs(10);

/// Sums over ended connections that were treated alike.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    connections: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    busy_up_ns: AtomicU64,
    busy_down_ns: AtomicU64,
}

/// Sums over ended connections that were treated alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PassedSnapshot {
    /// How many ended.
    pub connections: u64,
    /// Payload from their clients, in bytes.
    pub bytes_up: u64,
    /// Payload to their clients, in bytes.
    pub bytes_down: u64,
    /// Between the first and the last payload from the client, all together, in nanoseconds.
    pub busy_up_ns: u64,
    /// Between the first and the last payload to the client, all together, in nanoseconds.
    pub busy_down_ns: u64,
}

impl Passed {
    pub(crate) fn add(&self, record: &FlowRecord) {
        let busy = |payload: Option<(Duration, Duration)>| {
            payload.map_or(0, |(first, last)| last.saturating_sub(first).as_nanos() as u64)
        };
        for (sum, more) in [
            (&self.connections, 1),
            (&self.bytes_up, record.up.bytes),
            (&self.bytes_down, record.down.bytes),
            (&self.busy_up_ns, busy(record.up.payload)),
            (&self.busy_down_ns, busy(record.down.payload)),
        ] {
            sum.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> PassedSnapshot {
        let get = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        PassedSnapshot {
            connections: get(&self.connections),
            bytes_up: get(&self.bytes_up),
            bytes_down: get(&self.bytes_down),
            busy_up_ns: get(&self.busy_up_ns),
            busy_down_ns: get(&self.busy_down_ns),
        }
    }
}

/// How a connection was treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Treatment {
    /// It was split.
    Split,
    /// It was left alone for comparison, and is like the split ones in everything else.
    Holdout,
    /// It was passed for another reason.
    Passed,
}

impl Treatment {
    /// All of them.
    pub const ALL: [Treatment; 3] = [Treatment::Split, Treatment::Holdout, Treatment::Passed];

    /// What it is called in logs and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Treatment::Split => "split",
            Treatment::Holdout => "holdout",
            Treatment::Passed => "passed",
        }
    }

    /// What follows from the verdict on the connection's opening.
    pub const fn of(verdict: Verdict) -> Treatment {
        match verdict {
            Verdict::Split => Treatment::Split,
            Verdict::PassHoldout => Treatment::Holdout,
            _ => Treatment::Passed,
        }
    }
}

/// The thread that takes the records. Dropping this ends it, with all taken that are there.
#[derive(Debug)]
pub(crate) struct AccountsThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AccountsThread {
    pub(crate) fn start(source: AccountsSource, shared: Arc<Shared>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let run = move || {
            shared.privileges.lower();
            if let Err(error) = keep_accounts(source, &shared, &stopped) {
                tracing::error!(%error, "connections are accounted for no more");
            }
        };
        let thread = std::thread::Builder::new().name("accounts".into()).spawn(run)?;
        Ok(AccountsThread { stop, thread: Some(thread) })
    }
}

impl Drop for AccountsThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep_accounts(
    source: AccountsSource,
    shared: &Arc<Shared>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let take = shared.clone();
    let accounts = source.open(move |record| {
        if !is_probe(record.client.ip(), record.server) {
            take.record(&record);
        }
    })?;
    let idle = Duration::from(shared.settings().config.account_idle);
    let mut look = Instant::now() + LOOK.min(idle);
    loop {
        let ends = stop.load(Ordering::Acquire);
        accounts.poll(if ends { Duration::ZERO } else { WAIT })?;
        if ends {
            return Ok(());
        }
        if Instant::now() >= look {
            accounts.give_up(monotonic(), idle)?;
            look = Instant::now() + LOOK.min(idle);
        }
    }
}
