use midspan_units::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::spec::Given;
use crate::{
    Counters, Direction, ElementSpec, Externals, Packet, SpecError, Times, Traces, WlaSpec,
};

/// A link as a scenario file has it. A direction without elements passes everything at once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// From the UE towards the server.
    #[serde(default)]
    pub up: Vec<ElementSpec>,
    /// From the server towards the UE.
    #[serde(default)]
    pub down: Vec<ElementSpec>,
}

impl LinkSpec {
    /// Checks both directions without building them; traces are not looked for.
    pub fn check(&self) -> Result<(), SpecError> {
        crate::check(&self.up).map_err(|error| error.within("up"))?;
        crate::check(&self.down).map_err(|error| error.within("down"))?;
        self.check_base_station()
    }

    /// A `wla` in `up` looks at the one `radio` in `down`.
    fn check_base_station(&self) -> Result<(), SpecError> {
        let radios = |elements: &[ElementSpec]| {
            elements.iter().filter(|element| matches!(element, ElementSpec::Radio(_))).count()
        };
        let allowed = [("up", &self.up, radios(&self.down) == 1), ("down", &self.down, false)];
        for (way, elements, allowed) in allowed {
            let mut numbered = elements.iter().enumerate();
            let wla = numbered.find(|(_, element)| matches!(element, ElementSpec::Wla(_)));
            if let (Some((index, wla)), false) = (wla, allowed) {
                let error = SpecError::new(index, wla, WlaSpec::ALONE.to_owned());
                return Err(error.within(way));
            }
        }
        Ok(())
    }

    /// Round-trip time when nothing else is there, serialisation left out:
    /// [`ElementSpec::base_delay`] of all elements, there and back.
    pub fn base_rtt(&self) -> Span {
        self.up.iter().chain(&self.down).map(ElementSpec::base_delay).sum()
    }

    /// The files of all traces that must be in [`Traces`] when it is built.
    pub fn traces(&self) -> impl Iterator<Item = &str> {
        self.up.iter().chain(&self.down).filter_map(ElementSpec::trace)
    }
}

/// [`LinkSpec::base_rtt`] of a path made of `links`.
pub fn base_rtt(links: &[LinkSpec]) -> Span {
    links.iter().map(LinkSpec::base_rtt).sum()
}

/// A way through a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the UE towards the server.
    Up,
    /// From the server towards the UE.
    Down,
}

/// Two directions. They know nothing of each other, but for a base station (`wla`) that looks at the
/// downlink's queue when something comes up: then everything in both happens in the order of time, and
/// at equal times in the downlink first.
pub struct Link<P> {
    up: Direction<P>,
    down: Direction<P>,
    coupled: bool,
}

impl<P: Packet> Link<P> {
    /// Builds both directions, each with a seed of its own derived from `seed`.
    pub fn new(spec: &LinkSpec, traces: &Traces, seed: u64) -> Result<Self, SpecError> {
        Self::of(spec, Given::traces(traces), seed)
    }

    /// The same with elements from outside.
    pub fn with(
        spec: &LinkSpec,
        traces: &Traces,
        externals: &Externals,
        seed: u64,
    ) -> Result<Self, SpecError> {
        Self::of(spec, Given { traces, externals }, seed)
    }

    fn of(spec: &LinkSpec, given: Given<'_>, seed: u64) -> Result<Self, SpecError> {
        spec.check()?;
        let mut seeds = Random::new(seed, 0);
        let (up, down) = (seeds.seed(), seeds.seed());
        let down = Direction::looking_at(&spec.down, given, down, None)
            .map_err(|error| error.within("down"))?;
        let coupled = spec.up.iter().any(|element| matches!(element, ElementSpec::Wla(_)));
        let up = Direction::looking_at(&spec.up, given, up, down.bearer())
            .map_err(|error| error.within("up"))?;
        Ok(Link { up, down, coupled })
    }

    /// A packet enters at `now`, as [`Direction::enqueue`] has it.
    pub fn enqueue(&mut self, way: Way, now: Time, packet: P) {
        self.advance(now);
        self.direction_mut(way).enqueue(now, packet);
    }

    /// When [`Link::dequeue`] should next be called, as [`Direction::next_event`] has it.
    pub fn next_event(&self, way: Way) -> Option<Time> {
        self.direction(way).next_event()
    }

    /// The next packet that has left by `now`, as [`Direction::dequeue`] has it.
    pub fn dequeue(&mut self, way: Way, now: Time) -> Option<(Time, P)> {
        self.advance(now);
        self.direction_mut(way).dequeue(now)
    }

    /// What a direction has done so far.
    pub fn counters(&self, way: Way) -> Counters {
        self.direction(way).counters()
    }

