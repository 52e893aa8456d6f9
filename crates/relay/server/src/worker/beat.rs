//! A worker says that it lives and what it has room for, and takes its share of what arrives.

use midspan_split::{Vitals, room_of_each, takes_nearby};
use midspan_steer::WorkerSlot;

use super::processor::Processor;
use super::{Context, EventLoop};
use crate::phase::Phase;
use crate::slot::SlotGuard;

impl EventLoop {
    /// Has BPF steer to it, as long as it says that it lives.
    pub(crate) fn set_slot(&mut self, slot: WorkerSlot) {
        self.host.slot = Some(SlotGuard::new(slot, self.host.context.workers.clone()));
        self.set_rules();
    }

    /// Takes the connections that arrive on its own processor, unless it has too many flows already.
    pub(super) fn balance(&mut self) {
        let Some(processor) = &mut self.processor else { return };
        let (own, all) =
            (self.flows.flows().len() as u64, self.host.context.admission.flows().into());
        let wanted =
            takes_nearby(processor.nearby, own, all, self.host.context.workers.count() as u64);
        if wanted != processor.nearby {
            processor.nearby = wanted;
            self.say_nearby();
        }
    }

    /// Tells the kernel whether connections that arrive on its processor are its own.
    pub(super) fn say_nearby(&self) {
        let Some(Processor { number, nearby }) = self.processor else { return };
        if let Some(slot) = &self.host.slot
            && let Err(error) = slot.take_nearby(number, nearby)
        {
            tracing::debug!(%error, "steered connections come from any processor");
        }
        for frontend in &self.frontends {
            if let Err(error) = frontend.listener.prefer(nearby.then_some(number)) {
                tracing::debug!(%error, "connections come from any processor");
            }
        }
    }

    /// How many more flows this worker offers to take.
    fn room(&self) -> u32 {
        let Context { admission, workers, .. } = &self.host.context;
        room_of_each(admission.room(), admission.limit(), workers.count() as u32)
    }

    /// Says that it lives, if it is time to or something has changed, and what it has room for.
    pub(super) fn beat(&mut self) {
        if self.host.context.workers.phase() >= Phase::Retire {
            self.host.slot = None;
        }
        let has_buffers = self.host.pool.has_room();
        let vitals = Vitals {
            open: self.host.context.workers.phase() == Phase::Run && self.rest_until.is_none(),
            has_buffers,
            room: if has_buffers { self.room() } else { 0 },
            accepted: self.host.counters().accepted.get(),
        };
        let (now, steered) = (self.now(), self.host.slot.is_some());
        let Some(beat) = self.heartbeat.beat(now, vitals, steered) else { return };
        if let Some(slot) = &self.host.slot {
            let flows = u32::try_from(self.flows.flows().len()).unwrap_or(u32::MAX);
            if let Err(error) = slot.beat(vitals.open, vitals.offered(), flows) {
                tracing::error!(%error, "a worker could not say that it lives");
            }
        }
        self.host.context.workers.beat(self.host.index, self.host.now);
        self.balance();
        if beat.is_due {
            self.host.pool.let_go();
            self.flows.give_back();
        }
    }
}
