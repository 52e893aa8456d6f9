use midspan_units::Share;
use serde::{Deserialize, Serialize};
use statrs::function::erf::erf;

use crate::observation::Arm;
use crate::sequence::Interval;
use crate::settings::Settings;
use crate::unit::{Finding, Guess, Known, Unit};

/// What is known of one unit's gain: the difference of the natural logarithms of completion times, above zero where
/// splitting is faster.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Of what.
    pub unit: Unit,
    /// The best guess: the unit's own mean, drawn towards what is around it the more the less there is; within
    /// `interval`.
    pub gain: f64,
    /// Where the gain is by the unit's own scores alone, at all times together but for [`Settings::error`]. Each bound
    /// holds of the mean gain over a span of time that ends now, which need not be the same for both.
    pub interval: Interval,
    /// The weight of its own scores. A subscriber's transfers in one slot weigh 1 where half are split, less where one
    /// arm is rare.
    pub weight: f64,
    /// Natural logarithm of the e-value against the hypothesis that splitting never harmed since the last change.
    pub log_evidence_of_harm: f64,
    /// The same against the hypothesis that it never helped.
    pub log_evidence_of_help: f64,
}

impl Estimate {
    pub(crate) fn new(unit: Unit, known: &Known, guess: Guess) -> Self {
        Estimate {
            unit,
            gain: guess.gain,
            interval: known.interval,
            weight: known.weight,
            log_evidence_of_harm: known.log_harm,
            log_evidence_of_help: known.log_help,
        }
    }
}

/// Why it was decided so.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// It was told to be so.
    Pinned(Arm),
    /// The lower bound of the gain is above the margin for harm.
    Fine(Estimate),
    /// The upper bound of the gain is below zero, and the evidence stands among as many units as there are.
    Harm(Estimate),
    /// Nothing is known for certain, neither of the place nor, as far as what is known of the place lets that speak for
    /// it, of what is around.
    Unknown(Estimate),
}

/// What to do with new transfers of a place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Split with so much probability, 0 to 1.
    pub split: f64,
    /// Why.
    pub reason: Reason,
    /// Whether what was seen lately, by two standard errors and without being certain, speaks against the reason, so
    /// that more is explored.
    pub is_doubted: bool,
}

/// What is known of a unit, and what follows from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged {
    pub(crate) estimate: Estimate,
    pub(crate) guess: Guess,
    pub(crate) recent: Guess,
    pub(crate) verdict: Finding,
}

impl Judged {
    /// Of a place of which nothing is known, in a unit of which this is.
    pub(crate) fn nothing(unit: Unit, around: Guess, settings: &Settings) -> Self {
        let known = Known::NOTHING;
        let guess = known.guess(Some(around), settings);
        let estimate = Estimate::new(unit, &known, guess);
        Judged { estimate, guess, recent: known.recent, verdict: Finding::Unknown }
    }
}

/// The share of the other arm while a decision is doubted.
const DOUBTED: f64 = 0.25;

impl Decision {
    /// The arm for a uniformly random number: to be drawn once for each subscriber and slot.
    pub fn arm(&self, draw: u32) -> Arm {
        if Share::from_fraction(self.split).takes(draw) { Arm::Split } else { Arm::Unsplit }
    }

    /// The probability with which it gave this arm, as an [`Observation`](crate::Observation) wants it.
    pub fn probability(&self, arm: Arm) -> f64 {
        match arm {
            Arm::Split => self.split,
            Arm::Unsplit => 1.0 - self.split,
        }
    }

    pub(crate) fn pinned(arm: Arm) -> Self {
        let split = match arm {
            Arm::Split => 1.0,
            Arm::Unsplit => 0.0,
        };
        Decision { split, reason: Reason::Pinned(arm), is_doubted: false }
    }

    /// For what is known of a place and of what is around it, the closest first.
    ///
    /// The first unit that is certain decides, if it may speak for those closer: their intervals must meet its own, and
    /// what it says must be possible for them.
    pub(crate) fn of(around: &[Judged], settings: &Settings) -> Self {
        let own = &around[0];
        let speaking = around.iter().position(|unit| unit.verdict != Finding::Unknown);
        let spoken_for = speaking.filter(|&at| {
            around[at].verdict != Finding::Recovering
                && around[..at]
                    .iter()
                    .all(|closer| may_speak(&around[at], &closer.estimate, settings))
        });
        let Some(at) = spoken_for else {
            let reason = Reason::Unknown(own.estimate);
            return Decision { split: exploring(own.guess), reason, is_doubted: false };
        };
        let Judged { estimate, verdict, .. } = around[at];
        let is_doubted = around[..=at].iter().any(|unit| match verdict {
            Finding::Unknown | Finding::Recovering => false,
            Finding::Fine => unit.recent.upper() < -settings.margin,
            Finding::Harm => unit.recent.lower() > estimate.gain,
        });
        let most = if is_doubted { DOUBTED } else { 0.0 };
        if verdict == Finding::Harm {
            let split = settings.explore.max(most);
            return Decision { split, reason: Reason::Harm(estimate), is_doubted };
        }
        let Settings { holdout, learning, pool_weight, .. } = *settings;
        let learned =
            if at == 0 { 1.0 } else { own.estimate.weight / (pool_weight + own.estimate.weight) };
        let share = learning + (holdout - learning) * learned;
        Decision { split: 1.0 - share.max(most), reason: Reason::Fine(estimate), is_doubted }
    }
}

