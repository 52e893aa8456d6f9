//! Statistics over a scenario's records, cell by cell and variant by variant.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::metric::{METRICS, Metric};
use crate::record::{Backend, Measurement, Outcome, Record, Variant};
use crate::{Comparison, Direction, Reported, Scenario, Stats, VerdictOn};

/// What the runs of one scenario on one backend came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The scenario's name.
    pub scenario: String,
    /// The scenario's digest, which all records bear.
    pub digest: String,
    /// Where the runs ran; none without records.
    pub backend: Option<Backend>,
    /// Runs by outcome.
    pub counts: Counts,
    /// Whether the scenario can be measured here at all.
    #[serde(rename = "verdict")]
    pub measurability: Measurability,
    /// In the sweep's order, cells without a record included.
    pub cells: Vec<CellSummary>,
    /// One point of an axis against the others; empty if the scenario does not ask for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
}

/// What the runs of one cell came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellSummary {
    /// Axis -> label of the point on it.
    pub labels: BTreeMap<String, String>,
    /// Runs by outcome.
    pub counts: Counts,
    /// Whether this cell can be measured here: not if none of its variants can.
    #[serde(rename = "verdict")]
    pub measurability: Measurability,
    /// In the scenario's order, variants without a record included; then others that have records,
    /// as when the file has dropped a variant since.
    pub variants: Vec<VariantSummary>,
}

/// What the runs of one variant in one cell came to. Statistics are over the measured runs; there are none of a
/// variant that is not measurable here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariantSummary {
    /// What stood in the middle.
    pub variant: Variant,
    /// Runs by outcome.
    pub counts: Counts,
    /// Whether it can be measured here: as its cell, or by itself if the scenario has it so ([`VerdictOn`]).
    #[serde(rename = "verdict")]
    pub measurability: Measurability,
    /// Why runs were untrusted, each reason once.
    pub untrusted_reasons: Vec<String>,
    /// Why runs failed, each reason once.
    pub failed_reasons: Vec<String>,
    /// Over all numbers of all measured runs.
    #[serde(flatten)]
    pub metrics: MetricStats,
    /// How much better than no proxy; none for [`Variant::None`] itself and where no repetition
    /// has both.
    pub gain: Option<Gain>,
    /// What the paper reports for this variant here.
    pub reported: Vec<Reported>,
}

/// The statistics of each metric that was measured. As JSON every metric's [key](Metric::key) is there: null where it was not
/// measured, as is an object with none that was.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetricStats(BTreeMap<&'static str, Stats>);

/// A factor over [`Variant::None`]: of goodput on bulk workloads, of speed on transfers (mean
/// `received_s` without over that with a proxy). Above 1 the proxy is better.
///
/// Paired: a repetition's runs met the same losses, so each repetition gives one factor. Factors
/// multiply, so their mean and interval are those of their logarithms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// Repetitions in which both variants were measured; at least 1.
    pub n: u32,
    /// Geometric mean.
    pub mean: f64,
    /// Ends of the mean's 95 % confidence interval; none for a single repetition.
    pub ci95: Option<(f64, f64)>,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
}

/// Runs by outcome. Of a run that was repeated, only the last record counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Gave numbers.
    pub measured: u32,
    /// Ran under other conditions than the scenario's.
    pub untrusted: u32,
    /// Did not run to the end.
    pub failed: u32,
}

/// Whether a machine can measure what it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measurability {
    /// At most a tenth of the runs were untrusted, or, in a cell or of a variant, no more than one.
    Measurable,
    /// More were: no number of theirs should be relied on.
    NotMeasurable,
}

/// A record that does not belong with the others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// From another scenario, or from another version of this one.
    #[error(
        "record {index} is of scenario `{scenario}`, digest {digest}; wanted `{wanted}`, digest {wanted_digest}"
    )]
    Scenario {
        /// Its place among the records, from 0.
        index: usize,
        /// Its scenario.
        scenario: String,
        /// Its digest.
        digest: String,
        /// The scenario that was asked for.
        wanted: String,
        /// That scenario's digest.
        wanted_digest: String,
    },
    /// From another backend than the first record.
    #[error("record {index} is from another backend than the first; summarise them apart")]
    Backend {
        /// Its place among the records, from 0.
        index: usize,
    },
    /// From a cell that the scenario does not have.
    #[error("record {index} is of a cell that scenario `{scenario}` does not have")]
    Cell {
        /// Its place among the records, from 0.
        index: usize,
        /// The scenario.
        scenario: String,
    },
}

