//! When each user next does something of its own accord.

use std::collections::BTreeSet;

use midspan_units::Time;

/// One time for each user, or none.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    order: BTreeSet<(Time, usize)>,
    times: Vec<Option<Time>>,
}

impl Agenda {
    /// Sets a user's time in place of the one that it had.
    pub(super) fn set(&mut self, user: usize, at: Option<Time>) {
        self.times.resize(self.times.len().max(user + 1), None);
        if let Some(before) = std::mem::replace(&mut self.times[user], at) {
            self.order.remove(&(before, user));
        }
        self.order.extend(at.map(|at| (at, user)));
    }

    /// The earliest time.
    pub(super) fn first(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// The first user whose time has come, which has none then.
    pub(super) fn due(&mut self, now: Time) -> Option<usize> {
        let (_, user) = self.order.first().copied().filter(|(at, _)| *at <= now)?;
        self.set(user, None);
        Some(user)
    }
}

#[cfg(test)]
mod tests {
    use midspan_units::Span;

    use super::*;

    #[test]
    fn users_come_in_the_order_of_their_times_and_each_once() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut agenda = Agenda::default();
        for (user, time) in [(0, 30), (1, 10), (2, 20)] {
            agenda.set(user, Some(at(time)));
        }
        agenda.set(0, Some(at(5)));
        agenda.set(2, None);
        assert_eq!(agenda.first(), Some(at(5)));
        assert_eq!(agenda.due(at(4)), None);
        assert_eq!(
            [agenda.due(at(20)), agenda.due(at(20)), agenda.due(at(20))],
            [Some(0), Some(1), None]
        );
        assert_eq!(agenda.first(), None);
    }
}
