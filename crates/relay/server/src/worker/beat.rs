//! A worker says that it lives and what it has room for, and takes its share of what arrives.

use std::time::{Duration, Instant};

use midspan_split::{room_of_each, takes_nearby};
use midspan_steer::Slot;

use super::EventLoop;
use super::processor::Processor;
use crate::shared::{HeldSlot, Phase};

/// How often a worker says that it lives; BPF believes it for half a second.
const BEAT: Duration = Duration::from_millis(100);
/// The same where BPF does not steer, and only the operator is told.
const SLOW_BEAT: Duration = Duration::from_secs(1);
/// Connections after which it says so at once, for the room that it has is less.
const NEWS: u64 = 64;

/// What a worker last said of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beat {
    /// When the next is due.
    pub(super) due: Instant,
    /// Whether it takes connections, and has buffers for them.
    open: bool,
    has_room: bool,
    /// Whether it offered room for more.
    offers_room: bool,
    /// How many it had taken.
    taken: u64,
}

impl Beat {
    /// Nothing was said yet, and now is the time to.
    pub(super) fn none(now: Instant) -> Beat {
        Beat { due: now, open: false, has_room: false, offers_room: false, taken: 0 }
    }
}

impl EventLoop {
    /// Has BPF steer to it, as long as it says that it lives.
    pub(crate) fn set_slot(&mut self, slot: Slot) {
        self.host.slot = Some(HeldSlot::new(slot, self.host.shared.clone()));
        self.set_rules();
    }

    /// Takes the connections that arrive on its own processor, unless it has too many flows already.
    pub(super) fn balance(&mut self) {
        let Some(processor) = &mut self.processor else { return };
        let (own, all) =
            (self.flows.flows().len() as u64, self.host.shared.admission.flows().into());
        let wanted = takes_nearby(processor.nearby, own, all, self.host.shared.ends.len() as u64);
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
        for listener in &self.listeners {
            if let Err(error) = listener.prefer(nearby.then_some(number)) {
                tracing::debug!(%error, "connections come from any processor");
            }
        }
    }

    /// How many more flows this worker offers to take.
    fn room(&self) -> u32 {
        let limit = self.host.shared.descriptors.limit(&self.host.settings.config);
        room_of_each(self.host.shared.admission.room(), limit, self.host.shared.ends.len() as u32)
    }

    /// Says that it lives, if it is time to or something has changed, and what it has room for.
    pub(super) fn beat(&mut self) {
        if self.host.shared.phase() >= Phase::Retire {
            self.host.slot = None;
        }
        let open = self.host.shared.phase() == Phase::Run && self.rest_until.is_none();
        let has_room = self.host.pool.has_room();
        let accepted = self.host.counters().accepted.get();
        let (now, beat) = (self.host.now, self.beat);
        let room = if has_room { self.room() } else { 0 };
        // A room that is no more would be offered again and again.
        let has_changed =
            (open, has_room, room > 0) != (beat.open, beat.has_room, beat.offers_room);
        let is_news = has_changed || accepted - beat.taken >= NEWS;
        if now < beat.due && !(is_news && self.host.slot.is_some()) {
            return;
        }
        if let Some(slot) = &self.host.slot {
            let flows = u32::try_from(self.flows.flows().len()).unwrap_or(u32::MAX);
            if let Err(error) = slot.beat(open, room, flows) {
                tracing::error!(%error, "a worker could not say that it lives");
            }
        }
        self.host.shared.beat(self.host.index, now);
        self.balance();
        if now >= beat.due {
            self.host.pool.let_go();
            self.flows.give_back();
        }
        let until_next = if self.host.slot.is_some() { BEAT } else { SLOW_BEAT };
        self.beat =
            Beat { due: now + until_next, open, has_room, offers_room: room > 0, taken: accepted };
    }
}
