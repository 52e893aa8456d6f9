//! A worker's place in the steering program's maps, as long as it is its own.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use midspan_steer::WorkerSlot;

use crate::workers::Workers;

/// A slot, counted among those that workers have.
#[derive(Debug)]
pub(crate) struct HeldSlot {
    slot: WorkerSlot,
    workers: Arc<Workers>,
}

impl HeldSlot {
    pub(crate) fn new(slot: WorkerSlot, workers: Arc<Workers>) -> HeldSlot {
        workers.slots.fetch_add(1, Ordering::AcqRel);
        HeldSlot { slot, workers }
    }
}

impl Deref for HeldSlot {
    type Target = WorkerSlot;

    fn deref(&self) -> &WorkerSlot {
        &self.slot
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        self.workers.slots.fetch_sub(1, Ordering::AcqRel);
    }
}
