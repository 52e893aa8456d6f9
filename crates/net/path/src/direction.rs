use std::collections::VecDeque;
use std::sync::Arc;

use midspan_units::{Span, Time};

use crate::element::{AnyElement, Element};
use crate::radio::Bearer;
use crate::spec::{self, ElementSpec, Given, SpecError};
use crate::{Counters, Ecn, Packet, Times, Traces};

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
/// #     fn is_pure_ack(&self) -> bool { false }
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
    elements: Vec<AnyElement<Stamped<P>>>,
    /// When each element is due: a copy that is quick to search.
    due: Vec<Time>,
    /// Packets that have left but were not yet collected, in the order of time.
    departed: VecDeque<(Time, P)>,
    departed_bytes: u64,
    /// The latest moment at which anything has happened.
    clock: Time,
    counters: Flow,
    /// What every packet takes.
    base_delay: Span,
    /// What packets took beyond that.
    delays: Times,
}

/// A packet and when it came in.
#[derive(Debug)]
pub(crate) struct Stamped<P> {
    pub(crate) at: Time,
    pub(crate) packet: P,
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
        Self::looking_at(specs, Given::traces(traces), seed, None)
    }

    /// The same of all that is given; a `wla` in it looks at `bearer`.
    pub(crate) fn looking_at(
        specs: &[ElementSpec],
        given: Given<'_>,
        seed: u64,
        bearer: Option<&Arc<Bearer>>,
    ) -> Result<Self, SpecError> {
        let elements = spec::build(specs, given, seed, bearer)?;
        Ok(Direction {
            due: vec![Time::MAX; elements.len()],
            elements,
            departed: VecDeque::new(),
            departed_bytes: 0,
            clock: Time::ZERO,
            counters: Flow::default(),
            base_delay: specs.iter().map(ElementSpec::base_delay).sum(),
            delays: Times::new(),
        })
    }

    /// A packet enters at `now`. Whatever was due by then happens first. A `now` before something
    /// that has already happened counts as the time of that.
    pub fn enqueue(&mut self, now: Time, packet: P) {
        while self.step(now) {}
        self.clock = self.clock.max(now);
        self.counters.packets_in += 1;
        self.counters.bytes_in += u64::from(packet.wire_bytes());
        self.pass(0, self.clock, Stamped { at: self.clock, packet });
    }

    /// When [`Direction::dequeue`] should next be called: never later than the next departure,
    /// sometimes earlier. `None` if nothing will leave before another packet enters.
    pub fn next_event(&self) -> Option<Time> {
        if let Some((at, _)) = self.departed.front() {
            return Some(*at);
        }
        Some(self.next_step()).filter(|at| *at < Time::MAX)
    }

    /// When something next happens inside; [`Time::MAX`] if nothing does.
    pub(crate) fn next_step(&self) -> Time {
        self.due.iter().copied().min().unwrap_or(Time::MAX)
    }

    /// The bearer of the `radio` in it, if there is one.
    pub(crate) fn bearer(&self) -> Option<&Arc<Bearer>> {
        self.elements.iter().find_map(|element| match element {
            AnyElement::Radio(radio) => Some(radio.bearer()),
            _ => None,
        })
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

    /// How long packets took from one end to the other beyond the elements' base delays: in queues, in
    /// transmission, or held back. Of all that came out at the far end since the last
    /// [`Direction::restart_delays`].
    pub fn delays(&self) -> &Times {
        &self.delays
    }

    /// Forgets the delays so far.
    pub fn restart_delays(&mut self) {
        self.delays.reset();
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

    /// Bytes that wait in elements or are being sent by them; what is under way in a fixed delay waits for
    /// nothing.
    pub fn waiting_bytes(&self) -> u64 {
        let mut counters = Counters::default();
        let is_delay = |element: &&AnyElement<_>| matches!(element, AnyElement::Delay(_));
        let others = self.elements.iter().filter(|element| !is_delay(element));
        others.for_each(|element| element.report(&mut counters));
        counters.bytes_queued
    }

    /// Runs the element that is due first if that is by `until`, and says whether it was.
    pub(crate) fn step(&mut self, until: Time) -> bool {
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
    fn pass(&mut self, index: usize, at: Time, mut packet: Stamped<P>) {
        for (element, due) in self.elements[index..].iter_mut().zip(&mut self.due[index..]) {
            match element.enter(at, packet) {
                Some(passed) => packet = passed,
                None => {
                    *due = element.due();
                    return;
                }
            }
        }
        self.delays.record(at.since(packet.at).saturating_sub(self.base_delay));
        self.departed_bytes += u64::from(packet.wire_bytes());
        self.departed.push_back((at, packet.packet));
    }
}

impl<P: Packet> Packet for Stamped<P> {
    fn wire_bytes(&self) -> u32 {
        self.packet.wire_bytes()
    }

    fn burst(&self) -> u64 {
        self.packet.burst()
    }

    fn ecn(&self) -> Ecn {
        self.packet.ecn()
    }

    fn mark_ce(&mut self) {
        self.packet.mark_ce();
    }

    fn is_pure_ack(&self) -> bool {
        self.packet.is_pure_ack()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestPacket, cross, direction, drain, micros};

    #[test]
    fn a_packet_enters_an_element_when_it_leaves_the_one_before() {
        let chain = "{ rate = { rate = '1 Gbit/s' } }, { delay = '1 ms' }, \
                     { rate = { rate = '100 Mbit/s' } }";
        let out = cross(&mut direction(chain), &[(0, 1500), (0, 1500), (5_000, 1500)]);
        assert_eq!(out, [(1_132, 0), (1_252, 1), (6_132, 2)]);
    }

    #[test]
    fn room_is_made_before_it_is_asked_for() {
        let link = "{ rate = { rate = '1 Gbit/s' } }";
        let tight = "{ rate = { rate = '1 Gbit/s', queue = { packets = 1 } } }";
        let out = cross(&mut direction(&format!("{link}, {tight}")), &[(0, 1500); 4]);
        assert_eq!(out, [(24, 0), (36, 1), (48, 2), (60, 3)]);
    }

    #[test]
    fn no_elements_pass_everything_at_once() {
        assert_eq!(cross(&mut direction(""), &[(3, 40), (3, 40)]), [(3, 0), (3, 1)]);
    }

    #[test]
    fn time_does_not_go_backwards() {
        let mut link = direction("{ delay = '10 us' }");
        link.enqueue(micros(0), TestPacket::new(0, 40));
        assert_eq!(link.dequeue(micros(50)).unwrap().0, micros(10));
        // Looking ahead to 50 us changed nothing after 10 us, so 20 us is still to come.
        link.enqueue(micros(20), TestPacket::new(1, 40));
        link.enqueue(micros(5), TestPacket::new(2, 40));
        let times: Vec<Time> = drain(&mut link).into_iter().map(|(at, _)| at).collect();
        assert_eq!(times, [micros(30), micros(30)]);
    }

    #[test]
    fn delays_are_what_queues_and_transmission_took() {
        let mut link = direction("{ delay = '1 ms' }, { rate = { rate = '12 Mbit/s' } }");
        (0..3).for_each(|number| link.enqueue(micros(0), TestPacket::new(number, 1500)));
        drain(&mut link);
        let near = |span: Span, micros: u64| span.as_micros().abs_diff(micros) <= micros / 100;
        let delays = link.delays();
        assert!(delays.count() == 3 && near(delays.mean(), 2_000) && near(delays.max(), 3_000));
        link.restart_delays();
        assert_eq!(link.delays().count(), 0);
    }

    #[test]
    fn what_has_left_is_inside_until_it_is_collected() {
        let mut link = direction("{ delay = '10 us' }");
        link.enqueue(micros(0), TestPacket::new(0, 1000));
        link.enqueue(micros(20), TestPacket::new(1, 40));
        let counters = link.counters();
        assert_eq!((counters.packets_queued, counters.bytes_queued), (2, 1040));
        assert_eq!(link.next_event(), Some(micros(10)));
        assert_eq!(link.dequeue(micros(9)), None);
        drain(&mut link);
        assert_eq!((link.counters().bytes_out, link.counters().packets_queued), (1040, 0));
    }
}
