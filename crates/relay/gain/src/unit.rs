use serde::{Deserialize, Serialize};

use crate::mixture::Mixture;
use crate::observation::{Id, Place, SizeClass};
use crate::score;
use crate::sequence::{Interval, Sequence};
use crate::settings::Settings;
use crate::windows::{AdaptiveWindows, Window};

/// What gains are estimated of, from all there is to one group's transfers with one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// All transfers.
    All,
    /// Those with the services of one prefix.
    Prefix(Id),
    /// Those with one service, of all groups.
    Service {
        /// The service.
        service: Id,
        /// Its prefix.
        prefix: Id,
    },
    /// Those of one group with one service.
    Place(Place),
}

/// How many levels there are.
pub(crate) const LEVELS: usize = 4;

impl Unit {
    /// The units in which a transfer counts, the closest first.
    pub const fn around(place: Place) -> [Unit; LEVELS] {
        let Place { service, prefix, .. } = place;
        [Unit::Place(place), Unit::Service { service, prefix }, Unit::Prefix(prefix), Unit::All]
    }

    /// The unit that contains it.
    pub const fn parent(self) -> Option<Unit> {
        match self {
            Unit::All => None,
            Unit::Prefix(_) => Some(Unit::All),
            Unit::Service { prefix, .. } => Some(Unit::Prefix(prefix)),
            Unit::Place(Place { service, prefix, .. }) => Some(Unit::Service { service, prefix }),
        }
    }

    /// Units of one level are judged together.
    pub(crate) const fn level(self) -> usize {
        match self {
            Unit::All => 0,
            Unit::Prefix(_) => 1,
            Unit::Service { .. } => 2,
            Unit::Place(_) => 3,
        }
    }
}

/// What the scores of one unit, and of no other, say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Finding {
    /// Neither of these.
    #[default]
    Unknown,
    /// Splitting was held to harm and is not any more. What is around is no witness until the unit's own scores look
    /// fine.
    Recovering,
    /// Splitting harms less than the margin, if at all.
    Fine,
    /// Splitting harms, also among as many units as there are.
    Harm,
}

/// Mean of scores and of residuals of one cluster in one slot, or of one size class of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum {
    pub(crate) count: u32,
    pub(crate) value: f64,
    pub(crate) weight: f64,
}

impl Sum {
    pub(crate) fn add(&mut self, other: Sum) {
        self.count += other.count;
        self.value += other.value;
        self.weight += other.weight;
    }

    /// The one score of a cluster: the mean of value and of weight. None of nothing.
    pub(crate) fn mean(&self) -> Option<(f64, f64)> {
        let count = f64::from(self.count);
        // Rounding must not take it out of range.
        let bound = |value: f64| value.clamp(-score::BOUND, score::BOUND);
        (self.count > 0).then(|| (bound(self.value / count), (self.weight / count).min(1.0)))
    }
}

/// Past residuals: by how much transfers of one unit are slower than others like them, split or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Baseline {
    count: f64,
    sum: f64,
}

impl Baseline {
    /// Transfers that what is around a unit is worth.
    const AROUND: f64 = 10.0;
    /// Transfers after which half is forgotten.
    const MANY: f64 = 10_000.0;

    pub(crate) fn add(&mut self, count: u32, slower: f64) {
        self.count += f64::from(count);
        self.sum += slower;
        if self.count > Self::MANY {
            self.count /= 2.0;
            self.sum /= 2.0;
        }
    }

    /// How much slower, if what is around is slower by so much.
    pub(crate) fn slower(&self, around: f64) -> f64 {
        (self.sum + Self::AROUND * around) / (self.count + Self::AROUND)
    }
}

/// What is remembered of one unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) unit: Unit,
    pub(crate) verdict: Finding,
    /// How often its gain was found to have changed.
    pub(crate) changes: u32,
    /// The slot of its last transfer.
    pub(crate) last_slot: u64,
    pub(crate) baseline: Baseline,
    pub(crate) windows: AdaptiveWindows,
    pub(crate) classes: [Window; SizeClass::ALL.len()],
}

/// The weight of scores of one size class after which they are begun anew.
const CLASS_LENGTH: f64 = 32_000.0;

impl Record {
    pub(crate) fn new(unit: Unit) -> Self {
        Record {
            unit,
            verdict: Finding::default(),
            changes: 0,
            last_slot: 0,
            baseline: Baseline::default(),
            windows: AdaptiveWindows::default(),
            classes: [Window::new(1, 1.0); SizeClass::ALL.len()],
        }
    }

    /// Takes the score of one cluster in one slot.
    pub(crate) fn add(&mut self, all: &Sum, classes: &[Sum; SizeClass::ALL.len()], slot: u64) {
        self.last_slot = slot;
        if let Some((value, weight)) = all.mean() {
            self.windows.add(value, weight);
        }
        for (window, sum) in self.classes.iter_mut().zip(classes) {
            if let Some((value, weight)) = sum.mean() {
                if window.sequence.weight() >= CLASS_LENGTH {
                    *window = window.next(1.0);
                }
                let taken = window.sequence.add(value, weight, score::BOUND);
                debug_assert!(taken.is_ok(), "{taken:?}");
            }
        }
    }

