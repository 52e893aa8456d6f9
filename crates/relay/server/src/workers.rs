//! What workers are reached by: handles of each, and what all are told.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use midspan_steer::HeldSyn;
use midspan_threads::wake::{self, raise};

use crate::inbox::Inbox;
use crate::phase::{Phase, PhaseCell};
use crate::queries::Queries;

/// All workers of a relay, as other threads reach them.
#[derive(Debug)]
pub(crate) struct Workers {
    /// One for each worker.
    pub(crate) handles: Vec<WorkerHandle>,
    phase: PhaseCell,
    /// Written to by each worker when it ends.
    pub(crate) ended: OwnedFd,
    /// Workers whose place in the steering program's maps is theirs.
    pub(crate) slots: AtomicUsize,
    /// Since when heartbeats are counted.
    made: Instant,
}

/// What one worker is reached by.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    pub(crate) wake: OwnedFd,
    pub(crate) queries: Queries,
    /// SYNs that are held for it, and that it has not seen yet.
    pub(crate) held: Mutex<Vec<HeldSyn>>,
    /// What other workers leave to it.
    pub(crate) inbox: Inbox,
    /// When it last said that it lives, in nanoseconds since the workers were made.
    beat: AtomicU64,
}

impl Workers {
    /// So many, which are to run.
    pub(crate) fn new(count: usize) -> io::Result<Workers> {
        let handle = || {
            Ok(WorkerHandle {
                wake: wake::flag()?,
                queries: Queries::default(),
                held: Mutex::default(),
                inbox: Inbox::default(),
                beat: AtomicU64::new(0),
            })
        };
        Ok(Workers {
            handles: (0..count).map(|_| handle()).collect::<io::Result<Vec<_>>>()?,
            phase: PhaseCell::new(),
            ended: wake::flag()?,
            slots: AtomicUsize::new(0),
            made: Instant::now(),
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.handles.len()
    }

    /// Has all of them look what is new.
    pub(crate) fn wake(&self) {
        for handle in &self.handles {
            raise(&handle.wake);
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Goes on to a later phase, and tells them.
    pub(crate) fn advance(&self, phase: Phase) {
        self.phase.advance(phase);
        self.wake();
    }

    /// Leaves a SYN that is held to the worker that it is held for.
    pub(crate) fn hold(&self, syn: HeldSyn) {
        if let Some(worker) = self.handles.get(syn.worker) {
            worker.held.lock().unwrap_or_else(PoisonError::into_inner).push(syn);
            raise(&worker.wake);
        }
    }

    /// A worker says that it lives.
    pub(crate) fn beat(&self, worker: usize, now: Instant) {
        let since = now.saturating_duration_since(self.made);
        self.handles[worker].beat.store(since.as_nanos() as u64, Ordering::Relaxed);
    }

    /// How long ago each worker last said that it lives.
    pub(crate) fn heartbeat_ages(&self) -> impl Iterator<Item = Duration> {
        let now = self.made.elapsed();
        let beat =
            |handle: &WorkerHandle| Duration::from_nanos(handle.beat.load(Ordering::Relaxed));
        self.handles.iter().map(move |handle| now.saturating_sub(beat(handle)))
    }
}