/// Whether what is certain of a unit may be held of a closer one, which is not certain itself.
fn may_speak(unit: &Judged, closer: &Estimate, settings: &Settings) -> bool {
    let is_possible = match unit.verdict {
        Finding::Unknown | Finding::Recovering => false,
        Finding::Fine => closer.interval.upper > -settings.margin,
        Finding::Harm => closer.interval.lower < 0.0,
    };
    is_possible && closer.interval.and(unit.estimate.interval).is_some()
}

/// Near one half, and as far towards one arm as it is likely to be the better one.
fn exploring(guess: Guess) -> f64 {
    let deviations = guess.gain / guess.error;
    let likely = 0.5 + 0.5 * erf(deviations / std::f64::consts::SQRT_2);
    likely.clamp(0.25, 0.75)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Id, Place};

    const PLACE: Place = Place { group: Id(1), service: Id(2), prefix: Id(3) };

    /// What is known of a place and of what is around it, by bounds; what looked otherwise of late by a mean.
    fn decision(units: [(f64, f64, Finding); 4], recent: Option<f64>) -> Decision {
        let judged = |(unit, (lower, upper, verdict)): (Unit, (f64, f64, Finding))| {
            let gain = (lower + upper) / 2.0;
            let known =
                Known { interval: Interval { lower, upper }, weight: 200.0, ..Known::NOTHING };
            let guess = Guess { gain, error: 0.1 };
            let recent = Guess { gain: recent.unwrap_or(gain), error: 0.1 };
            Judged { estimate: Estimate::new(unit, &known, guess), guess, recent, verdict }
        };
        let mut units = Unit::around(PLACE).into_iter().zip(units);
        Decision::of(
            &std::array::from_fn::<_, 4, _>(|_| judged(units.next().unwrap())),
            &Settings::default(),
        )
    }

    const OPEN: (f64, f64, Finding) = (-0.5, 0.5, Finding::Unknown);
    const FINE: (f64, f64, Finding) = (0.05, 0.15, Finding::Fine);
    const HARM: (f64, f64, Finding) = (-0.9, -0.5, Finding::Harm);

    #[test]
    fn what_is_certain_of_a_place_decides_it() {
        let fine = decision([FINE, HARM, HARM, HARM], None);
        assert!((fine.split - 0.95).abs() < 1e-12);
        assert!(matches!(fine.reason, Reason::Fine(Estimate { unit: Unit::Place(PLACE), .. })));
        let harm = decision([HARM, FINE, FINE, FINE], None);
        assert_eq!(harm.split, 0.05);
        assert!(matches!(harm.reason, Reason::Harm(Estimate { unit: Unit::Place(PLACE), .. })));
    }

    #[test]
    fn a_place_of_which_little_is_known_follows_what_is_around_it() {
        let fine = decision([OPEN, OPEN, OPEN, FINE], None);
        // Half way from 15 to 5 % with as much of its own as what is around is worth.
        assert!((fine.split - 0.9).abs() < 1e-12);
        assert!(matches!(fine.reason, Reason::Fine(Estimate { unit: Unit::All, .. })));
        let harm = decision(
            [OPEN, (-0.5, 0.4, Finding::Unknown), (-0.9, -0.4, Finding::Harm), FINE],
            Some(-0.6),
        );
        assert_eq!(harm.split, 0.05);
        assert!(matches!(harm.reason, Reason::Harm(Estimate { unit: Unit::Prefix(Id(3)), .. })));
    }

    #[test]
    fn nothing_is_claimed_that_a_closer_units_scores_exclude() {
        for closer in [
            // Apart from what is around.
            (-0.5, 0.04, Finding::Unknown),
            (0.16, 0.5, Finding::Unknown),
            // Not certain among many, but not fine.
            (-0.5, -0.04, Finding::Unknown),
            // Was harmed.
            (-0.5, 0.5, Finding::Recovering),
        ] {
            let place = decision([closer, FINE, FINE, FINE], None);
            assert!(matches!(place.reason, Reason::Unknown(_)), "{closer:?}");
            let service = decision([OPEN, closer, FINE, FINE], None);
            assert!(matches!(service.reason, Reason::Unknown(_)), "{closer:?}");
            assert!(0.25 <= service.split && service.split <= 0.75);
        }
        let apart = decision([(-0.4, 0.5, Finding::Unknown), HARM, HARM, HARM], None);
        assert!(matches!(apart.reason, Reason::Unknown(_)));
    }

    #[test]
    fn what_looks_otherwise_of_late_is_looked_at_more() {
        let fine = decision([FINE; 4], Some(-0.24));
        assert!(fine.is_doubted && (fine.split - 0.75).abs() < 1e-12);
        assert!(!decision([FINE; 4], Some(-0.22)).is_doubted);
        let harm = decision([HARM; 4], Some(-0.4));
        assert!(harm.is_doubted && (harm.split - 0.25).abs() < 1e-12);
        assert!(!decision([HARM; 4], Some(-0.6)).is_doubted);
    }

    #[test]
    fn an_arm_has_the_probability_with_which_it_is_drawn() {
        let decision = decision([FINE; 4], None);
        let draws = (0..1000u32).map(|at| decision.arm(at * (u32::MAX / 1000)));
        assert_eq!(draws.filter(|&arm| arm == Arm::Split).count(), 951);
        assert_eq!(decision.probability(Arm::Split) + decision.probability(Arm::Unsplit), 1.0);
    }
}
