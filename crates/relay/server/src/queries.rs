//! What the admin socket asks of a worker's flows.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use midspan_legs::FlowMetadata;
use midspan_observe::LegStats;
use midspan_split::{Key, PerLeg, Totals};
use tokio::sync::oneshot;

/// What is asked of a worker.
#[derive(Debug)]
pub(crate) enum Query {
    /// All flows, without their legs.
    Scan(oneshot::Sender<Vec<Scanned>>),
    /// The legs of these, in order.
    Detail(Vec<Key>, oneshot::Sender<Vec<PerLeg<Option<LegStats>>>>),
}

/// What a worker tells of a flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scanned {
    pub(crate) key: Key,
    pub(crate) metadata: FlowMetadata,
    pub(crate) totals: PerLeg<Totals>,
    pub(crate) seen: Instant,
}

/// Where queries are left for a worker. It must be woken for them.
#[derive(Debug, Default)]
pub(crate) struct Queries(Mutex<Vec<Query>>);

impl Queries {
    pub(crate) fn leave(&self, query: Query) {
        self.lock().push(query);
    }

    /// Takes what was left.
    pub(crate) fn take(&self) -> Vec<Query> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Query>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
