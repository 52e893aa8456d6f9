//! The choice among candidates, and what is to be expected of it.

use midspan_gain::Settings;
use serde::Serialize;

use crate::candidate::Candidate;
use crate::estimate::{Gain, mean};
use crate::plan::Plan;

/// What to do, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// What to do.
    pub verdict: Recommendation,
    /// The best of all candidates, which is to be had if the verdict is to split.
    pub best: Candidate,
    /// How much faster flows are with it, all sizes together (geometric mean).
    pub gain: Gain,
    /// The same for each flow, by seeds by which it was not chosen.
    pub expected: Vec<Expected>,
    /// All candidates, by the seeds by which the best was chosen.
    pub compared: Vec<Compared>,
}

/// Whether to split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recommendation {
    /// Flows get faster by it, and none slower.
    Split,
    /// Some flows get slower by it.
    Harms,
    /// It makes no difference worth a relay.
    NoGain,
    /// Chance on this path is too large for so few seeds.
    Unclear,
}

/// What is to be expected of flows of a kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Expected {
    /// Their size, or how long they send.
    pub flow: String,
    /// Speed without a relay, bit/s (geometric mean over seeds).
    pub without_bps: f64,
    /// The same with it.
    pub with_bps: f64,
    /// How many times that is.
    pub gain: Gain,
}

/// What a candidate came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// Which.
    pub candidate: Candidate,
    /// Its gain for each flow.
    pub gains: Vec<f64>,
}

/// Less is no difference: what the relay's own decisions hold for harmless, too.
fn margin() -> f64 {
    Settings::default().margin
}

impl Plan {
    /// The best candidate by the runs of [`Plan::choosing`]: of those that slow down no flow, else of all, the one that makes flows
    /// fastest. One that is earlier, and no worse than by the margin, is preferred.
    pub fn choose(&self) -> usize {
        let logs: Vec<Vec<f64>> =
            (0..self.candidates.len()).map(|candidate| self.logs(candidate)).collect();
        let is_harmless = |logs: &[f64]| logs.iter().all(|log| *log > -margin());
        let any_harmless = logs.iter().any(|logs| is_harmless(logs));
        let mut best: Option<(usize, f64)> = None;
        for (candidate, logs) in logs.iter().enumerate() {
            if any_harmless && !is_harmless(logs) {
                continue;
            }
            let score = mean(logs.iter().copied());
            if best.is_none_or(|(_, most)| score > most + margin()) {
                best = Some((candidate, score));
            }
        }
        best.map_or(0, |(candidate, _)| candidate)
    }

    /// The gain of a candidate in each flow, as a logarithm, by the seeds to choose by.
    fn logs(&self, candidate: usize) -> Vec<f64> {
        let log = |flow| mean(self.with(flow, candidate, true)) - mean(self.without(flow, true));
        (0..self.flows.len()).map(log).collect()
    }

    /// What is to be done, once the runs of [`Plan::expecting`] are made as well. None if some are missing.
    pub fn advise(&self, chosen: usize) -> Option<Advice> {
        let expected: Option<Vec<Expected>> = self
            .flows
            .iter()
            .enumerate()
            .map(|(flow, label)| {
                let (with, without) = (self.with(flow, chosen, false), self.without(flow, false));
                Some(Expected {
                    flow: label.clone(),
                    gain: Gain::between(&with, &without)?,
                    without_bps: mean(without).exp(),
                    with_bps: mean(with).exp(),
                })
            })
            .collect();
        let expected = expected?;
        let gain = Gain::between(&self.with_overall(chosen), &self.without_overall())?;
        let compared = self.candidates.iter().enumerate().map(|(index, candidate)| Compared {
            candidate: candidate.clone(),
            gains: self.logs(index).into_iter().map(f64::exp).collect(),
        });
        Some(Advice {
            verdict: recommend(&gain, &expected),
            best: self.candidates[chosen].clone(),
            gain,
            compared: compared.collect(),
            expected,
        })
    }
}

