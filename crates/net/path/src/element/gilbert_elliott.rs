use midspan_units::{Share, Span, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use crate::random::Random;
use crate::{Counters, Packet};

/// Loss in bursts: a two-state Markov chain (Gilbert 1960, Elliott 1963) that takes a step after each
/// packet, or by the clock. Starts in the good state. In the long run the bad state has a share of
/// `p / (p + r)` of packets, or of time, and a stay there lasts `1 / r` steps on average.
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
    /// Time from step to step; steps are at multiples of it. Default: none, a step after each packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Span>,
}

fn default_loss_bad() -> Share {
    Share::ONE
}

impl GilbertElliottSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.p > Share::ZERO && self.r == Share::ZERO {
            return Err("with r = 0 % the bad state is never left: give a share above zero".into());
        }
        if self.step == Some(Span::ZERO) {
            return Err("a step of no time is none: give one above zero, or none at all".into());
        }
        Ok(())
    }
}

pub(crate) struct GilbertElliott {
    spec: GilbertElliottSpec,
    bad: bool,
    /// How many steps the clock has made the chain take.
    steps: u64,
    random: Random,
    lost: u64,
}

impl GilbertElliott {
    pub(crate) fn new(spec: GilbertElliottSpec, random: Random) -> Self {
        GilbertElliott { spec, bad: false, steps: 0, random, lost: 0 }
    }

    /// Takes the steps of the time until `now`, all in one draw: a Markov chain that is looked at
    /// seldom is one too.
    fn catch_up(&mut self, now: Time, step: Span) {
        let steps = now.as_nanos() / step.as_nanos();
        if steps > self.steps {
            let bad = self.bad_after(steps - self.steps);
            self.bad = bad.takes(self.random.draw());
            self.steps = steps;
        }
    }

    /// How likely the bad state is so many steps from now.
    fn bad_after(&self, steps: u64) -> Share {
        let (p, r) = (self.spec.p.as_fraction(), self.spec.r.as_fraction());
        if p + r == 0.0 {
            return Share::ZERO;
        }
        let settled = p / (p + r);
        let now = if self.bad { 1.0 } else { 0.0 };
        let bad = settled + (now - settled) * power(1.0 - p - r, steps);
        Share::from_fraction(bad)
    }
}

/// `base` to the power of `exponent` by squaring: multiplications alone, which are the same on every
/// machine, as `powi` need not be.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut product = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            product *= base;
        }
        base *= base;
        exponent /= 2;
    }
    product
}

impl<P: Packet> Element<P> for GilbertElliott {
    fn enter(&mut self, now: Time, packet: P) -> Option<P> {
        let spec = self.spec;
        if let Some(step) = spec.step {
            self.catch_up(now, step);
        }
        let (loss, change) =
            if self.bad { (spec.loss_bad, spec.r) } else { (spec.loss_good, spec.p) };
        let lost = loss.takes(self.random.draw());
        if spec.step.is_none() {
            self.bad ^= change.takes(self.random.draw());
        }
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

    /// Whether each of `packets` got through, which come a microsecond apart.
    fn fates(element: &str, packets: u64) -> Vec<bool> {
        fates_at(element, packets, 1)
    }

    /// The same of packets `apart` microseconds from each other.
    fn fates_at(element: &str, packets: u64, apart: u64) -> Vec<bool> {
        let mut link = direction(element);
        let arrivals: Vec<(u64, u32)> = (0..packets).map(|at| (at * apart, 1500)).collect();
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
    fn by_the_clock_bursts_last_as_long_however_seldom_packets_come() {
        // Share 1 / 26; stays of 4 steps of 10 us in the bad state.
        let element = "{ gilbert-elliott = { p = '1 %', r = '25 %', step = '10 us' } }";
        for apart in [1, 2, 10, 30, 1_000] {
            let fates = fates_at(element, 400_000, apart);
            let lost = fates.iter().filter(|passed| !**passed).count() as f64;
            // The fewer packets come in a stay, the more stays there are to average over.
            assert!((lost / 400_000.0 * 26.0 - 1.0).abs() < 0.1, "{apart}: {lost}");
            let again = fates.windows(2).filter(|pair| !pair[0] && !pair[1]).count() as f64;
            // After so many steps the state is the same by chance alone but for what is left of it.
            let left = 0.74_f64.powf(apart as f64 / 10.0);
            let theory = 1.0 / 26.0 + 25.0 / 26.0 * left;
            if apart >= 10 {
                assert!((again / lost - theory).abs() < 0.02, "{apart}: {}", again / lost);
            } else {
                // A step is seldom between two packets.
                let stay = 1.0 - 0.25 * apart as f64 / 10.0;
                assert!((again / lost - stay).abs() < 0.02, "{apart}: {}", again / lost);
            }
        }
    }

    #[test]
    fn by_the_clock_certain_steps_alternate_with_time() {
        let element = "{ gilbert-elliott = { p = '100 %', r = '100 %', step = '2 us' } }";
        assert_eq!(fates(element, 6), [true, true, false, false, true, true]);
        // What comes each other step meets the same state, and each third one the other.
        assert_eq!(fates_at(element, 3, 4), [true, true, true]);
        assert_eq!(fates_at(element, 4, 6), [true, false, true, false]);
    }

    #[test]
    fn a_chain_that_never_leaves_the_good_state_loses_nothing_by_the_clock_either() {
        let element = "{ gilbert-elliott = { p = '0 %', r = '0 %', step = '1 ms' } }";
        assert!(fates_at(element, 100, 3_600_000).iter().all(|passed| *passed));
    }

    #[test]
    fn a_step_of_no_time_is_refused() {
        let error = refusal("{ gilbert-elliott = { p = '1 %', r = '5 %', step = '0 ms' } }");
        assert!(error.contains("(gilbert-elliott): a step of no time is none"), "{error}");
    }

    #[test]
    fn a_trap_is_refused() {
        let error = refusal("{ gilbert-elliott = { p = '1 %', r = '0 %' } }");
        assert!(error.starts_with("element 1 (gilbert-elliott): with r = 0 %"), "{error}");
    }
}
