//! What a relay shows.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

use midspan_decide::Board;
use midspan_observe::LegStats;
use midspan_split::{Key, PerLeg, Totals};
use midspan_steer::Counts;
use midspan_sys::clock::Epoch;

use crate::observer::Observer;

/// A running relay, as it is looked at. Nothing here waits for a worker, but for answers.
pub trait Source: fmt::Debug + Send + Sync {
    /// When it started.
    fn started(&self) -> Epoch;
    /// What its workers are to do, in a word.
    fn phase(&self) -> &'static str;
    /// Who brings connections to it.
    fn steered_by(&self) -> &'static str;
    /// How many workers it has.
    fn workers(&self) -> usize;
    /// How long ago each worker last said that it lives.
    fn heartbeat_ages(&self) -> Vec<Duration>;
    /// Flows that may be open at one time.
    fn flow_limit(&self) -> u32;
    /// How the configuration was read again last, if it was.
    fn last_reload(&self) -> Option<Reload>;
    /// What its workers have counted, all together, in the order of documentation.
    fn counters(&self) -> Vec<Counter>;
    /// What became of connections and packets where BPF steers; none where it does not.
    fn verdicts(&self) -> Option<Counts>;
    /// What was decided by what was learned, if it is.
    fn board(&self) -> Option<&Board>;
    /// What was told of flows.
    fn observer(&self) -> &Observer;
    /// The open flows of a worker. It is asked at once.
    fn flows(&self, worker: usize) -> Answer<Vec<Brief>>;
    /// What the kernel knows of the legs of these flows of a worker, in order. It is asked at once.
    fn legs(&self, worker: usize, flows: Vec<Key>) -> Answer<Vec<LegStatistics>>;
    /// Has it take no new connections, and end with its flows. Answered in words, once that is done or refused.
    fn drain(&self) -> Answer<Result<String, String>>;
    /// Has it read its configuration again. Answered in words, once that is done or refused.
    fn reload(&self) -> Answer<Result<String, String>>;
    /// Changes how much is logged.
    ///
    /// # Errors
    /// Why it cannot be, in a line.
    fn set_log_level(&self, level: &str) -> Result<(), String>;
}

/// What is answered later.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Gone>> + Send>>;

/// Who was asked has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// What the kernel knows of a flow's legs; none of a leg that is gone.
pub type LegStatistics = PerLeg<Option<LegStats>>;

/// A number that only rises, but for what is in use now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// What it is called.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// How many there are.
    pub value: u64,
}

/// How a configuration was read again.
#[derive(Debug, Clone, Copy)]
pub struct Reload {
    /// Whether it was taken.
    pub succeeded: bool,
    /// When one last was.
    pub success: Option<SystemTime>,
}

/// A flow in brief.
#[derive(Debug, Clone, Copy)]
pub struct Brief {
    /// What its worker finds it by.
    pub key: Key,
    /// Who has opened it.
    pub client: SocketAddr,
    /// Whom it goes to.
    pub server: SocketAddr,
    /// When it was taken.
    pub start: Instant,
    /// Whether the server has answered.
    pub connected: bool,
    /// Bytes so far.
    pub totals: PerLeg<Totals>,
    /// When this was so.
    pub seen: Instant,
}
