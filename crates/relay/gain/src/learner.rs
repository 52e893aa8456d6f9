use core::time::Duration;
use std::collections::BTreeMap;

use crate::estimator::{Estimator, Taken};
use crate::observation::{Arm, Id, Observation, Place};

/// A transfer as whoever carries it sees it, ended or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// Where it belongs.
    pub place: Place,
    /// Whose it is.
    pub subscriber: Id,
    /// What tells it from others of the same start.
    pub key: u128,
    /// What was done with it.
    pub arm: Arm,
    /// The probability with which it was given this arm.
    pub probability: f64,
    /// When its slot began, since a moment at which one began that is the same for all.
    pub slot: Duration,
    /// When it began, since the same.
    pub start: Duration,
    /// Payload, both ways, in bytes, so far.
    pub bytes: u64,
    /// From its start until all that was sent was acknowledged; or until now, as long as it is not. None if nothing was sent.
    pub completion: Option<Duration>,
}

/// What became of a [`Transfer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferOutcome {
    /// The estimator has taken it so.
    Taken(Taken),
    /// It began in the first part of its slot, in which what began before still has a say.
    Unsettled,
    /// Nothing was sent.
    Empty,
    /// It could have had no other arm, or took no time.
    Useless,
}

/// Leads an [`Estimator`] through time.
///
/// What began in the first twentieth of a slot does not count: what began before may share its link. A slot is closed a
/// quarter of its length after its end, or half a minute; transfers that still run then count with the time that they have
/// taken so far.
#[derive(Debug)]
pub struct Learner {
    estimator: Estimator,
    slot: Duration,
    /// Transfers that run, of the slot that is about to be closed.
    running: BTreeMap<(Duration, u128), Transfer>,
}

/// The round trip that transfers count with, as none is known that splitting could not change.
const NO_ROUND_TRIP: f64 = 1.0;

impl Learner {
    /// By slots of this length, which must be above zero.
    pub fn new(estimator: Estimator, slot: Duration) -> Self {
        let slot = slot.max(Duration::from_millis(1));
        Learner { estimator, slot, running: BTreeMap::new() }
    }

    /// What was learned.
    pub const fn estimator(&self) -> &Estimator {
        &self.estimator
    }

    /// How long slots are.
    pub const fn slot(&self) -> Duration {
        self.slot
    }

    /// Takes a transfer that has ended.
    pub fn ended(&mut self, transfer: &Transfer) -> TransferOutcome {
        self.running.remove(&(transfer.start, transfer.key));
        self.take(transfer)
    }

    fn take(&mut self, transfer: &Transfer) -> TransferOutcome {
        if transfer.start.saturating_sub(transfer.slot) < self.slot / 20 {
            return TransferOutcome::Unsettled;
        }
        let Some(completion) = transfer.completion else { return TransferOutcome::Empty };
        let observation = Observation {
            place: transfer.place,
            subscriber: transfer.subscriber,
            slot: self.number(transfer.slot),
            arm: transfer.arm,
            probability: transfer.probability,
            bytes: transfer.bytes,
            connect_rtt: NO_ROUND_TRIP,
            completion: completion.as_secs_f64(),
        };
        self.estimator
            .observe(&observation)
            .map_or(TransferOutcome::Useless, TransferOutcome::Taken)
    }

    /// The last slot that may be closed by `now`, unless it is.
    pub fn due(&self, now: Duration) -> Option<u64> {
        let after = now.checked_sub(self.grace())?;
        let slot = self.number(after).checked_sub(1)?;
        (self.estimator.closed() < Some(slot)).then_some(slot)
    }

    /// When there is a slot to close next, at the earliest.
    pub fn next_due(&self, now: Duration) -> Duration {
        let grace = self.grace();
        let ended = self.number(now.saturating_sub(grace));
        self.slot * u32::try_from(ended + 1).unwrap_or(u32::MAX) + grace
    }

    /// How long after its end a slot is closed.
    pub fn grace(&self) -> Duration {
        (self.slot / 4).min(Duration::from_secs(30))
    }