    /// What waits now, as [`Direction::waiting_bytes`] has it.
    pub fn waiting_bytes(&self, way: Way) -> u64 {
        self.direction(way).waiting_bytes()
    }

    /// How long packets waited, as [`Direction::delays`] has it.
    pub fn delays(&self, way: Way) -> &Times {
        self.direction(way).delays()
    }

    /// Forgets the delays of a direction so far.
    pub fn restart_delays(&mut self, way: Way) {
        self.direction_mut(way).restart_delays();
    }

    fn direction(&self, way: Way) -> &Direction<P> {
        match way {
            Way::Up => &self.up,
            Way::Down => &self.down,
        }
    }

    fn direction_mut(&mut self, way: Way) -> &mut Direction<P> {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }

    /// Lets everything happen that is due by `until` in directions that look at each other.
    fn advance(&mut self, until: Time) {
        while self.coupled {
            let first = match self.down.next_step() <= self.up.next_step() {
                true => &mut self.down,
                false => &mut self.up,
            };
            if !first.step(until) {
                return;
            }
        }
    }
}

/// Links in a row, the UE's first and the server's last.
pub struct Path<P> {
    /// In order from the UE to the server.
    pub links: Vec<Link<P>>,
}

impl<P: Packet> Path<P> {
    /// Builds all links, each with a seed of its own derived from `seed`.
    pub fn new(specs: &[LinkSpec], traces: &Traces, seed: u64) -> Result<Self, SpecError> {
        Self::of(specs, Given::traces(traces), seed)
    }

    /// The same with elements from outside.
    pub fn with(
        specs: &[LinkSpec],
        traces: &Traces,
        externals: &Externals,
        seed: u64,
    ) -> Result<Self, SpecError> {
        Self::of(specs, Given { traces, externals }, seed)
    }

    fn of(specs: &[LinkSpec], given: Given<'_>, seed: u64) -> Result<Self, SpecError> {
        let mut seeds = Random::new(seed, 0);
        let link = |(index, spec)| {
            Link::of(spec, given, seeds.seed())
                .map_err(|error| error.within(&format!("link {}", index + 1)))
        };
        let links = specs.iter().enumerate().map(link).collect::<Result<_, _>>()?;
        Ok(Path { links })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestPacket, micros, specs};

    fn lossy() -> LinkSpec {
        let elements = specs("{ delay = '0.5 ms' }, { loss = { share = '50 %' } }");
        LinkSpec { up: elements.clone(), down: elements }
    }

    #[test]
    fn the_base_rtt_sums_up_there_and_back() {
        let radio = LinkSpec {
            up: specs("{ rlc = { rate = '1 Gbit/s', failure = '1 %', slot = '0.5 ms' } }"),
            down: specs("{ delay = '2 ms' }, { rate = { rate = '1 Gbit/s' } }"),
        };
        assert_eq!(base_rtt(&[lossy(), radio]), Span::from_micros(3_500));
    }

    #[test]
    fn directions_and_links_draw_different_numbers() {
        let path = Path::<TestPacket>::new(&[lossy(), lossy()], &Traces::new(), 1).unwrap();
        let fates = |mut direction: Direction<TestPacket>| {
            let arrivals: Vec<(u64, u32)> = (0..64).map(|at| (at, 100)).collect();
            crate::testing::cross(&mut direction, &arrivals)
        };
        let mut seen = Vec::new();
        for link in path.links {
            seen.extend([fates(link.up), fates(link.down)]);
        }
        assert!((0..4).all(|i| (0..i).all(|j| seen[i] != seen[j])));
    }

    #[test]
    fn an_error_says_where() {
        let bad =
            LinkSpec { down: specs("{ rate = { rate = '0 bit/s' } }"), ..LinkSpec::default() };
        let error =
            Path::<TestPacket>::new(&[lossy(), bad.clone()], &Traces::new(), 1).err().unwrap();
        assert_eq!(error.place, "link 2, down, element 1 (rate)");
        assert_eq!(bad.check().unwrap_err().place, "down, element 1 (rate)");
    }

    fn base_station() -> LinkSpec {
        LinkSpec {
            up: specs("{ delay = '2 ms' }, { wla = { threshold = '2000 B' } }, { delay = '1 ms' }"),
            down: specs(
                "{ delay = '1 ms' }, { radio = { rate = '1200 kbit/s', slot = '5 ms', \
                 modulation = 'qpsk 1/2', channel = { frequency = '2.5 GHz', bandwidth = '5 MHz', \
                 distance = '1 km', power = '14 dBm' } } }",
            ),
        }
    }

