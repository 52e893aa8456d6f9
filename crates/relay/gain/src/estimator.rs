use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::decision::{Decision, Estimate, Judged};
use crate::evidence::discoveries;
use crate::mixture::Mixture;
use crate::observation::{Arm, Id, Observation, Place, Refused, SizeClass};
use crate::regression::{Features, Fit, Moments};
use crate::score::{self, Score};
use crate::sequence::Interval;
use crate::settings::{Settings, SettingsError};
use crate::unit::{Finding, Guess, Known, LEVELS, Record, Sum, Unit};

const CLASSES: usize = SizeClass::ALL.len();

/// Most slots that are open at one time.
const MAX_OPEN: usize = 1_000;

/// What became of an [`Observation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It will count once its slot is closed.
    Counted,
    /// So few of its size were seen that it only helps to predict others.
    Learned,
    /// Its slot is closed.
    Late,
    /// As many are open as [`Settings::max_clusters`], or a thousand slots.
    Full,
}

/// How many transfers were told of, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// [`Taken::Counted`].
    pub counted: u64,
    /// [`Taken::Learned`].
    pub learned: u64,
    /// [`Taken::Late`].
    pub late: u64,
    /// [`Taken::Full`].
    pub full: u64,
    /// No transfer can have been like that.
    pub refused: u64,
    /// Scores that counted only for what is around, for want of [`Settings::max_units`].
    pub without_unit: u64,
}

/// Estimates from finished transfers what splitting gains, and decides what to do with new ones.
///
/// ```
/// use midspan_gain::{Estimator, Id, Observation, Place, Settings};
///
/// let mut estimator = Estimator::new(Settings { prior_gain: 0.05, ..Settings::default() })?;
/// let place = Place { group: Id(1), service: Id(0xc000_0200), prefix: Id(0xc000_0000) };
/// // A subscriber's first connection of a slot: half are split, a little more for what is expected.
/// let decision = estimator.decision(place);
/// assert!(0.5 < decision.split && decision.split < 0.6);
/// let arm = decision.arm(3_000_000_000);
/// // It ended.
/// estimator.observe(&Observation {
///     place,
///     subscriber: Id(7),
///     slot: 40,
///     arm,
///     probability: decision.probability(arm),
///     bytes: 120_000,
///     connect_rtt: 0.031,
///     completion: 0.4,
/// })?;
/// // Some time after the slot.
/// estimator.close(40);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Tell it of every transfer that ends ([`observe`](Estimator::observe)) and of the end of every slot
/// ([`close`](Estimator::close)), and ask what to do with new ones ([`decision`](Estimator::decision)). What it answers
/// changes when a slot is closed and at no other time.
#[derive(Debug, Clone)]
pub struct Estimator {
    pub(crate) settings: Settings,
    mixture: Mixture,
    pub(crate) moments: [Moments; CLASSES],
    pub(crate) units: BTreeMap<Unit, (Record, Known)>,
    pub(crate) pins: BTreeMap<Unit, Arm>,
    pub(crate) closed: Option<u64>,
    pub(crate) counts: Counts,
    open: BTreeMap<u64, Slot>,
    clusters: usize,
}

/// What is known of a slot that is not closed.
#[derive(Debug, Clone)]
struct Slot {
    /// By what its transfers are predicted: fixed before any of them is told of.
    fits: [Option<Fit>; CLASSES],
    /// What its transfers teach for later slots.
    moments: [Moments; CLASSES],
    clusters: BTreeMap<(Place, Id), Cluster>,
}

/// The transfers of one subscriber with one place in one slot.
#[derive(Debug, Clone, Copy, Default)]
struct Cluster {
    /// Fixed with the first of them.
    baseline: f64,
    residuals: f64,
    all: Sum,
    classes: [Sum; CLASSES],
}