    /// Hears of a transfer that runs, before the slot is closed. It counts then, unless it is heard before that it has
    /// [ended](Learner::ended).
    pub fn runs(&mut self, transfer: &Transfer, slot: u64) {
        let is_open = |number| self.estimator.closed().is_none_or(|closed| closed < number);
        let number = self.number(transfer.slot);
        if number <= slot && is_open(number) {
            self.running.insert((transfer.start, transfer.key), *transfer);
        }
    }

    /// Closes all slots up to and with this one.
    pub fn close(&mut self, slot: u64) {
        for transfer in std::mem::take(&mut self.running).into_values() {
            self.take(&transfer);
        }
        self.estimator.close(slot);
    }

    /// Forgets all units that had no transfer for so long before `now`.
    pub fn forget(&mut self, now: Duration, idle: Duration) {
        self.estimator.forget(self.number(now.saturating_sub(idle)));
    }

    fn number(&self, at: Duration) -> u64 {
        u64::try_from(at.as_nanos() / self.slot.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    const SLOT: Duration = Duration::from_secs(100);

    fn learner() -> Learner {
        Learner::new(Estimator::new(Settings::default()).unwrap(), SLOT)
    }

    fn transfer(slot: u64, after: u64) -> Transfer {
        let slot = SLOT * slot as u32;
        Transfer {
            place: Place { group: Id(1), service: Id(2), prefix: Id(3) },
            subscriber: Id(4),
            key: 5,
            arm: Arm::Split,
            probability: 0.5,
            slot,
            start: slot + Duration::from_secs(after),
            bytes: 20_000,
            completion: Some(Duration::from_millis(300)),
        }
    }

    #[test]
    fn slots_are_closed_a_while_after_their_end() {
        let mut learner = learner();
        assert_eq!(learner.due(Duration::from_secs(124)), None);
        assert_eq!(learner.due(Duration::from_secs(125)), Some(0));
        assert_eq!(learner.next_due(Duration::from_secs(20)), Duration::from_secs(125));
        assert_eq!(learner.next_due(Duration::from_secs(124)), Duration::from_secs(125));
        assert_eq!(learner.next_due(Duration::from_secs(125)), Duration::from_secs(225));
        learner.close(0);
        assert_eq!(learner.due(Duration::from_secs(130)), None);
        // After a sleep.
        assert_eq!(learner.due(Duration::from_secs(730)), Some(6));
        assert!(
            Learner::new(Estimator::new(Settings::default()).unwrap(), SLOT * 600).grace() < SLOT
        );
    }

    #[test]
    fn what_tells_nothing_is_not_counted() {
        let mut learner = learner();
        assert_eq!(learner.ended(&transfer(0, 4)), TransferOutcome::Unsettled);
        assert_eq!(
            learner.ended(&Transfer { completion: None, ..transfer(0, 6) }),
            TransferOutcome::Empty
        );
        assert_eq!(
            learner.ended(&Transfer { probability: 1.0, ..transfer(0, 6) }),
            TransferOutcome::Useless
        );
        assert_eq!(learner.ended(&transfer(0, 6)), TransferOutcome::Taken(Taken::Learned));
        learner.close(0);
        assert_eq!(learner.ended(&transfer(0, 6)), TransferOutcome::Taken(Taken::Late));
    }

    /// Each transfer counts once: as one that runs, or as one that ended meanwhile.
    #[test]
    fn what_runs_when_its_slot_is_closed_counts_as_long_as_it_has_taken() {
        let mut learner = learner();
        let slow = Transfer { completion: Some(SLOT), key: 6, ..transfer(0, 50) };
        learner.runs(&slow, 0);
        learner.runs(&transfer(0, 50), 0);
        learner.runs(&transfer(1, 10), 0);
        learner.ended(&transfer(0, 50));
        learner.close(0);
        assert_eq!(learner.estimator().counts().learned, 2);
        learner.ended(&slow);
        assert_eq!(learner.estimator().counts().late, 1);
        // The one of the next slot was not yet asked for.
        learner.runs(&slow, 1);
        learner.runs(&transfer(1, 10), 1);
        learner.close(1);
        assert_eq!(learner.estimator().counts().learned, 3);
    }
}
