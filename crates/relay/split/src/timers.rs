//! When something is to be done about a flow unless something else happens first.

use std::collections::VecDeque;

use midspan_units::Time;

use crate::slab::Key;

/// What a flow may have a timer for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Timer {
    /// The connect that is under way is given up.
    Connect,
    /// The server has been silent for so long that its answers may come by another way.
    Silence,
    /// The port that a former connection had may be free now.
    Port,
    /// The last bytes of a leg that has failed may be acknowledged by the other one's peer.
    Drain,
}

impl Timer {
    const ALL: [Timer; 4] = [Timer::Connect, Timer::Silence, Timer::Port, Timer::Drain];
}

/// Which timers one flow has, and when they are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Armed([Time; Timer::ALL.len()]);

impl Armed {
    const NEVER: Time = Time::MAX;

    pub(crate) const fn none() -> Armed {
        Armed([Armed::NEVER; Timer::ALL.len()])
    }

    pub(crate) fn has(&self, timer: Timer) -> bool {
        self.0[timer as usize] != Armed::NEVER
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = Armed::NEVER;
    }

    fn is_for(&self, timer: Timer, due: Time) -> bool {
        self.0[timer as usize] == due
    }
}

/// The timers of all flows of a worker: a queue for each kind, as those of a kind have nearly always the same length, so
/// that the one which is started last is due last. Stopping one costs nothing: it stays where it is until it comes to
/// the front.
#[derive(Debug, Default)]
pub(crate) struct Timers([VecDeque<(Time, Key)>; Timer::ALL.len()]);

impl Timers {
    /// Starts a flow's timer, in place of that of the same kind that it may have.
    pub(crate) fn start(&mut self, timer: Timer, due: Time, key: Key, armed: &mut Armed) {
        armed.0[timer as usize] = due;
        let queue = &mut self.0[timer as usize];
        match queue.back() {
            Some(&(last, _)) if last > due => {
                let at = queue.partition_point(|&(other, _)| other <= due);
                queue.insert(at, (due, key));
            }
            _ => queue.push_back((due, key)),
        }
    }

    /// When the next is due. `armed` has what a flow has, if there is such a flow.
    pub(crate) fn next<'a>(
        &mut self,
        armed: impl Fn(Key) -> Option<&'a Armed>,
    ) -> Option<(Time, Timer)> {
        let front = |timer: Timer| {
            let queue = &mut self.0[timer as usize];
            while let Some(&(due, key)) = queue.front() {
                if armed(key).is_some_and(|armed| armed.is_for(timer, due)) {
                    return Some((due, timer));
                }
                queue.pop_front();
            }
            None
        };
        Timer::ALL.into_iter().filter_map(front).min_by_key(|&(due, _)| due)
    }

    /// Takes the next that is due now. It is the caller's to [stop](Armed::stop) it.
    pub(crate) fn take<'a>(
        &mut self,
        now: Time,
        armed: impl Fn(Key) -> Option<&'a Armed>,
    ) -> Option<(Timer, Key)> {
        let (_, timer) = self.next(armed).filter(|&(due, _)| due <= now)?;
        let (_, key) = self.0[timer as usize].pop_front()?;
        Some((timer, key))
    }
}

#[cfg(test)]
mod tests {
    use midspan_units::Span;
    use proptest::prelude::*;

    use super::*;
    use crate::slab::Slab;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Start(Timer, usize, u64),
        Stop(Timer, usize),
        /// The flow ends, and another one has its slot.
        Replace(usize),
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let timer = || prop::sample::select(&Timer::ALL[..]);
        let step = prop_oneof![
            5 => (timer(), 0..8usize, 0..50u64).prop_map(|(a, b, c)| Step::Start(a, b, c)),
            2 => (timer(), 0..8usize).prop_map(|(a, b)| Step::Stop(a, b)),
            1 => (0..8usize).prop_map(Step::Replace),
            3 => (0..30u64).prop_map(Step::Wait),
        ];
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        /// Against a list of all of them: each is told once, when it is due, in the order in which they are, and none that
        /// was stopped, replaced or of a flow that is no more.
        #[test]
        fn they_are_told_when_they_are_due(steps in steps()) {
            let (mut timers, mut flows) = (Timers::default(), Slab::new());
            let mut keys: Vec<Key> =
                (0..8).map(|_| flows.insert_with(|_| Ok::<_, ()>(Armed::none())).unwrap()).collect();
            let mut all: Vec<(Time, Timer, Key)> = Vec::new();
            let mut now = Time::ZERO;
            for step in steps {
                match step {
                    Step::Start(timer, flow, after) => {
                        let (due, key) = (now + Span::from_millis(after), keys[flow]);
                        all.retain(|&(_, other, of)| (other, of) != (timer, key));
                        all.push((due, timer, key));
                        timers.start(timer, due, key, flows.get_mut(key).unwrap());
                    }
                    Step::Stop(timer, flow) => {
                        all.retain(|&(_, other, of)| (other, of) != (timer, keys[flow]));
                        flows.get_mut(keys[flow]).unwrap().stop(timer);
                    }
                    Step::Replace(flow) => {
                        all.retain(|&(.., of)| of != keys[flow]);
                        flows.remove(keys[flow]);
                        keys[flow] = flows.insert_with(|_| Ok::<_, ()>(Armed::none())).unwrap();
                    }
                    Step::Wait(millis) => now += Span::from_millis(millis),
                }
                let mut last = Time::ZERO;
                while let Some((timer, key)) = timers.take(now, |key| flows.get(key)) {
                    let at = all.iter().position(|&(_, a, b)| (a, b) == (timer, key)).unwrap();
                    let (due, ..) = all.swap_remove(at);
                    prop_assert!(last <= due && due <= now);
                    last = due;
                    flows.get_mut(key).unwrap().stop(timer);
                }
                let next = all.iter().map(|&(due, ..)| due).min();
                prop_assert_eq!(timers.next(|key| flows.get(key)).map(|(due, _)| due), next);
                prop_assert!(next.is_none_or(|due| due > now));
            }
        }
    }
}
