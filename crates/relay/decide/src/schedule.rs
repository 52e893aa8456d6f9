//! When slots are closed.

use std::time::Duration;

use midspan_gain::Learner;

/// How long records of connections that have ended may be on their way.
const ON_THE_WAY: Duration = Duration::from_millis(500);

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// To look at all connections that are open: they are [told of](crate::Decider::runs), and then that
    /// [all were](crate::Decider::looked).
    Look,
    /// To [close](crate::Decider::close) the slot.
    Close,
}

/// A slot that has ended is closed in two steps: what still runs is looked at, and what had ended before that is given time to
/// be heard of. Times are the learner's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Schedule {
    /// There is none to close before then.
    Waits(Duration),
    /// This one is to be closed.
    Looks(u64),
    /// This one is closed then.
    Closes(u64, Duration),
}

impl Schedule {
    pub(crate) fn new(learner: &Learner, now: Duration) -> Schedule {
        Schedule::Waits(learner.next_due(now))
    }

    /// When something may be due.
    pub(crate) const fn poll_timeout(&self) -> Duration {
        match *self {
            Schedule::Waits(until) | Schedule::Closes(_, until) => until,
            Schedule::Looks(_) => Duration::ZERO,
        }
    }

    /// What is due. It stays so until it is done.
    pub(crate) fn poll(&mut self, learner: &Learner, now: Duration) -> Option<Due> {
        if let Schedule::Waits(until) = *self
            && now >= until
        {
            let next = || Schedule::Waits(learner.next_due(now));
            *self = learner.due(now).map_or_else(next, Schedule::Looks);
        }
        match *self {
            Schedule::Looks(_) => Some(Due::Look),
            Schedule::Closes(_, at) if now >= at => Some(Due::Close),
            Schedule::Waits(_) | Schedule::Closes(..) => None,
        }
    }

    /// The slot that is to be closed, if one is.
    pub(crate) const fn slot(&self) -> Option<u64> {
        match *self {
            Schedule::Waits(_) => None,
            Schedule::Looks(slot) | Schedule::Closes(slot, _) => Some(slot),
        }
    }

    /// All that is open was looked at.
    pub(crate) fn looked(&mut self, learner: &Learner, now: Duration) {
        if let Schedule::Looks(slot) = *self {
            *self = Schedule::Closes(slot, now + ON_THE_WAY.min(learner.slot() / 8));
        }
    }
}
