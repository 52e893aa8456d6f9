use midspan_units::{ByteSize, Share, Span, Time};
use serde::{Deserialize, Serialize};

use super::AqmDecision;
use super::average::{Average, default_typical_packet, default_weight};
use crate::Ecn;
use crate::random::Random;

/// Random early detection (Floyd and Jacobson, "Random early detection gateways for congestion
/// avoidance", 1993), in bytes: below `min` of average queue nothing is dropped, between `min` and
/// `max` a packet is dropped with a probability that rises from 0 to `max_p`, spread evenly by
/// counting packets since the last drop; above `max` every packet is, unless `gentle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedSpec {
    /// Average queue length at which dropping begins.
    pub min: ByteSize,
    /// Average queue length at which the probability reaches `max_p`. Floyd recommends at least
    /// three times `min`.
    pub max: ByteSize,
    /// Drop probability at `max`. Default 10 % (Floyd, "RED: discussions of setting parameters",
    /// 1997).
    #[serde(default = "default_max_p")]
    pub max_p: Share,
    /// Weight of each arrival in the average. Default 0.2 %.
    #[serde(default = "default_weight")]
    pub weight: Share,
    /// The packet size in which time without a queue is counted. Default 1500 B.
    #[serde(default = "default_typical_packet")]
    pub typical_packet: ByteSize,
    /// From `max` to twice `max` let the probability rise from `max_p` to 1 instead of jumping
    /// (Floyd, "Recommendation on using the gentle variant of RED", 2000). Default true.
    #[serde(default = "default_gentle")]
    pub gentle: bool,
    /// Mark ECN-capable packets where others are dropped. Default false.
    #[serde(default)]
    pub ecn: bool,
}

fn default_max_p() -> Share {
    Share::from_fraction(0.1)
}

fn default_gentle() -> bool {
    true
}

impl RedSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.min >= self.max {
            return Err(format!(
                "RED's min threshold ({}) must be below its max threshold ({})",
                self.min, self.max
            ));
        }
        if self.max_p == Share::ZERO {
            return Err("RED's max_p of 0 % would never drop: \
                        give a share above zero, such as `10 %`"
                .to_owned());
        }
        super::check_average(self.weight, self.typical_packet)
    }
}

/// Probability one, in 2^-32.
const CERTAIN: u64 = 1 << 32;

pub(crate) struct Red {
    spec: RedSpec,
    /// `max_p`, in 2^-32.
    max_p: u64,
    average: Average,
    /// Packets passed since the last drop or mark, or since the average rose to `min`.
    count: u64,
    random: Random,
}

impl Red {
    pub(crate) fn new(spec: RedSpec, typical: Span, random: Random) -> Self {
        Red {
            spec,
            max_p: (spec.max_p.as_fraction() * CERTAIN as f64) as u64,
            average: Average::new(spec.weight, typical),
            count: 0,
            random,
        }
    }

    pub(crate) fn arrival(&mut self, now: Time, queued: u64, ecn: Ecn) -> AqmDecision {
        let average = self.average.arrival(now, queued);
        if average < self.spec.min.as_bytes() {
            self.count = 0;
            return AqmDecision::Pass;
        }
        if !self.strikes(self.probability(average)) {
            self.count += 1;
            return AqmDecision::Pass;
        }
        self.count = 0;
        if self.spec.ecn && ecn.is_capable() { AqmDecision::Mark } else { AqmDecision::Drop }
    }

    pub(crate) fn emptied(&mut self, now: Time) {
        self.average.emptied(now);
    }

    /// The paper's p_b, in 2^-32: the drop probability at this average, before spacing.
    fn probability(&self, average: u64) -> u64 {
        let (min, max) = (self.spec.min.as_bytes(), self.spec.max.as_bytes());
        if average < min {
            0
        } else if average < max {
            share_of(self.max_p, average - min, max - min)
        } else if self.spec.gentle && average - max < max {
            self.max_p + share_of(CERTAIN - self.max_p, average - max, max)
        } else {
            CERTAIN
        }
    }

