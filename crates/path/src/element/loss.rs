use midspan_units::{Share, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use crate::random::Random;
use crate::unit::Chooser;
use crate::{Counters, Packet, Unit};

/// Independent loss: each packet is lost with the same probability, whatever befell others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LossSpec {
    /// Share of packets (or of super-packets) lost.
    pub share: Share,
    /// What is lost together. Default `packet`.
    #[serde(default)]
    pub unit: Unit,
}

pub(crate) struct Loss {
    chooser: Chooser,
    lost: u64,
}

impl Loss {
    pub(crate) fn new(spec: LossSpec, random: Random) -> Self {
        Loss { chooser: Chooser::new(spec.share, spec.unit, random), lost: 0 }
    }
}

impl<P: Packet> Element<P> for Loss {
    fn enter(&mut self, _now: Time, packet: P) -> Option<P> {
        if self.chooser.chooses(packet.burst()) {
            self.lost += 1;
            return None;
        }
        Some(packet)
    }

    fn report(&self, counters: &mut Counters) {
        counters.add_dropped("loss", self.lost);
    }
}