impl Summary {
    /// Summarises `records` of `scenario`, in any order.
    ///
    /// # Errors
    /// The first record that is not of this scenario, as its digest says, or not of the same
    /// backend as the first.
    pub fn of(scenario: &Scenario, records: &[Record]) -> Result<Summary, Foreign> {
        check(scenario, records)?;
        let runs = last_of_each(records);
        let cells: Vec<CellSummary> = scenario
            .cells()
            .iter()
            .map(|cell| {
                let direction = cell.spec.workload.direction();
                let of = |variant| of_variant(&runs, &cell.labels, variant);
                let recorded = runs.keys().filter(|(labels, ..)| **labels == cell.labels);
                let mut variants = cell.variants.clone();
                for (_, variant, _) in recorded {
                    if !variants.contains(variant) {
                        variants.push(*variant);
                    }
                }
                let counts_of = |variant| Counts::of_runs(&of(variant));
                let counts = variants.iter().copied().map(counts_of).sum();
                let measurability_of = |variant| {
                    Measurability::of_few(match scenario.verdict {
                        VerdictOn::Cell => counts,
                        VerdictOn::Variant => counts_of(variant),
                    })
                };
                let base = match measurability_of(Variant::None) {
                    Measurability::Measurable => of(Variant::None),
                    Measurability::NotMeasurable => Vec::new(),
                };
                let variants: Vec<VariantSummary> = variants
                    .into_iter()
                    .map(|variant| VariantSummary {
                        reported: scenario.reported_for(&cell.labels, variant).cloned().collect(),
                        ..VariantSummary::of(
                            variant,
                            measurability_of(variant),
                            &of(variant),
                            &base,
                            direction,
                        )
                    })
                    .collect();
                let ran = variants.iter().filter(|variant| variant.counts.total() > 0);
                let measurability =
                    Measurability::of_parts(ran.map(|variant| variant.measurability));
                CellSummary { labels: cell.labels.clone(), counts, measurability, variants }
            })
            .collect();
        let counts = cells.iter().map(|cell| cell.counts).sum();
        Ok(Summary {
            scenario: scenario.name.clone(),
            digest: scenario.digest(),
            backend: records.first().map(|record| record.backend),
            counts,
            measurability: match scenario.verdict {
                VerdictOn::Cell => Measurability::of_many(counts),
                VerdictOn::Variant => {
                    let ran = cells.iter().filter(|cell| cell.counts.total() > 0);
                    Measurability::of_parts(ran.map(|cell| cell.measurability))
                }
            },
            comparisons: Comparison::all_of(scenario, &cells),
            cells,
        })
    }
}

impl CellSummary {
    /// What `variant` came to here, if the scenario runs it here.
    pub fn variant(&self, variant: Variant) -> Option<&VariantSummary> {
        self.variants.iter().find(|summary| summary.variant == variant)
    }
}

impl VariantSummary {
    /// Of a metric's numbers over all measured runs; none if it was not measured.
    pub fn stats(&self, metric: &Metric) -> Option<Stats> {
        self.metrics.get(metric)
    }

    fn of(
        variant: Variant,
        measurability: Measurability,
        runs: &[&Record],
        base: &[&Record],
        direction: Direction,
    ) -> VariantSummary {
        let counted = match measurability {
            Measurability::Measurable => runs,
            Measurability::NotMeasurable => &[],
        };
        VariantSummary {
            variant,
            counts: Counts::of_runs(runs),
            measurability,
            untrusted_reasons: reasons(runs, |outcome| match outcome {
                Outcome::Untrusted { reason, .. } => Some(reason),
                _ => None,
            }),
            failed_reasons: reasons(runs, |outcome| match outcome {
                Outcome::Failed { reason } => Some(reason),
                _ => None,
            }),
            metrics: MetricStats::of(counted, direction),
            gain: if variant == Variant::None { None } else { Gain::of(counted, base) },
            reported: Vec::new(),
        }
    }
}

impl MetricStats {
    fn of(runs: &[&Record], direction: Direction) -> MetricStats {
        let measured: Vec<&Measurement> = runs.iter().filter_map(|run| run.measurement()).collect();
        let stats = |metric: &Metric| {
            let values = measured.iter().flat_map(|run| metric.values(run, direction));
            Some((metric.name, Stats::of(&values.collect::<Vec<_>>())?))
        };
        MetricStats(METRICS.iter().filter_map(stats).collect())
    }

    fn get(&self, metric: &Metric) -> Option<Stats> {
        self.0.get(metric.name).copied()
    }
}

impl Serialize for MetricStats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let mut groups: BTreeMap<&str, BTreeMap<&str, Option<Stats>>> = BTreeMap::new();
        for metric in METRICS {
            match metric.key.split_once('.') {
                None => map.serialize_entry(metric.key, &self.get(metric))?,
                Some((group, key)) => {
                    groups.entry(group).or_default().insert(key, self.get(metric));
                }
            }
        }
        for (group, metrics) in groups {
            let measured = metrics.values().any(Option::is_some);
            map.serialize_entry(group, &measured.then_some(metrics))?;
        }
        map.end()
    }
}