    /// Sends packets down and acknowledgements up, looks at the link at the times of `looks` besides,
    /// and answers which acknowledgements were marked, with the times at which they left.
    fn marks(spec: &LinkSpec, seed: u64, looks: &[u64]) -> Vec<(Time, u64, bool)> {
        let mut link = Link::new(spec, &Traces::new(), seed).unwrap();
        let mut events: Vec<(u64, Option<Way>)> = looks.iter().map(|at| (*at, None)).collect();
        events.extend((0..400).map(|n| (n * 30_000, Some(Way::Down))));
        events.extend((0..400).map(|n| (n * 30_000 + 7_000, Some(Way::Up))));
        events.sort_by_key(|(at, way)| (*at, way.map(|way| way as u8)));
        let mut out = Vec::new();
        let mut collect = |link: &mut Link<TestPacket>, now: Time| {
            while link.dequeue(Way::Down, now).is_some() {}
            while let Some((at, packet)) = link.dequeue(Way::Up, now) {
                out.push((at, packet.number, packet.ecn == crate::Ecn::Ce));
            }
        };
        for (at, way) in events {
            let now = micros(at);
            match way {
                None => collect(&mut link, now),
                Some(Way::Down) => link.enqueue(Way::Down, now, TestPacket::new(at, 1500)),
                Some(Way::Up) => {
                    let ack = TestPacket { pure_ack: true, ..TestPacket::new(at, 52) };
                    link.enqueue(Way::Up, now, ack);
                }
            }
        }
        collect(&mut link, micros(u64::MAX / 1_000_000));
        let marked = out.iter().filter(|(_, _, marked)| *marked).count() as u64;
        assert_eq!(link.counters(Way::Up).marked, marked);
        out
    }

    /// When somebody looks changes nothing: an acknowledgement is marked by the queue of the moment
    /// in which it crosses the base station.
    #[test]
    fn marks_do_not_hang_on_when_the_link_is_looked_at() {
        for seed in 0..8 {
            let never = marks(&base_station(), seed, &[]);
            let often: Vec<u64> = (0..12_000).map(|n| n * 1000 + 13).collect();
            assert_eq!(marks(&base_station(), seed, &often), never);
            assert_eq!(marks(&base_station(), seed, &[50_000, 6_000_000]), never);
            let marked = never.iter().filter(|(_, _, marked)| *marked).count();
            assert!((1..400).contains(&marked), "{marked} of 400 are marked");
        }
    }

    /// What is no pure acknowledgement, or is ECN-capable, is none of a base station's.
    #[test]
    fn only_pure_acknowledgements_are_marked() {
        let mut spec = base_station();
        spec.down = specs(
            "{ radio = { rate = '1200 kbit/s', modulation = 'qpsk 1/2', channel = { \
             frequency = '2.5 GHz', bandwidth = '5 MHz', distance = '1 km', power = '-60 dBm' } } }",
        );
        let mut link = Link::new(&spec, &Traces::new(), 1).unwrap();
        (0..4).for_each(|n| link.enqueue(Way::Down, Time::ZERO, TestPacket::new(n, 1500)));
        let ack =
            |number, pure_ack, ecn| TestPacket { pure_ack, ecn, ..TestPacket::new(number, 52) };
        for (number, (pure_ack, ecn)) in
            [(true, crate::Ecn::NotEct), (false, crate::Ecn::NotEct), (true, crate::Ecn::Ect0)]
                .into_iter()
                .enumerate()
        {
            link.enqueue(Way::Up, Time::ZERO, ack(number as u64, pure_ack, ecn));
        }
        let out: Vec<crate::Ecn> = std::iter::from_fn(|| link.dequeue(Way::Up, micros(10_000)))
            .map(|(_, p)| p.ecn)
            .collect();
        assert_eq!(out, [crate::Ecn::Ce, crate::Ecn::NotEct, crate::Ecn::Ect0]);
    }

    #[test]
    fn a_base_station_needs_one_radio_in_its_downlink() {
        let spec = base_station();
        let without = LinkSpec { down: Vec::new(), ..spec.clone() };
        assert_eq!(without.check().unwrap_err().place, "up, element 2 (wla)");
        let two = LinkSpec { down: [&spec.down[..], &spec.down[..]].concat(), ..spec.clone() };
        assert!(two.check().is_err());
        let turned = LinkSpec { up: spec.down.clone(), down: spec.up.clone() };
        let error = turned.check().unwrap_err();
        assert_eq!(error.place, "down, element 2 (wla)");
        assert!(error.problem.contains("`radio` in the link's `down`"), "{error}");
        assert!(Direction::<TestPacket>::new(&spec.up, &Traces::new(), 1).is_err());
    }
}
