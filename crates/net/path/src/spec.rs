use std::sync::Arc;

use midspan_units::Span;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::element::{
    AnyElement, Delay, External, ExternalSpec, Externals, GilbertElliott, GilbertElliottSpec, Late,
    LateSpec, Loss, LossSpec, MmWave, MmWaveSpec, Policer, PolicerSpec, Radio, RadioSpec, RateLink,
    RateSpec, Rlc, RlcSpec, TraceLink, TraceSpec, Wla, WlaSpec,
};
use crate::radio::Bearer;
use crate::random::Random;
use crate::{Packet, Traces};

/// One element of a direction, as a scenario file has it: `{ delay = "0.5 ms" }`,
/// `{ loss = { share = "0.5 %" } }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ElementSpec {
    /// A link of a fixed rate with a queue before it. Keeps order.
    Rate(RateSpec),
    /// A fixed delay. Keeps order.
    Delay(Span),
    /// Independent loss. Keeps order.
    Loss(LossSpec),
    /// Loss in bursts. Keeps order.
    GilbertElliott(GilbertElliottSpec),
    /// Packets held back and overtaken by the others. Does not keep order.
    Late(LateSpec),
    /// A radio bearer in acknowledged mode with HARQ below. Keeps order.
    Rlc(RlcSpec),
    /// A link driven by a recorded trace, with a queue before it. Keeps order.
    Trace(TraceSpec),
    /// A token bucket that drops the excess. Keeps order.
    Policer(PolicerSpec),
    /// A radio bearer over a fading channel, with HARQ and without acknowledged mode. Keeps order.
    Radio(RadioSpec),
    /// A base station that marks acknowledgements when the `radio` of the other direction is in
    /// trouble. Keeps order.
    Wla(WlaSpec),
    /// The downlink of a UE with a master node and a secondary one of millimetre waves. Keeps order.
    #[serde(rename = "mmwave")]
    MmWave(MmWaveSpec),
    /// An element of the caller's. Keeps what order it likes. Simulated only.
    External(ExternalSpec),
}

impl ElementSpec {
    /// The name under which scenario files know it.
    pub fn name(&self) -> &'static str {
        match self {
            ElementSpec::Rate(_) => "rate",
            ElementSpec::Delay(_) => "delay",
            ElementSpec::Loss(_) => "loss",
            ElementSpec::GilbertElliott(_) => "gilbert-elliott",
            ElementSpec::Late(_) => "late",
            ElementSpec::Rlc(_) => "rlc",
            ElementSpec::Trace(_) => "trace",
            ElementSpec::Policer(_) => "policer",
            ElementSpec::Radio(_) => "radio",
            ElementSpec::Wla(_) => "wla",
            ElementSpec::MmWave(_) => "mmwave",
            ElementSpec::External(_) => "external",
        }
    }

    /// The file of the trace that it needs in [`Traces`] when it is built.
    pub fn trace(&self) -> Option<&str> {
        match self {
            ElementSpec::Trace(spec) => Some(&spec.file),
            _ => None,
        }
    }

    /// The least time that a packet takes through it when nothing else is there, serialisation
    /// left out: a fixed delay, or the slot in which a radio block is sent.
    pub fn base_delay(&self) -> Span {
        match self {
            ElementSpec::Delay(delay) => *delay,
            ElementSpec::Rlc(spec) => spec.slot,
            ElementSpec::Radio(spec) => spec.slot,
            ElementSpec::MmWave(spec) => spec.base_delay(),
            _ => Span::ZERO,
        }
    }

    fn check(&self) -> Result<(), String> {
        match self {
            ElementSpec::Rate(spec) => spec.check(),
            ElementSpec::GilbertElliott(spec) => spec.check(),
            ElementSpec::Rlc(spec) => spec.check(),
            ElementSpec::Trace(spec) => spec.check(),
            ElementSpec::Policer(spec) => spec.check(),
            ElementSpec::Radio(spec) => spec.check(),
            ElementSpec::Wla(spec) => spec.check(),
            ElementSpec::MmWave(spec) => spec.check(),
            ElementSpec::Delay(_)
            | ElementSpec::Loss(_)
            | ElementSpec::Late(_)
            | ElementSpec::External(_) => Ok(()),
        }
    }
}

/// An element that cannot be: which, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {problem}")]
pub struct SpecError {
    /// Where, outermost first: `link 1, up, element 2 (rate)`. Counted from 1.
    pub place: String,
    /// What is wrong and what would be right, in one line.
    pub problem: String,
}

impl SpecError {
    pub(crate) fn new(index: usize, spec: &ElementSpec, problem: String) -> Self {
        SpecError { place: format!("element {} ({})", index + 1, spec.name()), problem }
    }

    /// The same error, seen from outside.
    pub(crate) fn within(self, outer: &str) -> Self {
        SpecError { place: format!("{outer}, {}", self.place), ..self }
    }
}

/// Checks a chain of elements without building it; traces are not looked for.
pub fn check(specs: &[ElementSpec]) -> Result<(), SpecError> {
    for (index, spec) in specs.iter().enumerate() {
        spec.check().map_err(|problem| SpecError::new(index, spec, problem))?;
    }
    Ok(())
}

