//! Flows in which nothing moves for too long are reset.

use std::time::{Duration, Instant};

use midspan_split::Patience;
use midspan_units::Time;

use super::Worker;

/// Flows looked at in one go for having been still too long.
const LOOKS: usize = 1024;

/// A round through all flows, now and then, for those that have been still too long.
#[derive(Debug)]
pub(super) struct Rounds {
    interval: Duration,
    /// When the next round begins, or this one goes on.
    pub(super) due: Instant,
    /// The slot where it goes on.
    next: usize,
    /// What the time is counted from.
    origin: Instant,
}

impl Rounds {
    /// None if nothing is to be looked for.
    pub(super) fn new(patience: &Patience) -> Option<Rounds> {
        let (interval, now) = (patience.interval()?.into(), Instant::now());
        Some(Rounds { interval, due: now + interval, next: 0, origin: now })
    }
}

impl Worker {
    /// Goes on with a round that is due: resets flows in which nothing has moved for too long.
    pub(super) fn end_still_flows(&mut self) {
        let Some(rounds) = &mut self.rounds else { return };
        let now = Instant::now();
        if now < rounds.due {
            return;
        }
        let (from, to) = (rounds.next, rounds.next + LOOKS);
        if to < self.flows.slots() {
            rounds.next = to;
        } else {
            (rounds.next, rounds.due) = (0, now + rounds.interval);
        }
        let time = Time::from_nanos((now - rounds.origin).as_nanos() as u64);
        let patience = self.settings.config.limits.patience();
        for slot in from..to {
            if let Some((key, flow)) = self.flows.at(slot)
                && let Some(cause) = flow.overstays(&patience, time)
            {
                self.fail(key, cause);
            }
        }
    }
}
