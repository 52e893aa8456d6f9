//! What happens next.

use midspan_units::Time;

/// The next event of each of a number of sources, and the first of them all.
///
/// A tournament: the leaves are the sources' times, every other node is the earlier of the two below
/// it. A source that changes its mind replays its matches up to the root, so nothing is queued,
/// cancelled or allocated per event. Of equal times the source with the smaller number is first.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// Nodes in levels: node n has 2n and 2n + 1 below it; the root is 1. Each names the source that
    /// won.
    winners: Vec<u32>,
    times: Vec<Time>,
    /// Places for sources: a power of two.
    width: usize,
}

impl Agenda {
    pub(crate) fn new() -> Agenda {
        Agenda { winners: vec![0; 2], times: vec![Time::MAX], width: 1 }
    }

    /// Sets when `source` is due; [`Time::MAX`] for never.
    pub(crate) fn set(&mut self, source: usize, at: Time) {
        if source >= self.width {
            self.grow(source);
        }
        if self.times[source] == at {
            return;
        }
        self.times[source] = at;
        let mut node = (self.width + source) / 2;
        while node > 0 {
            self.play(node);
            node /= 2;
        }
    }

    /// The source that is due first, and when; none if none ever is.
    pub(crate) fn first(&self) -> Option<(Time, usize)> {
        let source = if self.width == 1 { 0 } else { self.winners[1] as usize };
        let at = self.times[source];
        (at < Time::MAX).then_some((at, source))
    }

    fn play(&mut self, node: usize) {
        let winner = |node: usize| {
            if node >= self.width { (node - self.width) as u32 } else { self.winners[node] }
        };
        let (left, right) = (winner(2 * node), winner(2 * node + 1));
        let right_first = self.times[right as usize] < self.times[left as usize];
        self.winners[node] = if right_first { right } else { left };
    }

    fn grow(&mut self, source: usize) {
        self.width = (source + 1).next_power_of_two();
        self.times.resize(self.width, Time::MAX);
        self.winners = vec![0; self.width];
        (1..self.width).rev().for_each(|node| self.play(node));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against looking at all of them.
        #[test]
        fn the_first_is_first(steps in prop::collection::vec((0usize..40, 0u64..20), 1..200)) {
            let (mut agenda, mut times) = (Agenda::new(), vec![Time::MAX; 40]);
            for (source, at) in steps {
                let at = if at == 19 { Time::MAX } else { Time::from_nanos(at) };
                agenda.set(source, at);
                times[source] = at;
                let first = times.iter().copied().enumerate().map(|(n, at)| (at, n)).min();
                prop_assert_eq!(agenda.first(), first.filter(|(at, _)| *at < Time::MAX));
            }
        }
    }
}
