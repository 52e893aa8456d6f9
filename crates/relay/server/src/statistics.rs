//! What is counted and measured while the relay runs.

use midspan_steer::FlowRecord;

use crate::counters::{Counters, Snapshot};
use crate::observe::measures::Measures;
use crate::passed::{Passed, Treatment};

/// What all workers count and measure, and what passed of connections.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// One for each worker.
    pub(crate) workers: Vec<WorkerStatistics>,
    /// By [`Treatment`].
    passed: [Passed; Treatment::ALL.len()],
}

/// What one worker counts and measures.
#[derive(Debug)]
pub(crate) struct WorkerStatistics {
    pub(crate) counters: Counters,
    pub(crate) measures: Measures,
}

impl Statistics {
    /// Of so many workers.
    pub(crate) fn new(workers: usize) -> Statistics {
        let of = |_| WorkerStatistics { counters: Counters::default(), measures: Measures::new() };
        Statistics { workers: (0..workers).map(of).collect(), passed: Default::default() }
    }

    /// Takes in what passed of a connection that has ended.
    pub(crate) fn record(&self, record: &FlowRecord) {
        self.passed[Treatment::of(record.verdict) as usize].add(record);
    }

    /// What passed of connections that were treated so.
    pub(crate) fn passed(&self, treatment: Treatment) -> &Passed {
        &self.passed[treatment as usize]
    }

    /// What the workers have counted, all together.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::sum(self.workers.iter().map(|worker| &worker.counters))
    }
}
