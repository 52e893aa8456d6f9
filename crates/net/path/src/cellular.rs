//! Synthetic traces of cellular links, for who has no recordings.

use midspan_units::{Rate, Share, Span};
use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::trace::{CHANCE_BYTES, Trace};

/// A cellular link as a random process: its rate wanders over a wide range around a mean, and now
/// and then it carries nothing at all. Looks like the recordings that the Sprout paper (NSDI 2013)
/// made of U.S. networks, and is none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CellularSpec {
    /// Mean rate over a long time.
    pub mean: Rate,
    /// How long the trace is.
    pub duration: Span,
    /// How many times the worst rate the best is: `2` to the power of this.
    pub doublings: u32,
    /// How long the rate stays the same; then it moves a step of a quarter doubling.
    pub coherence: Span,
    /// Part of the time without any chance to send.
    pub outages: Share,
    /// How long one outage is on the mean.
    pub outage: Span,
    /// Where the randomness comes from.
    pub seed: u64,
}

impl Default for CellularSpec {
    /// LTE while driving: 5 Mbit/s on the mean, the best 32 times the worst, and 2 % of the time in
    /// outages of 300 ms.
    fn default() -> Self {
        CellularSpec {
            mean: Rate::from_bps(5_000_000),
            duration: Span::from_secs(60),
            doublings: 5,
            coherence: Span::from_millis(20),
            outages: Share::from_fraction(0.02),
            outage: Span::from_millis(300),
            seed: 1,
        }
    }
}

/// 2^(n/4) in 1/65536.
const QUARTERS: [u64; 4] = [65_536, 77_936, 92_682, 110_218];

/// More chances than this are no trace of any use: an hour at 60 Mbit/s.
const MOST_CHANCES: u64 = 20_000_000;

impl CellularSpec {
    /// Why there can be no such trace, if so.
    ///
    /// # Errors
    /// In one line, with what would be right.
    pub fn check(&self) -> Result<(), String> {
        if self.mean == Rate::from_bps(0) {
            return Err(
                "`mean` of a synthetic trace must be above zero, such as `5 Mbit/s`".to_owned()
            );
        }
        let chances = self.mean.bytes_in(self.duration).as_bytes() / u64::from(CHANCE_BYTES);
        if self.duration < Span::from_millis(1) || chances > MOST_CHANCES {
            return Err(
                "`duration` of a synthetic trace must be at least 1 ms, and short enough for \
                        its rate; try `60 s`"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The trace: the same on every machine.
    ///
    /// The rate's logarithm is a random walk between two walls, so that over a long time every
    /// level is equally likely.
    pub fn generate(&self) -> Trace {
        let levels = u64::from(self.doublings.clamp(1, 15) * 4);
        let step = (self.coherence.as_nanos() / 1_000_000).max(1);
        let outage = (self.outage.as_nanos() / 1_000_000).max(step);
        let millis = u32::try_from(self.duration.as_nanos() / 1_000_000).unwrap_or(u32::MAX).max(1);
        let mut random = Random::new(self.seed, 0);
        let mut below = |bound: u64| ((u128::from(random.draw()) * u128::from(bound)) >> 32) as u64;
        // At most 99 %: some service must be there to come back to.
        let off = ((self.outages.as_fraction() * PARTS as f64) as u64).min(PARTS * 99 / 100);
        let on = PARTS - off;
        // While in service faster, so that the mean stays.
        let middle = u128::from(self.mean.as_bps()) * 65_536 * u128::from(PARTS)
            / u128::from(mean_multiplier(levels) * on);
        let mut level = levels / 2;
        let mut is_out = false;
        // Bits of a chance, in 1/1000, that have come together.
        let mut credit = 0;
        let mut chances = Vec::new();
        for at in 1..=millis {
            if u64::from(at) % step == 0 {
                let up = below(2) == 1;
                level = if up { (level + 1).min(levels) } else { level.saturating_sub(1) };
                // An outage lasts outage/step steps on the mean, service so much longer as the
                // share of outages says.
                let change = if is_out { PARTS } else { PARTS * off / on };
                if below(outage / step * PARTS) < change {
                    is_out = !is_out;
                }
            }
            if is_out {
                continue;
            }
            // Bits per second are thousandths of bits in a millisecond.
            credit += (middle * u128::from(multiplier(level)) / 65_536) as u64;
            while credit >= CHANCE_BITS * 1_000 {
                credit -= CHANCE_BITS * 1_000;
                chances.push(at);
            }
        }
        Trace::from_chances(chances, millis)
    }
}

const CHANCE_BITS: u64 = CHANCE_BYTES as u64 * 8;
const PARTS: u64 = 10_000;

/// What the middle rate is multiplied with at `level`, in 1/65536, but for a constant.
fn multiplier(level: u64) -> u64 {
    QUARTERS[(level % 4) as usize] << (level / 4)
}

/// The mean multiplier, all levels being equally likely.
fn mean_multiplier(levels: u64) -> u64 {
    (0..=levels).map(multiplier).sum::<u64>() / (levels + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rates(trace: &Trace, window: u32) -> Vec<u64> {
        let windows = trace.chances().last().unwrap() / window;
        let mut counts = vec![0; windows as usize + 1];
        trace.chances().iter().for_each(|at| counts[(at / window) as usize] += 1);
        counts.truncate(windows as usize);
        counts
    }

    #[test]
    fn the_same_seed_gives_the_same_trace_and_another_another() {
        let spec = CellularSpec { duration: Span::from_secs(5), ..CellularSpec::default() };
        assert_eq!(spec.generate(), spec.generate());
        assert_ne!(spec.generate(), CellularSpec { seed: 2, ..spec }.generate());
        let text = spec.generate().to_text();
        assert_eq!(Trace::parse(text.as_bytes()).unwrap(), spec.generate());
    }

    #[test]
    fn mean_swing_and_outages_are_as_asked_for() {
        let duration = Span::from_secs(2_000);
        let trace = CellularSpec { duration, seed: 7, ..CellularSpec::default() }.generate();
        let mean = trace.mean_rate().as_mbps();
        assert!((4.0..6.0).contains(&mean), "{mean}");
        let counts = rates(&trace, 50);
        let out = counts.iter().filter(|count| **count == 0).count() as f64 / counts.len() as f64;
        assert!((0.01..0.03).contains(&out), "{out}");
        let mut sorted = counts.clone();
        sorted.sort_unstable();
        let (slow, fast) = (sorted[sorted.len() / 10], sorted[sorted.len() * 9 / 10]);
        assert!(fast >= 4 * slow, "{slow} {fast}");
    }

    proptest! {
        #[test]
        fn any_spec_gives_a_trace_that_is_read(
            seed: u64, kbps in 1u64..200_000, millis in 1u64..5_000, doublings: u32, coherence in 0u64..100,
            outages in 0.0..=1.0, outage in 0u64..1_000,
        ) {
            let spec = CellularSpec {
                mean: Rate::from_bps(kbps * 1_000),
                duration: Span::from_millis(millis),
                doublings,
                coherence: Span::from_millis(coherence),
                outages: Share::from_fraction(outages),
                outage: Span::from_millis(outage),
                seed,
            };
            let trace = spec.generate();
            prop_assert_eq!(Trace::parse(trace.to_text().as_bytes()).unwrap(), trace);
        }
    }
}
