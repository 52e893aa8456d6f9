//! Active queue management: drop or mark before the queue is full.

mod average;
mod codel;
mod ecn_threshold;
mod red;
mod step;

use midspan_units::{ByteSize, Share, Span, Time};
use serde::{Deserialize, Serialize};

use crate::Ecn;
use crate::random::Random;
use codel::Codel;
pub use codel::CodelSpec;
use ecn_threshold::EcnThreshold;
pub use ecn_threshold::EcnThresholdSpec;
use red::Red;
pub use red::RedSpec;
pub use step::StepSpec;

/// Which active management a queue has, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AqmSpec {
    /// None: for a sweep in which other points have one.
    None,
    /// Random early detection.
    Red(RedSpec),
    /// Deterministic ECN marking above a threshold of the average queue.
    EcnThreshold(EcnThresholdSpec),
    /// Controlled delay.
    Codel(CodelSpec),
    /// Step marking of L4S.
    Step(StepSpec),
}

impl AqmSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            AqmSpec::None | AqmSpec::Step(_) => Ok(()),
            AqmSpec::Red(spec) => spec.check(),
            AqmSpec::EcnThreshold(spec) => spec.check(),
            AqmSpec::Codel(spec) => spec.check(),
        }
    }

    /// Builds it for a queue whose line takes `time_for(bytes)` for a packet of that size.
    pub(crate) fn build(&self, time_for: impl Fn(u64) -> Span, random: Random) -> Option<Aqm> {
        let time_for = |typical: ByteSize| time_for(typical.as_bytes());
        Some(match self {
            AqmSpec::None => return None,
            AqmSpec::Red(spec) => Aqm::Red(Red::new(*spec, time_for(spec.typical_packet), random)),
            AqmSpec::EcnThreshold(spec) => {
                Aqm::EcnThreshold(EcnThreshold::new(*spec, time_for(spec.typical_packet)))
            }
            AqmSpec::Codel(spec) => Aqm::Codel(Codel::new(*spec)),
            AqmSpec::Step(spec) => Aqm::Step(*spec),
        })
    }
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AqmDecision {
    Pass,
    Mark,
    Drop,
}

pub(crate) enum Aqm {
    Red(Red),
    EcnThreshold(EcnThreshold),
    Codel(Codel),
    Step(StepSpec),
}

impl Aqm {
    /// A packet with this ECN field comes to a queue that holds `queued` bytes.
    pub(crate) fn arrival(&mut self, now: Time, queued: u64, ecn: Ecn) -> AqmDecision {
        match self {
            Aqm::Red(aqm) => aqm.arrival(now, queued, ecn),
            Aqm::EcnThreshold(aqm) => aqm.arrival(now, queued, ecn),
            Aqm::Codel(_) | Aqm::Step(_) => AqmDecision::Pass,
        }
    }

    /// A packet with this ECN field that has waited for `sojourn` is about to be sent, with `behind`
    /// bytes behind it. If it is dropped the next one is.
    pub(crate) fn departure(
        &mut self,
        now: Time,
        sojourn: Span,
        behind: u64,
        ecn: Ecn,
    ) -> AqmDecision {
        match self {
            Aqm::Red(_) | Aqm::EcnThreshold(_) => AqmDecision::Pass,
            Aqm::Codel(aqm) => aqm.departure(now, sojourn, behind, ecn),
            Aqm::Step(aqm) => aqm.departure(sojourn, behind, ecn),
        }
    }

    /// The queue has become empty.
    pub(crate) fn emptied(&mut self, now: Time) {
        match self {
            Aqm::Red(aqm) => aqm.emptied(now),
            Aqm::EcnThreshold(aqm) => aqm.emptied(now),
            Aqm::Codel(aqm) => aqm.emptied(),
            Aqm::Step(_) => {}
        }
    }

    /// The name under which its drops are counted.
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Aqm::Red(_) => "red",
            Aqm::EcnThreshold(_) => "ecn-threshold",
            Aqm::Codel(_) => "codel",
            Aqm::Step(_) => "step",
        }
    }
}

/// Checks what both managements average with.
fn check_average(weight: Share, typical_packet: ByteSize) -> Result<(), String> {
    if weight == Share::ZERO {
        return Err("a weight of 0 % would never see the queue: \
                    give a share above zero, such as `0.2 %`"
            .to_owned());
    }
    if typical_packet.as_bytes() == 0 {
        return Err("typical_packet must be above zero, such as `1500 B`".to_owned());
    }
    Ok(())
}