fn recommend(gain: &Gain, expected: &[Expected]) -> Recommendation {
    let (least, most) = ((-margin()).exp(), margin().exp());
    let harms = |one: &Expected| one.gain.is_below(1.0) && one.gain.mean < least;
    let may_harm = |one: &Expected| one.gain.mean < least;
    if expected.iter().any(harms) || gain.is_below(least) {
        return Recommendation::Harms;
    }
    if expected.iter().any(may_harm) {
        return Recommendation::Unclear;
    }
    match gain.mean > most {
        true if gain.is_above(1.0) => Recommendation::Split,
        true => Recommendation::Unclear,
        false => Recommendation::NoGain,
    }
}

#[cfg(test)]
mod tests {
    use midspan_scenario::record::Variant;

    use super::*;
    use crate::plan::tests::run;

    /// A little chance.
    fn wobble(repetition: u32) -> f64 {
        1.0 + f64::from(repetition % 3) / 100.0
    }

    #[test]
    fn the_fastest_is_chosen_and_its_gain_is_of_other_seeds() {
        let (plan, chosen) = run(&[100_000, 1_000_000], |_, candidate, variant, repetition| {
            let fast = candidate.control == "cubic" && candidate.place.as_nanos() < 3_000_000;
            let gain = match variant {
                Variant::Midspan if fast && repetition < 4 => 3.0,
                Variant::Midspan if fast => 2.0,
                _ => 1.0,
            };
            1e6 * gain * wobble(repetition)
        });
        let advice = plan.advise(chosen).unwrap();
        assert_eq!(advice.verdict, Recommendation::Split);
        assert_eq!(advice.best.to_string(), "2.5 ms, cubic, 1 MiB");
        assert!((advice.gain.mean - 2.0).abs() < 0.05, "{:?}", advice.gain);
        assert!(advice.gain.is_above(1.9) && advice.gain.is_below(2.1));
        let compared: Vec<f64> = advice.compared[chosen].gains.clone();
        assert!(compared.iter().all(|gain| (gain - 3.0).abs() < 0.05), "{compared:?}");
        assert_eq!((advice.expected.len(), advice.compared.len()), (2, 12));
    }

    #[test]
    fn what_a_relay_has_by_itself_is_kept_among_equals() {
        let (plan, chosen) = run(&[1], |_, candidate, variant, repetition| {
            let closer = candidate.buffer.as_bytes() as f64 / 1e10;
            let gain = if variant == Variant::Midspan { 1.5 + closer } else { 1.0 };
            1e6 * gain * wobble(repetition)
        });
        assert_eq!(chosen, 0);
        assert_eq!(plan.advise(chosen).unwrap().verdict, Recommendation::Split);
    }

    #[test]
    fn one_that_slows_some_flows_down_is_not_taken() {
        let harms = |also_others: bool| {
            run(&[100_000, 1_000_000], move |flow, candidate, variant, repetition| {
                let far = candidate.place.as_nanos() > 20_000_000;
                let gain = match (variant, flow) {
                    (Variant::None, _) => 1.0,
                    (_, 0) if far || also_others => 0.8,
                    (_, 0) => 1.1,
                    (_, _) if far => 9.0,
                    _ => 2.0,
                };
                1e6 * gain * wobble(repetition)
            })
        };
        let (plan, chosen) = harms(false);
        let advice = plan.advise(chosen).unwrap();
        assert_eq!((chosen, advice.verdict), (0, Recommendation::Split));
        let (plan, chosen) = harms(true);
        assert_eq!(plan.advise(chosen).unwrap().verdict, Recommendation::Harms);
    }

    #[test]
    fn no_difference_and_mere_chance_are_told_apart() {
        let (plan, chosen) = run(&[1], |_, _, _, repetition| 1e6 * wobble(repetition));
        assert_eq!(plan.advise(chosen).unwrap().verdict, Recommendation::NoGain);
        let (plan, chosen) = run(&[1], |_, _, variant, repetition| {
            let lucky = variant == Variant::Midspan && repetition % 4 == 0;
            1e6 * if lucky { 100.0 } else { 1.0 }
        });
        assert_eq!(plan.advise(chosen).unwrap().verdict, Recommendation::Unclear);
    }

    #[test]
    fn without_its_runs_there_is_no_advice() {
        let (plan, chosen) = run(&[1], |_, _, _, _| 1e6);
        assert!(plan.advise(chosen).is_some());
        let other = (chosen + 1) % 12;
        assert_eq!(plan.advise(other), None);
    }
}
