//! One point of an axis held against the others, over all else that is swept.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::metric::{METRICS, Metric};
use crate::record::Variant;
use crate::summary::{CellSummary, Measurability, VariantSummary};
use crate::{Axis, Scenario};

/// What is to be compared: the file's `[compare]`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compare {
    /// The axis.
    pub axis: String,
    /// The point on it that the others are held against.
    pub point: String,
    /// Axis -> labels: cells that do not count, unless no others were run.
    pub except: BTreeMap<String, Vec<String>>,
    /// What the paper reports.
    pub reported: Vec<ReportedRatio>,
}

/// What the paper reports of one other point, as factors of the one over the other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportedRatio {
    /// The other point.
    pub against: String,
    /// Goodput over goodput.
    pub goodput: Option<f64>,
    /// Power over power.
    pub power: Option<f64>,
    /// The same with the 95th percentile.
    pub power95: Option<f64>,
}

/// The point held against one other. Each factor is the one's number over the other's in the same
/// cell but for the axis; the statistics are over cells, each counting once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What stood in the middle.
    pub variant: Variant,
    /// The other point.
    pub against: String,
    /// How many times as good the point is, by the name of each metric that is [compared](Metric::compared): the inverse
    /// where less is better.
    #[serde(flatten)]
    pub factors: BTreeMap<&'static str, Option<Factors>>,
    /// What the paper reports.
    pub reported: Option<ReportedRatio>,
}

/// Factors over cells.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Factors {
    /// Cells that have both numbers.
    pub n: u32,
    /// Arithmetic mean, which is what the paper gives.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
}

impl ReportedRatio {
    /// The factor by `metric`; none if the paper states none.
    pub fn of(&self, metric: &Metric) -> Option<f64> {
        match metric.name {
            "goodput" => self.goodput,
            "power" => self.power,
            "power95" => self.power95,
            _ => None,
        }
    }
}

impl Comparison {
    /// By `metric`; none if no cell has both numbers.
    pub fn factors(&self, metric: &Metric) -> Option<Factors> {
        self.factors.get(metric.name).copied().flatten()
    }

    /// Every variant's comparison with every other point, in the scenario's order.
    pub(crate) fn all_of(scenario: &Scenario, cells: &[CellSummary]) -> Vec<Comparison> {
        let Some(compare) = &scenario.compare else { return Vec::new() };
        let Some(axis) = scenario.axes.iter().find(|axis| axis.name == compare.axis) else {
            return Vec::new();
        };
        let counts = |cell: &&CellSummary| {
            let excepted = compare.except.iter().any(|(axis, labels)| {
                cell.labels.get(axis).is_some_and(|label| labels.contains(label))
            });
            !excepted && cell.counts.measured > 0
        };
        let counting: Vec<&CellSummary> = cells.iter().filter(counts).collect();
        let cells: Vec<&CellSummary> =
            if counting.is_empty() { cells.iter().collect() } else { counting };
        let others = |variant: Variant| {
            let others = axis.points.iter().filter(|point| **point != compare.point);
            others
                .map(|point| Comparison::of(compare, axis, &cells, variant, point))
                .collect::<Vec<_>>()
        };
        scenario.variants.iter().flat_map(|variant| others(*variant)).collect()
    }

    fn of(
        compare: &Compare,
        axis: &Axis,
        cells: &[&CellSummary],
        variant: Variant,
        against: &str,
    ) -> Comparison {
        let at = |point: &str| -> BTreeMap<BTreeMap<&str, &str>, &VariantSummary> {
            let here = |cell: &&&CellSummary| {
                cell.measurability == Measurability::Measurable
                    && cell.labels.get(&axis.name).is_some_and(|label| label == point)
            };
            let keyed = cells.iter().filter(here).filter_map(|cell| {
                let others = cell.labels.iter().filter(|(name, _)| **name != axis.name);
                let others = others.map(|(name, label)| (name.as_str(), label.as_str()));
                Some((others.collect(), cell.variant(variant)?))
            });
            keyed.collect()
        };
        let (ours, theirs) = (at(&compare.point), at(against));
        let factors = |metric: &Metric| {
            let pairs = ours.iter().filter_map(|(labels, one)| {
                let (one, other) = (one.stats(metric)?, theirs.get(labels)?.stats(metric)?);
                Some(metric.factor(one.mean, other.mean))
            });
            Factors::of(pairs.filter(|factor| factor.is_finite()).collect())
        };
        let compared = METRICS.iter().filter(|metric| metric.compared.is_some());
        Comparison {
            variant,
            against: against.to_owned(),
            factors: compared.map(|metric| (metric.name, factors(metric))).collect(),
            reported: compare.reported.iter().find(|one| one.against == against).cloned(),
        }
    }
}

impl Factors {
    fn of(mut factors: Vec<f64>) -> Option<Factors> {
        factors.sort_by(f64::total_cmp);
        let (min, max) = (*factors.first()?, *factors.last()?);
        let middle = factors.len() / 2;
        let median = match factors.len() % 2 {
            0 => (factors[middle - 1] + factors[middle]) / 2.0,
            _ => factors[middle],
        };
        let mean = factors.iter().sum::<f64>() / factors.len() as f64;
        Some(Factors {
            n: u32::try_from(factors.len()).unwrap_or(u32::MAX),
            mean,
            median,
            min,
            max,
        })
    }
}