impl Gain {
    fn of(runs: &[&Record], none: &[&Record]) -> Option<Gain> {
        let factors: Vec<f64> = runs
            .iter()
            .filter_map(|run| {
                let base = none.iter().find(|base| base.repetition == run.repetition)?;
                Some(speed(run.measurement()?)? / speed(base.measurement()?)?)
            })
            .collect();
        // Nothing delivered has no logarithm, and to leave it out would flatter the rest.
        if !factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
            return None;
        }
        let logarithms: Vec<f64> = factors.into_iter().map(f64::ln).collect();
        let stats = Stats::of(&logarithms)?;
        Some(Gain {
            n: stats.n,
            mean: stats.mean.exp(),
            ci95: stats.ci95.map(|half| ((stats.mean - half).exp(), (stats.mean + half).exp())),
            min: stats.min.exp(),
            max: stats.max.exp(),
        })
    }
}

impl Counts {
    /// All runs.
    pub fn total(self) -> u32 {
        self.measured + self.untrusted + self.failed
    }

    fn of_runs(runs: &[&Record]) -> Counts {
        runs.iter().map(|run| Counts::of(&run.outcome)).sum()
    }

    fn of(outcome: &Outcome) -> Counts {
        let mut counts = Counts::default();
        match outcome {
            Outcome::Measured(_) => counts.measured = 1,
            Outcome::Untrusted { .. } => counts.untrusted = 1,
            Outcome::Failed { .. } => counts.failed = 1,
        }
        counts
    }
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(counts: I) -> Counts {
        counts.fold(Counts::default(), |sum, counts| Counts {
            measured: sum.measured + counts.measured,
            untrusted: sum.untrusted + counts.untrusted,
            failed: sum.failed + counts.failed,
        })
    }
}

impl Measurability {
    fn of_many(counts: Counts) -> Measurability {
        if counts.untrusted * 10 > counts.total() {
            Measurability::NotMeasurable
        } else {
            Measurability::Measurable
        }
    }

    /// A cell has so few runs that a single one may be more than a tenth of them: one alone does
    /// not speak against the others.
    fn of_few(counts: Counts) -> Measurability {
        if counts.untrusted > 1 {
            Measurability::of_many(counts)
        } else {
            Measurability::Measurable
        }
    }

    /// Of what can be measured in part there is something to say.
    fn of_parts(mut parts: impl Iterator<Item = Measurability>) -> Measurability {
        let Some(first) = parts.next() else { return Measurability::Measurable };
        if parts.all(|part| part == first) { first } else { Measurability::Measurable }
    }
}

/// Whether `record` is of the scenario; asks only if it bears another digest than the one asked about before.
fn known_or_asked<'r>(
    scenario: &Scenario,
    known: &mut Option<(&'r Record, bool)>,
    record: &'r Record,
) -> bool {
    let identity = |record: &'r Record| (record.schema, &record.scenario, &record.digest);
    match known {
        Some((before, answer)) if identity(before) == identity(record) => *answer,
        _ => known.insert((record, scenario.has(record))).1,
    }
}

fn check(scenario: &Scenario, records: &[Record]) -> Result<(), Foreign> {
    // Hashing a large sweep takes its time, and records of one sweep bear one digest.
    let mut known: Option<(&Record, bool)> = None;
    let mut is_of = |record| known_or_asked(scenario, &mut known, record);
    for (index, record) in records.iter().enumerate() {
        if !is_of(record) {
            return Err(Foreign::Scenario {
                index,
                scenario: record.scenario.clone(),
                digest: record.digest.clone(),
                wanted: scenario.name.clone(),
                wanted_digest: scenario.digest(),
            });
        }
        if record.backend != records[0].backend {
            return Err(Foreign::Backend { index });
        }
        let known = scenario.cells().iter().any(|cell| cell.labels == record.cell);
        if !known {
            return Err(Foreign::Cell { index, scenario: scenario.name.clone() });
        }
    }
    Ok(())
}

/// What identifies a run within a scenario.
pub type RunKey<'r> = (&'r BTreeMap<String, String>, Variant, u32);

/// Of a run that was repeated, the last record.
pub fn last_of_each(records: &[Record]) -> BTreeMap<RunKey<'_>, &Record> {
    records
        .iter()
        .map(|record| ((&record.cell, record.variant, record.repetition), record))
        .collect()
}

fn of_variant<'r>(
    runs: &BTreeMap<RunKey<'r>, &'r Record>,
    labels: &BTreeMap<String, String>,
    variant: Variant,
) -> Vec<&'r Record> {
    runs.values()
        .copied()
        .filter(|record| record.cell == *labels && record.variant == variant)
        .collect()
}

/// What a gain compares: goodput, or transfers per second as the receivers saw them.
fn speed(measurement: &Measurement) -> Option<f64> {
    if let Some(bulk) = measurement.bulk() {
        return Some(bulk.goodput_bps);
    }
    let transfers = measurement.transfers();
    let total: f64 = transfers.iter().map(|transfer| transfer.received_s).sum();
    (total > 0.0).then(|| transfers.len() as f64 / total)
}

/// What the runs say, each reason once.
fn reasons(runs: &[&Record], said: fn(&Outcome) -> Option<&String>) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for reason in runs.iter().filter_map(|run| said(&run.outcome)) {
        if !reasons.contains(reason) {
            reasons.push(reason.clone());
        }
    }
    reasons
}
