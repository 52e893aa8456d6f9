use std::collections::VecDeque;

use midspan_units::Time;

use crate::element::{AnyElement, Element};
use crate::spec::{self, ElementSpec, SpecError};
use crate::{Counters, Packet, Traces};

/// One direction of a link: a chain of elements that packets cross in the order given.
///
/// Time inside is exact. A packet that leaves one element at `t` enters the next at `t`, whenever
/// the caller looks; everything happens in the order of time, and at equal times nearest the exit
/// first, so that room is made before it is asked for. No allocation per packet once the queues
/// have grown to their working size.
///
/// ```
/// # use midspan_path::{Direction, Ecn, ElementSpec, Packet, Traces};
/// # use midspan_units::{Span, Time};
/// # struct Datagram;
/// # impl Packet for Datagram {
/// #     fn wire_bytes(&self) -> u32 { 1500 }
/// #     fn burst(&self) -> u64 { 0 }
/// #     fn ecn(&self) -> Ecn { Ecn::NotEct }
/// #     fn mark_ce(&mut self) {}
/// # }
/// let delay = ElementSpec::Delay(Span::from_millis(10));
/// let mut direction = Direction::new(&[delay], &Traces::new(), 1)?;
/// direction.enqueue(Time::ZERO, Datagram);
/// let at = direction.next_event().unwrap();
/// let (left, _datagram) = direction.dequeue(at).unwrap();
/// assert_eq!(left, Time::ZERO + Span::from_millis(10));
/// # Ok::<(), midspan_path::SpecError>(())
/// ```
pub struct Direction<P> {
    elements: Vec<AnyElement<P>>,
    /// When each element is due: a copy that is quick to search.
    due: Vec<Time>,
    /// Packets that have left but were not yet collected, in the order of time.
    departed: VecDeque<(Time, P)>,
    departed_bytes: u64,
    /// The latest moment at which anything has happened.
    clock: Time,
    counters: Flow,
}

#[derive(Default)]
struct Flow {
    packets_in: u64,
    bytes_in: u64,
    packets_out: u64,
    bytes_out: u64,
}

impl<P: Packet> Direction<P> {
    /// Builds the chain. `traces` holds every trace that the elements name; `seed` decides all
    /// randomness. An error names the first element that cannot be built and why.
    pub fn new(specs: &[ElementSpec], traces: &Traces, seed: u64) -> Result<Self, SpecError> {
        let elements = spec::build(specs, traces, seed)?;
        Ok(Direction {
            due: vec![Time::MAX; elements.len()],
            elements,
            departed: VecDeque::new(),
            departed_bytes: 0,
            clock: Time::ZERO,
            counters: Flow::default(),
        })
    }

    /// A packet enters at `now`. Whatever was due by then happens first. A `now` before something
    /// that has already happened counts as the time of that.
    pub fn enqueue(&mut self, now: Time, packet: P) {
        while self.step(now) {}
        self.clock = self.clock.max(now);
        self.counters.packets_in += 1;
        self.counters.bytes_in += u64::from(packet.wire_bytes());
        self.pass(0, self.clock, packet);
    }

    /// When [`Direction::dequeue`] should next be called: never later than the next departure,
    /// sometimes earlier. `None` if nothing will leave before another packet enters.
    pub fn next_event(&self) -> Option<Time> {
        if let Some((at, _)) = self.departed.front() {
            return Some(*at);
        }
        self.due.iter().copied().min().filter(|at| *at < Time::MAX)
    }

    /// The next packet that has left by `now`, in the order of time, with the exact time at which
    /// it left. Call again until it gives `None`.
    pub fn dequeue(&mut self, now: Time) -> Option<(Time, P)> {
        while self.departed.is_empty() && self.step(now) {}
        if self.departed.front()?.0 > now {
            return None;
        }
        let (at, packet) = self.departed.pop_front()?;
        let bytes = u64::from(packet.wire_bytes());
        self.departed_bytes -= bytes;
        self.counters.packets_out += 1;
        self.counters.bytes_out += bytes;
        Some((at, packet))
    }

    /// What this direction has done so far.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters {
            packets_in: self.counters.packets_in,
            bytes_in: self.counters.bytes_in,
            packets_out: self.counters.packets_out,
            bytes_out: self.counters.bytes_out,
            packets_queued: self.departed.len() as u64,
            bytes_queued: self.departed_bytes,
            ..Counters::default()
        };
        self.elements.iter().for_each(|element| element.report(&mut counters));
        counters
    }

    /// Runs the element that is due first if that is by `until`, and says whether it was.
    fn step(&mut self, until: Time) -> bool {
        let earliest = self.due.iter().copied().enumerate().rev().min_by_key(|(_, at)| *at);
        let Some((index, at)) = earliest.filter(|(_, at)| *at <= until && *at < Time::MAX) else {
            return false;
        };
        self.clock = at;
        let element = &mut self.elements[index];
        let packet = element.run(at);
        self.due[index] = element.due();
        if let Some(packet) = packet {
            self.pass(index + 1, at, packet);
        }
        true
    }

    /// A packet comes to the element at `index`, and goes as far as it gets at once.
    fn pass(&mut self, index: usize, at: Time, mut packet: P) {
        for (element, due) in self.elements[index..].iter_mut().zip(&mut self.due[index..]) {
            match element.enter(at, packet) {
                Some(passed) => packet = passed,
                None => {
                    *due = element.due();
                    return;
                }
            }
        }
        self.departed_bytes += u64::from(packet.wire_bytes());
        self.departed.push_back((at, packet));
    }
}