impl Estimator {
    /// Knows nothing yet.
    ///
    /// # Errors
    /// When a setting is outside its range.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Estimator {
            settings,
            mixture: Mixture::tuned(score::USUAL_SQUARES, settings.error / 2.0),
            moments: Default::default(),
            units: BTreeMap::new(),
            pins: BTreeMap::new(),
            closed: None,
            counts: Counts::default(),
            open: BTreeMap::new(),
            clusters: 0,
        })
    }

    /// Takes one transfer that has ended.
    ///
    /// # Errors
    /// When no such transfer can have been; it is counted as refused.
    pub fn observe(&mut self, observation: &Observation) -> Result<Taken, Refused> {
        observation.check().inspect_err(|_| self.counts.refused += 1)?;
        let taken = self.take(observation);
        let count = match taken {
            Taken::Counted => &mut self.counts.counted,
            Taken::Learned => &mut self.counts.learned,
            Taken::Late => &mut self.counts.late,
            Taken::Full => &mut self.counts.full,
        };
        *count += 1;
        Ok(taken)
    }

    fn take(&mut self, observation: &Observation) -> Taken {
        if self.closed.is_some_and(|closed| observation.slot <= closed) {
            return Taken::Late;
        }
        let key = (observation.place, observation.subscriber);
        let is_known = |slot: &Slot| slot.clusters.contains_key(&key);
        let open = self.open.get(&observation.slot);
        let is_too_many = match open {
            Some(slot) => !is_known(slot) && self.clusters >= self.settings.max_clusters,
            None => self.open.len() >= MAX_OPEN || self.clusters >= self.settings.max_clusters,
        };
        if is_too_many {
            return Taken::Full;
        }
        let baseline = self.baseline(observation.place);
        let moments = &self.moments;
        let slot = self.open.entry(observation.slot).or_insert_with(|| Slot {
            fits: std::array::from_fn(|class| moments[class].fit()),
            moments: Default::default(),
            clusters: BTreeMap::new(),
        });
        let class = observation.class().index();
        let features = Features::of(observation);
        slot.moments[class]
            .add(&features, outcome(observation, &features, slot.fits[class].as_ref()));
        let Some(fit) = slot.fits[class] else { return Taken::Learned };
        let cluster = slot.clusters.entry(key).or_insert_with(|| {
            self.clusters += 1;
            Cluster { baseline, ..Cluster::default() }
        });
        let score = Score::of(observation, &features, &fit, cluster.baseline);
        let sum = Sum { count: 1, value: score.value, weight: score.weight };
        cluster.all.add(sum);
        cluster.classes[class].add(sum);
        cluster.residuals += score.residual;
        Taken::Counted
    }

    /// Closes all slots up to and with this one: what is told of them from now on is late. To be called so long after a
    /// slot's end that few of its transfers still run.
    pub fn close(&mut self, through: u64) {
        let through = self.closed.map_or(through, |closed| closed.max(through));
        while let Some((number, slot)) = self.open.pop_first() {
            if number > through {
                self.open.insert(number, slot);
                break;
            }
            self.clusters -= slot.clusters.len();
            self.count(number, &slot);
        }
        self.closed = Some(through);
        self.judge();
    }

    /// Lets every unit have the scores of a slot, in an order that has nothing to do with what came out.
    fn count(&mut self, number: u64, slot: &Slot) {
        for (moments, new) in self.moments.iter_mut().zip(&slot.moments) {
            moments.merge(new);
        }
        let mut by_unit = BTreeMap::<(Unit, Id), Cluster>::new();
        for (&(place, subscriber), cluster) in &slot.clusters {
            for unit in Unit::around(place) {
                let sum = by_unit.entry((unit, subscriber)).or_default();
                sum.all.add(cluster.all);
                sum.classes
                    .iter_mut()
                    .zip(&cluster.classes)
                    .for_each(|(sum, class)| sum.add(*class));
                sum.residuals +=
                    cluster.residuals + cluster.baseline * f64::from(cluster.all.count);
            }
        }
        for ((unit, _), cluster) in by_unit {
            if !self.units.contains_key(&unit) && self.units.len() >= self.settings.max_units {
                self.counts.without_unit += 1;
                continue;
            }
            let new = || (Record::new(unit), Known::NOTHING);
            let (record, _) = self.units.entry(unit).or_insert_with(new);
            record.add(&cluster.all, &cluster.classes, number);
            record.baseline.add(cluster.all.count, cluster.residuals);
        }
        self.settle_slot(number);
    }

    /// Sees to changes in what was seen of in a slot. The gain of a service changes for all groups, most of which have
    /// too little of their own to notice.
    fn settle_slot(&mut self, number: u64) {
        let (mixture, error) = (self.mixture, self.settings.error);
        let mut changed = BTreeSet::new();
        for (record, known) in self.units.values_mut() {
            let Record { unit, changes, .. } = *record;
            if unit.parent().is_some_and(|parent| changed.contains(&parent)) {
                record.restart();
                *known = record.settle(&mixture, error);
            } else if record.last_slot == number {
                *known = record.settle(&mixture, error);
            }
            if matches!(unit, Unit::Service { .. }) && record.changes > changes {
                changed.insert(unit);
            }
        }
    }

    /// Finds what is certain of each unit, harm among all units of its level.
    fn judge(&mut self) {
        let Settings { error, margin, .. } = self.settings;
        for level in 0..LEVELS {
            let mut units: Vec<_> = self
                .units
                .values_mut()
                .filter(|(record, _)| record.unit.level() == level)
                .collect();
            let evidence: Vec<f64> = units.iter().map(|(_, known)| known.log_harm).collect();
            for (unit, is_found) in units.iter_mut().zip(discoveries(&evidence, error)) {
                let (record, known) = &mut **unit;
                let was_found = record.verdict == Finding::Harm;
                let was_harmed = was_found || record.verdict == Finding::Recovering;
                record.verdict = if known.interval.lower > -margin {
                    Finding::Fine
                } else if known.interval.upper < 0.0 && (is_found || was_found) {
                    Finding::Harm
                } else if was_harmed && known.since.lower() <= -margin {
                    Finding::Recovering
                } else {
                    Finding::Unknown
                };
            }
        }
    }

    /// What to do with new transfers of a place. To be asked once for a subscriber and slot, and kept for what the
    /// subscriber begins there in that slot.
    pub fn decision(&self, place: Place) -> Decision {
        self.decision_within(Unit::Place(place))
    }

    /// What to do with new transfers of a unit's places of which nothing is known themselves.
    pub fn decision_within(&self, unit: Unit) -> Decision {
        let own = std::iter::successors(Some(unit), |unit| unit.parent());
        let own: Vec<Unit> = own.collect();
        if let Some(&arm) = own.iter().find_map(|unit| self.pins.get(unit)) {
            return Decision::pinned(arm);
        }
        let mut around = Vec::with_capacity(LEVELS);
        for &unit in own.iter().rev() {
            let guess = around.last().map(|judged: &Judged| judged.guess);
            around.push(self.known(unit, guess));
        }
        while around.len() < LEVELS {
            let guess = around[around.len() - 1].guess;
            around.push(Judged::nothing(unit, guess, &self.settings));
        }
        around.reverse();
        Decision::of(&around, &self.settings)
    }

    /// All units of which anything is known, from all to single places, each with its
    /// [decision](Estimator::decision_within).
    pub fn decisions(&self) -> impl Iterator<Item = (Unit, Decision)> {
        let all = (!self.units.contains_key(&Unit::All)).then_some(Unit::All);
        let units = all.into_iter().chain(self.units.keys().copied());
        units.map(|unit| (unit, self.decision_within(unit)))
    }

    /// What is known of a unit. None if no transfer of it counted.
    pub fn estimate(&self, unit: Unit) -> Option<Estimate> {
        self.units.contains_key(&unit).then(|| self.known(unit, self.guess(unit.parent())).estimate)
    }

    /// What is known of all units, from all to single places.
    pub fn estimates(&self) -> impl Iterator<Item = Estimate> {
        self.units.keys().map(|&unit| self.known(unit, self.guess(unit.parent())).estimate)
    }

    /// Where a unit's gain is for one size class: at all times together, but for [`Settings::error`] for each class.
    /// None if no transfer of the unit counted.
    pub fn of_class(&self, unit: Unit, class: SizeClass) -> Option<Interval> {
        let (record, _) = self.units.get(&unit)?;
        Some(record.classes[class.index()].interval(&self.mixture, self.settings.error))
    }

    /// How often a unit's gain was found to have changed.
    pub fn changes(&self, unit: Unit) -> u32 {
        self.units.get(&unit).map_or(0, |(record, _)| record.changes)
    }

    /// From now on all transfers of a unit are given this arm, but for those of units within it that are pinned
    /// otherwise; with none they are decided again. Transfers that could have had one arm only are no use to estimate
    /// from, and are refused.
    pub fn pin(&mut self, unit: Unit, arm: Option<Arm>) {
        match arm {
            Some(arm) => self.pins.insert(unit, arm),
            None => self.pins.remove(&unit),
        };
    }

    /// Forgets every unit that had no transfer in this slot or later. One that comes back may err as often as a new
    /// one.
    pub fn forget(&mut self, before: u64) {
        self.units.retain(|_, (record, _)| record.last_slot >= before);
    }

    /// How many transfers were told of.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The last slot that is closed.
    pub const fn closed(&self) -> Option<u64> {
        self.closed
    }

    /// The last slot of which anything was told.
    pub(crate) fn last_slot(&self) -> Option<u64> {
        self.open.keys().next_back().copied().max(self.closed)
    }

    /// Works out again what follows from the records.
    pub(crate) fn settle(&mut self) {
        let (mixture, error) = (self.mixture, self.settings.error);
        self.units.values_mut().for_each(|(record, known)| *known = record.settle(&mixture, error));
    }

    fn guess(&self, unit: Option<Unit>) -> Option<Guess> {
        let unit = unit?;
        Some(self.known(unit, self.guess(unit.parent())).guess)
    }

    fn known(&self, unit: Unit, around: Option<Guess>) -> Judged {
        let found = self.units.get(&unit);
        let known = found.map_or(&Known::NOTHING, |(_, known)| known);
        let guess = known.guess(around, &self.settings);
        let verdict = found.map_or(Finding::Unknown, |(record, _)| record.verdict);
        let estimate = Estimate::new(unit, known, guess);
        Judged { estimate, guess, recent: known.recent, verdict }
    }

    /// By how much a place's transfers are slower than others like them, by what was closed so far.
    fn baseline(&self, place: Place) -> f64 {
        let around = Unit::around(place);
        around[..2].iter().rev().fold(0.0, |around, unit| {
            self.units.get(unit).map_or(around, |(record, _)| record.baseline.slower(around))
        })
    }
}

/// The logarithm of a completion time as far as it may move later predictions.
fn outcome(observation: &Observation, features: &Features, fit: Option<&Fit>) -> f64 {
    let time = observation.completion.ln();
    match fit.map(|fit| fit.between_arms(features)) {
        Some(expected) => time.clamp(expected - score::CLIP, expected + score::CLIP),
        // From a tenth of a millisecond to hours.
        None => time.clamp(-9.0, 9.0),
    }
}
