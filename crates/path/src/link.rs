use midspan_units::Span;
use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::{Direction, ElementSpec, Packet, SpecError, Traces};

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
        crate::check(&self.down).map_err(|error| error.within("down"))
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

/// Two directions that know nothing of each other.
pub struct Link<P> {
    /// From the UE towards the server.
    pub up: Direction<P>,
    /// From the server towards the UE.
    pub down: Direction<P>,
}

impl<P: Packet> Link<P> {
    /// Builds both directions, each with a seed of its own derived from `seed`.
    pub fn new(spec: &LinkSpec, traces: &Traces, seed: u64) -> Result<Self, SpecError> {
        let mut seeds = Random::new(seed, 0);
        let (up, down) = (seeds.seed(), seeds.seed());
        Ok(Link {
            up: Direction::new(&spec.up, traces, up).map_err(|error| error.within("up"))?,
            down: Direction::new(&spec.down, traces, down).map_err(|error| error.within("down"))?,
        })
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
        let mut seeds = Random::new(seed, 0);
        let link = |(index, spec)| {
            Link::new(spec, traces, seeds.seed())
                .map_err(|error| error.within(&format!("link {}", index + 1)))
        };
        let links = specs.iter().enumerate().map(link).collect::<Result<_, _>>()?;
        Ok(Path { links })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestPacket, specs};

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
}
