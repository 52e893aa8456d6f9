use midspan_units::{ByteSize, Share, Span, Time};
use serde::{Deserialize, Serialize};

use super::AqmDecision;
use super::average::{Average, default_typical_packet, default_weight};
use crate::Ecn;

/// Deterministic ECN marking: while the average queue is longer than the threshold every
/// ECN-capable packet is marked, so that a sender that sees no mark knows a loss was none of this
/// queue's (the congestion warning of TCP-Jersey, inherited by TCP-ME). With `weight = "100 %"`
/// the average is the queue itself: the step marking that DCTCP wants (RFC 8257, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EcnThresholdSpec {
    /// Average queue length above which packets are marked.
    pub threshold: ByteSize,
    /// Weight of each arrival in the average. Default 0.2 %.
    #[serde(default = "default_weight")]
    pub weight: Share,
    /// The packet size in which time without a queue is counted. Default 1500 B.
    #[serde(default = "default_typical_packet")]
    pub typical_packet: ByteSize,
    /// Above the threshold, drop packets that are not ECN-capable. Default false: they pass.
    #[serde(default)]
    pub drop_not_ect: bool,
}

impl EcnThresholdSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        super::check_average(self.weight, self.typical_packet)
    }
}

pub(crate) struct EcnThreshold {
    spec: EcnThresholdSpec,
    average: Average,
}

impl EcnThreshold {
    pub(crate) fn new(spec: EcnThresholdSpec, typical: Span) -> Self {
        EcnThreshold { spec, average: Average::new(spec.weight, typical) }
    }

    pub(crate) fn arrival(&mut self, now: Time, queued: u64, ecn: Ecn) -> AqmDecision {
        if self.average.arrival(now, queued) <= self.spec.threshold.as_bytes() {
            AqmDecision::Pass
        } else if ecn.is_capable() {
            AqmDecision::Mark
        } else if self.spec.drop_not_ect {
            AqmDecision::Drop
        } else {
            AqmDecision::Pass
        }
    }

    pub(crate) fn emptied(&mut self, now: Time) {
        self.average.emptied(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> EcnThresholdSpec {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn marks_everything_capable_while_the_average_is_above_the_threshold() {
        let spec = spec("threshold = '10 KB'\nweight = '50 %'");
        let mut aqm = EcnThreshold::new(spec, Span::from_micros(12));
        let now = Time::ZERO;
        // Averages: 8000, 12000, 14000, 7000, then above again.
        assert_eq!(aqm.arrival(now, 16_000, Ecn::Ect0), AqmDecision::Pass);
        assert_eq!(aqm.arrival(now, 16_001, Ecn::Ect0), AqmDecision::Mark);
        assert_eq!(aqm.arrival(now, 16_000, Ecn::Ect1), AqmDecision::Mark);
        assert_eq!(aqm.arrival(now, 1, Ecn::Ect0), AqmDecision::Pass);
        assert_eq!(aqm.arrival(now, 16_000, Ecn::NotEct), AqmDecision::Pass);
    }

    #[test]
    fn drops_what_cannot_be_marked_only_if_told_to() {
        let spec = spec("threshold = '1 KB'\nweight = '100 %'\ndrop_not_ect = true");
        let mut aqm = EcnThreshold::new(spec, Span::from_micros(12));
        assert_eq!(aqm.arrival(Time::ZERO, 1000, Ecn::NotEct), AqmDecision::Pass);
        assert_eq!(aqm.arrival(Time::ZERO, 1001, Ecn::NotEct), AqmDecision::Drop);
        assert_eq!(aqm.arrival(Time::ZERO, 1001, Ecn::Ce), AqmDecision::Mark);
    }

    #[test]
    fn time_without_a_queue_lowers_the_average() {
        let spec = spec("threshold = '1 KB'\nweight = '50 %'");
        let mut aqm = EcnThreshold::new(spec, Span::from_micros(10));
        assert_eq!(aqm.arrival(Time::ZERO, 8000, Ecn::Ect0), AqmDecision::Mark);
        aqm.emptied(Time::ZERO);
        // 4000 halved for each 10 us: 1000 after two, 500 after three.
        assert_eq!(aqm.arrival(Time::from_nanos(20_000), 0, Ecn::Ect0), AqmDecision::Pass);
    }
}
