//! The processor on which a worker runs.

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::EventLoop;

/// The processor that a worker has to itself among the workers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Processor {
    pub(super) number: usize,
    /// The worker prefers connections that arrive there.
    pub(super) nearby: bool,
}

impl EventLoop {
    /// Keeps the calling thread, which is its own, on a processor. The other workers have others.
    pub(crate) fn set_processor(&mut self, number: usize) {
        let mut one = CpuSet::new();
        one.set(number);
        if let Err(error) = sched_setaffinity(None, &one) {
            tracing::warn!(%error, "a worker could not be kept on one processor");
        }
        self.processor = Some(Processor { number, nearby: false });
        self.say_nearby();
    }
}

/// Gives the calling thread this priority, -20 (first) to 19.
pub(crate) fn set_priority(nice: i32) {
    if let Err(error) = setpriority_process(None, nice) {
        tracing::warn!(%error, nice, "a worker has the priority of any thread");
    }
}
