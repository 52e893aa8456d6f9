//! What is known of gains, wherever it comes from: by unit and size class, with the counts behind it.

use std::collections::BTreeMap;

use midspan_gain::{Arm, Estimator, Id, Interval, Observation, Settings, SizeClass, Unit};
use midspan_report::gain::{Effect, Hour, Judgement};

/// What a source knows. Tables and pages are made of it alone.
#[derive(Debug)]
pub(super) struct Findings {
    /// Of all connections. None if none counted.
    pub(super) all: Option<Effect>,
    /// From small to large, those that there were.
    pub(super) sizes: Vec<Effect>,
    /// By server, those with most connections first.
    pub(super) services: Vec<Effect>,
    /// By servers' network, those with most connections first.
    pub(super) prefixes: Vec<Effect>,
    /// One after the other; none if the source does not know.
    pub(super) hours: Vec<Hour>,
    /// What was left out, and why.
    pub(super) notes: Vec<String>,
}

impl Findings {
    /// Of what an estimator has learned of connections that were counted so. Hours and notes are the source's to add.
    pub(super) fn of(estimator: &Estimator, counts: &Counts) -> Findings {
        let found = |of: String, unit| {
            let estimate = estimator.estimate(unit)?;
            let counts = counts.of(unit, None);
            Some(effect(of, counts, Some(estimate.gain), Some(estimate.interval)))
        };
        let size = |class| {
            let counts = counts.of(Unit::All, Some(class));
            let interval = estimator.of_class(Unit::All, class);
            (counts != [0, 0]).then(|| effect(label(class).to_owned(), counts, None, interval))
        };
        let by = |name: fn(Unit) -> Option<String>| {
            let units = estimator.estimates().map(|estimate| estimate.unit);
            let mut all: Vec<Effect> = units.filter_map(|unit| found(name(unit)?, unit)).collect();
            all.sort_by_key(|one| std::cmp::Reverse(one.split + one.held_out));
            all
        };
        Findings {
            all: found("all".to_owned(), Unit::All),
            sizes: SizeClass::ALL.into_iter().filter_map(size).collect(),
            services: by(|unit| match unit {
                Unit::Service { service, .. } => Some(service.to_address().to_string()),
                _ => None,
            }),
            prefixes: by(|unit| match unit {
                Unit::Prefix(prefix) => {
                    let address = prefix.to_address();
                    let length = if address.is_ipv4() { Id::NETWORK_V4 } else { Id::NETWORK_V6 };
                    Some(format!("{address}/{length}"))
                }
                _ => None,
            }),
            hours: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// How many connections were split, and held out, by unit, and of all also by size class.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<(Unit, Option<SizeClass>), [u64; 2]>);

impl Counts {
    pub(super) fn add(&mut self, observation: &Observation) {
        let class = SizeClass::of(observation.bytes);
        let units = Unit::around(observation.place).map(|unit| (unit, None));
        for key in units.into_iter().chain([(Unit::All, Some(class))]) {
            self.0.entry(key).or_default()[usize::from(observation.arm == Arm::Unsplit)] += 1;
        }
    }

    pub(super) fn of(&self, unit: Unit, class: Option<SizeClass>) -> [u64; 2] {
        self.0.get(&(unit, class)).copied().unwrap_or_default()
    }
}

/// Of a gain in logarithms, the middle of its bounds where there is no better guess.
pub(super) fn effect(
    of: String,
    [split, held_out]: [u64; 2],
    gain: Option<f64>,
    interval: Option<Interval>,
) -> Effect {
    // What bounds of logarithms are as good as none.
    let interval = interval.filter(|interval| interval.upper - interval.lower < 4.0);
    let verdict = match interval {
        Some(Interval { lower, .. }) if lower > 0.0 => Judgement::Faster,
        Some(Interval { upper, .. }) if upper < 0.0 => Judgement::Slower,
        Some(Interval { lower, .. }) if lower > -Settings::default().margin => Judgement::NoSlower,
        _ => Judgement::Unknown,
    };
    let middle = interval.map(|interval| (interval.lower + interval.upper) / 2.0);
    Effect {
        of,
        split,
        held_out,
        gain: interval.and(gain.or(middle)).map(f64::exp),
        at_least: interval.map(|interval| interval.lower.exp()),
        at_most: interval.map(|interval| interval.upper.exp()),
        verdict,
    }
}

fn label(class: SizeClass) -> &'static str {
    match class {
        SizeClass::Below10Kb => "below 10 kB",
        SizeClass::Below100Kb => "10 to 100 kB",
        SizeClass::Below1Mb => "100 kB to 1 MB",
        SizeClass::Below10Mb => "1 to 10 MB",
        SizeClass::Larger => "10 MB and more",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_say_what_they_exclude_and_nothing_if_they_exclude_nothing() {
        let of =
            |lower, upper| effect(String::new(), [1, 1], None, Some(Interval { lower, upper }));
        for (lower, upper, verdict) in [
            (0.01, 0.1, Judgement::Faster),
            (-0.2, -0.1, Judgement::Slower),
            (-0.02, 0.1, Judgement::NoSlower),
            (-0.04, 0.1, Judgement::Unknown),
            (1.0, 5.0, Judgement::Unknown),
        ] {
            assert_eq!(of(lower, upper).verdict, verdict, "{lower} {upper}");
        }
        assert_eq!(of(-1.0, 1.0).gain, Some(1.0));
        assert_eq!((of(1.0, 5.0).gain, of(1.0, 5.0).at_least), (None, None));
    }
}
