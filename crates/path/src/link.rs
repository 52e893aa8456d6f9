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