/// What specifications name and others have.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) traces: &'a Traces,
    pub(crate) externals: &'a Externals,
}

impl<'a> Given<'a> {
    /// Nothing from outside.
    pub(crate) fn traces(traces: &'a Traces) -> Given<'a> {
        static NONE: Externals = Externals::new();
        Given { traces, externals: &NONE }
    }
}

/// Builds a chain. `bearer` is what a `wla` looks at.
pub(crate) fn build<P: Packet>(
    specs: &[ElementSpec],
    given: Given<'_>,
    seed: u64,
    bearer: Option<&Arc<Bearer>>,
) -> Result<Vec<AnyElement<P>>, SpecError> {
    check(specs)?;
    let build_one = |(index, spec): (usize, &ElementSpec)| {
        let mut random = Random::new(seed, index);
        Ok(match spec {
            ElementSpec::Rate(spec) => AnyElement::Rate(RateLink::new(*spec, random)),
            ElementSpec::Delay(delay) => AnyElement::Delay(Delay::new(*delay)),
            ElementSpec::Loss(spec) => AnyElement::Loss(Loss::new(*spec, random)),
            ElementSpec::GilbertElliott(spec) => {
                AnyElement::GilbertElliott(GilbertElliott::new(*spec, random))
            }
            ElementSpec::Late(spec) => AnyElement::Late(Late::new(*spec, random)),
            ElementSpec::Rlc(spec) => AnyElement::Rlc(Rlc::new(*spec, random)),
            ElementSpec::Trace(trace) => {
                let missing =
                    || SpecError::new(index, spec, format!("no trace `{}` was given", trace.file));
                let recording = given.traces.get(&trace.file).ok_or_else(missing)?.clone();
                AnyElement::Trace(TraceLink::new(trace, recording, random))
            }
            ElementSpec::Policer(spec) => AnyElement::Policer(Policer::new(*spec)),
            ElementSpec::Radio(spec) => AnyElement::Radio(Box::new(Radio::new(*spec, random))),
            ElementSpec::MmWave(spec) => AnyElement::MmWave(Box::new(MmWave::new(*spec, random))),
            ElementSpec::External(external) => {
                let name = &external.name;
                let missing = || {
                    let what = "only simulations have elements from outside, as from Python";
                    SpecError::new(index, spec, format!("nobody gave an element `{name}`; {what}"))
                };
                let make = given.externals.get(name).ok_or_else(missing)?;
                AnyElement::External(Box::new(External::new(make(&external.with, random.seed()))))
            }
            ElementSpec::Wla(wla) => {
                let alone = || SpecError::new(index, spec, WlaSpec::ALONE.to_owned());
                AnyElement::Wla(Wla::new(*wla, bearer.ok_or_else(alone)?.clone()))
            }
        })
    };
    specs.iter().enumerate().map(build_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkSpec;
    use crate::testing::specs;

    #[test]
    fn a_scenario_reads_as_documented() {
        let elements = specs(
            "{ delay = '0.5 ms' }, \
             { loss = { share = '0.5 %' } }, \
             { rate = { rate = '1 Gbit/s', queue = { bytes = '150 KB', packets = 100 }, \
                aqm = { red = { min = '20 KB', max = '60 KB', max_p = '2 %', ecn = true } } } }, \
             { gilbert-elliott = { p = '1 %', r = '20 %' } }, \
             { late = { share = '0.5 %', by = '10 ms', unit = 'super-packet' } }, \
             { rlc = { rate = '1 Gbit/s', slot = '0.5 ms', failure = '10 %', \
                retransmit = 'frame', buffer = '1 MB' } }, \
             { trace = { file = 'lte.down.gz', queue = { bytes = '150 KB' } } }, \
             { policer = { rate = '384 kbit/s', bucket = '1500 B' } }",
        );
        check(&elements).unwrap();
        assert_eq!(
            elements.iter().filter_map(ElementSpec::trace).collect::<Vec<_>>(),
            ["lte.down.gz"]
        );
        let text = toml::to_string(&LinkSpec { up: elements.clone(), down: vec![] }).unwrap();
        assert_eq!(toml::from_str::<LinkSpec>(&text).unwrap().up, elements);
    }

    #[test]
    fn the_documented_example_is_read() {
        let document = include_str!("../../../../docs/reference/path.md");
        let example = document.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        let link: LinkSpec = toml::from_str(example).unwrap();
        link.check().unwrap();
        assert_eq!((link.up.len(), link.down.len()), (3, 1));
    }

    #[test]
    fn unknown_keys_are_refused() {
        for text in [
            "up = [{ dealy = '1 ms' }]",
            "up = [{ loss = { share = '1 %', units = 'packet' } }]",
            "up = [{ rate = { rate = '1 Gbit/s', queue = { byte = '1 KB' } } }]",
            "up = [{ rate = { rate = '1 Gbit/s', aqm = { pie = {} } } }]",
            "up = [{ delay = '1 ms', loss = { share = '1 %' } }]",
            "sideways = []",
        ] {
            assert!(toml::from_str::<LinkSpec>(text).is_err(), "{text}");
        }
    }
}