    /// Sees to changes, and says what is known now.
    pub(crate) fn settle(&mut self, mixture: &Mixture, error: f64) -> Known {
        let (interval, has_changed) = self.windows.settle(mixture, error);
        if has_changed {
            self.changes = self.changes.saturating_add(1);
            self.classes = self.classes.map(|window| window.next(1.0));
        }
        let longest = self.windows.longest();
        let recent = self.windows.recent();
        Known {
            interval,
            mean: longest.mean() * score::SCALE,
            weight: longest.weight(),
            squares: longest.squares() * score::SCALE * score::SCALE,
            recent: Guess::of(recent),
            since: Guess::of(longest),
            log_harm: self.windows.log_evidence_of_harm(mixture),
            log_help: self.windows.log_evidence_of_help(mixture),
        }
    }

    /// Begins anew, for what is around has changed.
    pub(crate) fn restart(&mut self) {
        self.windows.restart();
        self.classes = self.classes.map(|window| window.next(1.0));
        self.verdict = Finding::Unknown;
    }

    pub(crate) fn is_sane(&self) -> bool {
        let Baseline { count, sum } = self.baseline;
        count >= 0.0
            && count.is_finite()
            && sum.is_finite()
            && self.windows.is_sane()
            && self.classes.iter().all(Window::is_sane)
    }
}

/// What follows from a [`Record`], worked out once a slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Known {
    pub(crate) interval: Interval,
    /// Of its own scores.
    pub(crate) mean: f64,
    pub(crate) weight: f64,
    pub(crate) squares: f64,
    /// Of its own scores of late.
    pub(crate) recent: Guess,
    /// Of its own scores since the last change.
    pub(crate) since: Guess,
    pub(crate) log_harm: f64,
    pub(crate) log_help: f64,
}

/// The best guess of a unit's gain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Guess {
    pub(crate) gain: f64,
    /// Standard error, without any guarantee.
    pub(crate) error: f64,
}

impl Guess {
    const NOTHING: Guess = Guess { gain: 0.0, error: f64::INFINITY };

    fn of(sequence: &Sequence) -> Self {
        if sequence.weight() <= 0.0 {
            return Guess::NOTHING;
        }
        Guess {
            gain: sequence.mean() * score::SCALE,
            error: sequence.squares().sqrt() * score::SCALE / sequence.weight(),
        }
    }

    /// Two standard errors less.
    pub(crate) fn lower(&self) -> f64 {
        self.gain - 2.0 * self.error
    }

    /// Two standard errors more.
    pub(crate) fn upper(&self) -> f64 {
        self.gain + 2.0 * self.error
    }
}

/// How much one transfer scatters, half of them split: twice a standard deviation of 1.2 of logarithms of completion
/// times.
const USUAL_SCATTER: f64 = 2.4;

impl Known {
    /// Of no scores.
    pub(crate) const NOTHING: Known = Known {
        interval: Interval::within(score::MOST_GAIN),
        mean: 0.0,
        weight: 0.0,
        squares: 0.0,
        recent: Guess::NOTHING,
        since: Guess::NOTHING,
        log_harm: 0.0,
        log_help: 0.0,
    };

    /// The mean of its own scores, drawn towards what is guessed of what is around; never outside of its own interval.
    pub(crate) fn guess(&self, around: Option<Guess>, settings: &Settings) -> Guess {
        let (gain, error, worth) = match around {
            Some(around) => (around.gain, around.error, settings.pool_weight),
            None => (settings.prior_gain, 0.0, settings.prior_weight),
        };
        let weight = self.weight + worth;
        let drawn = (self.weight * self.mean + worth * gain) / weight;
        // How far a unit is from what is around it, and how little is known of that.
        let apart = worth * USUAL_SCATTER * USUAL_SCATTER + worth * worth * error * error;
        let scatter = self.squares + apart;
        Guess {
            gain: drawn.clamp(self.interval.lower, self.interval.upper),
            error: scatter.sqrt() / weight,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_kept_of_a_unit() {
        assert_eq!(size_of::<Window>(), 48);
        assert!(size_of::<(Record, Known)>() <= 800, "{}", size_of::<(Record, Known)>());
    }

    #[test]
    fn a_guess_lies_between_what_is_seen_and_what_is_around() {
        let settings = Settings::default();
        let around = Some(Guess { gain: 0.2, error: 0.01 });
        let known = |weight, mean, lower, upper| {
            let interval = Interval { lower, upper };
            Known { interval, mean, weight, squares: weight * 5.76, ..Known::NOTHING }
        };
        assert!((Known::NOTHING.guess(around, &settings).gain - 0.2).abs() < 1e-12);
        assert!((Known::NOTHING.guess(None, &settings).gain - settings.prior_gain).abs() < 1e-12);
        // As much of its own as what is around is worth.
        let half = known(200.0, -0.2, -0.6, 0.2).guess(around, &settings);
        assert!(half.gain.abs() < 1e-12);
        let more = known(20_000.0, -0.2, -0.6, 0.2).guess(around, &settings);
        assert!((more.gain + 0.2).abs() < 0.01 && more.error < half.error);
        // Its own scores exclude what is in between.
        assert_eq!(known(200.0, -0.2, -0.3, -0.1).guess(around, &settings).gain, -0.1);
    }

    #[test]
    fn a_baseline_begins_with_what_is_around() {
        let mut baseline = Baseline::default();
        assert_eq!(baseline.slower(0.7), 0.7);
        baseline.add(10, -3.0);
        assert!((baseline.slower(0.7) - 0.2).abs() < 1e-12);
        (0..1000).for_each(|_| baseline.add(100, 50.0));
        assert!((baseline.slower(0.7) - 0.5).abs() < 0.01 && baseline.count <= Baseline::MANY);
    }
}
