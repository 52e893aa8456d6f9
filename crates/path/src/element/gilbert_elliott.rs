use midspan_units::{Share, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use crate::random::Random;
use crate::{Counters, Packet};

/// Loss in bursts: a two-state Markov chain that takes a step after each packet (Gilbert 1960,
/// Elliott 1963). Starts in the good state. In the long run a share of `p / (p + r)` of packets
/// meets the bad state, and a stay there lasts `1 / r` packets on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GilbertElliottSpec {
    /// Probability of going from the good state to the bad.
    pub p: Share,
    /// Probability of going from the bad state to the good.
    pub r: Share,
    /// Share of packets lost in the good state. Default 0 %.
    #[serde(default)]
    pub loss_good: Share,
    /// Share of packets lost in the bad state. Default 100 %.
    #[serde(default = "default_loss_bad")]
    pub loss_bad: Share,
}

fn default_loss_bad() -> Share {
    Share::ONE
}

impl GilbertElliottSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.p > Share::ZERO && self.r == Share::ZERO {
            return Err("with r = 0 % the bad state is never left: give a share above zero".into());
        }
        Ok(())
    }
}

pub(crate) struct GilbertElliott {
    spec: GilbertElliottSpec,
    bad: bool,
    random: Random,
    lost: u64,
}

impl GilbertElliott {
    pub(crate) fn new(spec: GilbertElliottSpec, random: Random) -> Self {
        GilbertElliott { spec, bad: false, random, lost: 0 }
    }
}

impl<P: Packet> Element<P> for GilbertElliott {
    fn enter(&mut self, _now: Time, packet: P) -> Option<P> {
        let spec = self.spec;
        let (loss, change) =
            if self.bad { (spec.loss_bad, spec.r) } else { (spec.loss_good, spec.p) };
        let lost = loss.takes(self.random.draw());
        self.bad ^= change.takes(self.random.draw());
        if lost {
            self.lost += 1;
            return None;
        }
        Some(packet)
    }

    fn report(&self, counters: &mut Counters) {
        counters.add_dropped("gilbert-elliott", self.lost);
    }
}