    /// Decides with the paper's p_a = p_b / (1 - count p_b): the number of packets from one drop to
    /// the next is then uniform between 1 and 1 / p_b.
    fn strikes(&mut self, probability: u64) -> bool {
        let rest = CERTAIN.saturating_sub(self.count.saturating_mul(probability));
        if probability >= rest {
            return true;
        }
        u64::from(self.random.draw()) * rest < probability << 32
    }
}

fn share_of(whole: u64, part: u64, parts: u64) -> u64 {
    (u128::from(whole) * u128::from(part) / u128::from(parts)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn red(text: &str) -> Red {
        let spec: RedSpec = toml::from_str(text).unwrap();
        spec.check().unwrap();
        Red::new(spec, Span::from_micros(12), Random::new(7, 0))
    }

    /// Decisions of `arrivals` at a queue that always holds `queued` bytes.
    fn decisions(red: &mut Red, queued: u64, ecn: Ecn, arrivals: usize) -> Vec<AqmDecision> {
        (0..arrivals).map(|_| red.arrival(Time::ZERO, queued, ecn)).collect()
    }

    #[test]
    fn leaves_a_short_queue_alone_and_a_long_one_nothing() {
        let text = "min = '5 KB'\nmax = '15 KB'\nweight = '100 %'\ngentle = false";
        let mut red = red(text);
        let all = |decisions: Vec<AqmDecision>, wanted| decisions.iter().all(|v| *v == wanted);
        assert!(all(decisions(&mut red, 4999, Ecn::NotEct, 1000), AqmDecision::Pass));
        assert!(all(decisions(&mut red, 15_000, Ecn::NotEct, 1000), AqmDecision::Drop));
    }

    #[test]
    fn drops_are_spread_evenly_between_the_thresholds() {
        // Half way: p_b = 5 %, so the number of packets from drop to drop is uniform in 1..=20.
        let mut red = red("min = '5 KB'\nmax = '15 KB'\nweight = '100 %'\nmax_p = '10 %'");
        let decisions = decisions(&mut red, 10_000, Ecn::NotEct, 100_000);
        let drops: Vec<usize> =
            (0..decisions.len()).filter(|i| decisions[*i] == AqmDecision::Drop).collect();
        let gaps: Vec<usize> = drops.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<usize>() as f64 / gaps.len() as f64;
        assert!((10.0..11.0).contains(&mean), "{mean}");
        assert_eq!(gaps.iter().max(), Some(&20));
        assert_eq!(gaps.iter().min(), Some(&1));
    }

    #[test]
    fn the_gentle_slope_reaches_certainty_at_twice_max() {
        let red = red("min = '5 KB'\nmax = '15 KB'\nmax_p = '10 %'");
        let at = |average| red.probability(average) as f64 / CERTAIN as f64;
        assert_eq!(at(4_999), 0.0);
        for (average, wanted) in
            [(10_000, 0.05), (15_000, 0.1), (22_500, 0.55), (30_000, 1.0), (90_000, 1.0)]
        {
            assert!((at(average) - wanted).abs() < 1e-6, "{average}");
        }
    }

    #[test]
    fn marks_what_can_be_marked() {
        let text = "min = '5 KB'\nmax = '15 KB'\nweight = '100 %'\necn = true";
        assert_eq!(decisions(&mut red(text), 40_000, Ecn::Ect0, 1), [AqmDecision::Mark]);
        assert_eq!(decisions(&mut red(text), 40_000, Ecn::NotEct, 1), [AqmDecision::Drop]);
    }

    #[test]
    fn thresholds_in_the_wrong_order_are_refused() {
        let spec: RedSpec = toml::from_str("min = '15 KB'\nmax = '5 KB'").unwrap();
        let error = spec.check().unwrap_err();
        assert_eq!(error, "RED's min threshold (15 KB) must be below its max threshold (5 KB)");
    }
}
