//! A worker's place in the steering program's maps, as long as it is its own.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use midspan_steer::WorkerSlot;

use crate::workers::Workers;

/// A slot, counted among those that workers have.
#[derive(Debug)]
pub(crate) struct SlotGuard {
    slot: WorkerSlot,
    workers: Arc<Workers>,
}

impl SlotGuard {
    pub(crate) fn new(slot: WorkerSlot, workers: Arc<Workers>) -> SlotGuard {
        workers.slots.fetch_add(1, Ordering::AcqRel);
        SlotGuard { slot, workers }
    }
}

impl Deref for SlotGuard {
    type Target = WorkerSlot;

    fn deref(&self) -> &WorkerSlot {
        &self.slot
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.workers.slots.fetch_sub(1, Ordering::AcqRel);
    }
}
