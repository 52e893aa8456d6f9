use midspan_units::{Share, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use crate::random::Random;
use crate::{Counters, Packet};

/// Loss in bursts: a two-state Markov chain that takes a step after each packet (Gilbert 1960,
/// Elliott 1963). Starts in the good state. In the long run a share of `p / (p + r)` of packets
/// meets the bad state, and a stay there lasts `1 / r` packets on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

#[cfg(test)]
mod tests {
    use crate::testing::{cross, direction, refusal};

    /// Whether each of `packets` got through.
    fn fates(element: &str, packets: u64) -> Vec<bool> {
        let mut link = direction(element);
        let arrivals: Vec<(u64, u32)> = (0..packets).map(|at| (at, 1500)).collect();
        let mut fates = vec![false; packets as usize];
        cross(&mut link, &arrivals).iter().for_each(|(_, number)| fates[*number as usize] = true);
        fates
    }

    #[test]
    fn certain_steps_alternate_between_the_states() {
        let fates = fates("{ gilbert-elliott = { p = '100 %', r = '100 %' } }", 6);
        assert_eq!(fates, [true, false, true, false, true, false]);
    }

    #[test]
    fn losses_come_in_bursts_of_the_length_and_share_that_theory_gives() {
        // Share p / (p + r) = 1 / 26, bursts of 1 / r = 4.
        let fates = fates("{ gilbert-elliott = { p = '1 %', r = '25 %' } }", 400_000);
        let lost = fates.iter().filter(|passed| !**passed).count() as f64;
        let bursts = fates.chunk_by(|a, b| a == b).filter(|burst| !burst[0]).count() as f64;
        assert!((lost / 400_000.0 * 26.0 - 1.0).abs() < 0.05, "{lost}");
        assert!((lost / bursts - 4.0).abs() < 0.2, "{}", lost / bursts);
    }

    #[test]
    fn each_state_has_its_own_loss() {
        let text = "{ gilbert-elliott = \
                    { p = '10 %', r = '10 %', loss_good = '2 %', loss_bad = '30 %' } }";
        let lost = fates(text, 400_000).iter().filter(|passed| !**passed).count() as f64;
        assert!((lost / 400_000.0 - 0.16).abs() < 0.01, "{lost}");
    }

    #[test]
    fn a_trap_is_refused() {
        let error = refusal("{ gilbert-elliott = { p = '1 %', r = '0 %' } }");
        assert!(error.starts_with("element 1 (gilbert-elliott): with r = 0 %"), "{error}");
    }
}
