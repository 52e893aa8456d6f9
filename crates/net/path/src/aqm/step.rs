use midspan_units::{ByteSize, Span};
use serde::{Deserialize, Serialize};

use super::AqmDecision;
use super::average::default_typical_packet;
use crate::Ecn;

/// Step marking of L4S: every ECN-capable packet that has waited longer than `delay` is marked, at once and
/// without any average, as the sender is to smooth what it hears (RFC 9330, section 5.1; the threshold of
/// the native L4S queue in RFC 9332, appendix A). What is not ECN-capable passes: L4S has another queue
/// for it, and here it is for who puts such traffic on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// Longest wait that is not marked. Default 1 ms.
    #[serde(default = "default_delay")]
    pub delay: Span,
    /// With less than this behind it a packet is not marked, however long it has waited: on a slow link one
    /// alone takes longer. Default 1500 B.
    #[serde(default = "default_typical_packet")]
    pub typical_packet: ByteSize,
}

impl Default for StepSpec {
    fn default() -> Self {
        StepSpec { delay: default_delay(), typical_packet: default_typical_packet() }
    }
}

fn default_delay() -> Span {
    Span::from_millis(1)
}

impl StepSpec {
    pub(crate) fn departure(&self, sojourn: Span, behind: u64, ecn: Ecn) -> AqmDecision {
        let late = sojourn > self.delay && behind >= self.typical_packet.as_bytes();
        if late && ecn.is_capable() { AqmDecision::Mark } else { AqmDecision::Pass }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_what_has_waited_too_long_if_it_can_be_and_something_is_behind_it() {
        let aqm: StepSpec = toml::from_str("delay = '5 ms'").unwrap();
        let (short, long) = (Span::from_millis(5), Span::from_micros(5001));
        for (sojourn, behind, ecn, decision) in [
            (long, 1500, Ecn::Ect0, AqmDecision::Mark),
            (long, 1500, Ecn::Ect1, AqmDecision::Mark),
            (long, 1500, Ecn::Ce, AqmDecision::Mark),
            (long, 1500, Ecn::NotEct, AqmDecision::Pass),
            (long, 1499, Ecn::Ect1, AqmDecision::Pass),
            (short, 150_000, Ecn::Ect1, AqmDecision::Pass),
        ] {
            assert_eq!(aqm.departure(sojourn, behind, ecn), decision, "{sojourn} {behind} {ecn:?}");
        }
    }

    #[test]
    fn all_has_a_default() {
        assert_eq!(toml::from_str::<StepSpec>("").unwrap(), StepSpec::default());
    }
}
