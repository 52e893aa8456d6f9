//! On which processor a worker runs.

use std::io;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use socket2::SockRef;

use super::Worker;

/// How long a worker stays where it has gone, at least: to go takes some microseconds, and meanwhile
/// what is in buffers lasts.
const STAY: Duration = Duration::from_millis(1);
/// After how long for itself it sees whether the ends of its flow, on another processor both of them, part.
const ALONE: Duration = Duration::from_millis(10);
/// A worker that has carried nothing for so long has nothing to do. Among many threads one that has may wait for long.
const QUIET: Duration = Duration::from_millis(20);

/// Where a worker is kept, and where it is.
#[derive(Debug)]
pub(super) struct Place {
    /// Its own processor.
    pub(super) home: usize,
    /// It prefers connections that arrive there.
    pub(super) nearby: bool,
    now_on: usize,
    since: Instant,
    /// When it was last seen to whether to stay.
    seen: Instant,
    /// The worker that has the other processor, which this is.
    neighbour: usize,
    other: usize,
    /// The processor of each worker.
    processors: Vec<usize>,
    /// What the neighbour had carried then, and until when that it has carried something counts.
    carried: u64,
    busy_until: Instant,
}

impl Place {
    /// At home, which is that of these processors, if there is another.
    fn new(processors: &[usize], index: usize) -> Option<Place> {
        let home = *processors.get(index)?;
        let neighbour = (index + 1) % processors.len();
        let (other, now) = (processors[neighbour], Instant::now());
        let place = Place {
            home,
            nearby: false,
            now_on: home,
            since: now,
            seen: now,
            neighbour,
            other,
            processors: processors.to_owned(),
            carried: 0,
            busy_until: now,
        };
        (neighbour != index).then_some(place)
    }

    /// Whose processor this is.
    pub(super) fn worker_of(&self, processor: usize) -> Option<usize> {
        self.processors.iter().position(|&one| one == processor)
    }

    /// Where to go, if not to stay, while an end of a flow is waited for whose packets are handled on one processor, and
    /// the other end's on another.
    fn next(&self, awaited: usize, other: usize, stayed: Duration) -> Option<usize> {
        let elsewhere = if self.now_on == self.home { self.other } else { self.home };
        let is_in_the_way = awaited == self.now_on;
        // The kernel then moves one of them here, as it likes to have something on each processor.
        let parts_them = awaited == elsewhere && other == elsewhere && stayed >= ALONE;
        (is_in_the_way || parts_them).then_some(elsewhere)
    }

    fn go_home(&mut self) {
        if self.now_on != self.home {
            self.go_to(self.home, Instant::now());
        }
    }

    /// Takes the calling thread to a processor.
    fn go_to(&mut self, processor: usize, now: Instant) {
        if let Err(error) = stay_on(processor) {
            // It may have been taken from us since, and then this is not tried again.
            tracing::debug!(%error, "a worker runs where it may");
        }
        (self.now_on, self.since) = (processor, now);
    }
}

/// Keeps the calling thread on one processor.
fn stay_on(processor: usize) -> io::Result<()> {
    let mut one = CpuSet::new();
    one.set(processor);
    Ok(sched_setaffinity(None, &one)?)
}

impl Worker {
    /// Keeps the calling thread, which is its own, on the processor of this index. The others have a worker each.
    pub(crate) fn set_place(&mut self, processors: &[usize], index: usize) {
        let Some(place) = Place::new(processors, index) else { return };
        if let Err(error) = stay_on(place.home) {
            tracing::warn!(%error, "a worker could not be kept on one processor");
        }
        self.place = Some(place);
        self.say_nearby();
    }

    /// Gets out of the way of whom it waits for.
    ///
    /// Where the ends of a fast flow are on this machine, one end and the worker often share a processor while the other
    /// end, alone on another, waits for them. A worker at ease that has nothing to do until one end has done something leaves
    /// that end's processor: it waits for the server on the client's, and for the client on the server's. So each
    /// processor is left some of the worker's part, as much as it has room for. In a hurry, when the flow has ended, or while
    /// the worker that the other processor belongs to carries something, it is at home.
    pub(super) fn make_way(&mut self) {
        let Some(place) = &mut self.place else { return };
        if !self.haste.is_at_ease() {
            place.go_home();
            return;
        }
        let Some(flow) = self.fast.and_then(|key| self.flows.get(key)) else {
            place.go_home();
            return;
        };
        let Some(leg) = flow.awaited().filter(|_| self.queue.is_empty()) else { return };
        let now = Instant::now();
        if now < place.seen + STAY {
            return;
        }
        place.seen = now;
        let carried = self.shared.ends[place.neighbour].counters.carried();
        if std::mem::replace(&mut place.carried, carried) != carried {
            place.busy_until = now + QUIET;
        }
        if now < place.busy_until {
            place.go_home();
            return;
        }
        let handled_on = |leg| SockRef::from(flow.fd(leg)).cpu_affinity();
        if let (Ok(awaited), Ok(other)) = (handled_on(leg), handled_on(leg.other()))
            && let Some(processor) = place.next(awaited, other, now - place.since)
        {
            place.go_to(processor, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(1);

    #[test]
    fn who_waits_is_where_the_awaited_is_not() {
        let mut place = Place::new(&[4, 7], 1).unwrap();
        assert_eq!((place.home, place.other, place.neighbour), (7, 4, 0));
        assert_eq!(place.next(7, 4, STAY), Some(4));
        assert_eq!(place.next(4, 7, LONG), None);
        place.now_on = 4;
        assert_eq!(place.next(4, 7, STAY), Some(7));
        assert_eq!(place.next(7, 4, LONG), None);
    }

    #[test]
    fn ends_that_share_a_processor_are_parted_now_and_then() {
        let place = Place::new(&[0, 1], 0).unwrap();
        assert_eq!(place.next(1, 1, STAY), None);
        assert_eq!(place.next(1, 1, ALONE), Some(1));
        assert_eq!(place.next(0, 0, STAY), Some(1));
    }

    #[test]
    fn other_processors_are_none_of_its_business() {
        let place = Place::new(&[0, 1, 2, 3], 3).unwrap();
        assert_eq!(place.next(2, 1, LONG), None);
        assert_eq!(place.next(9, 9, LONG), None);
        assert!(Place::new(&[0], 0).is_none() && Place::new(&[], 1).is_none());
    }
}
