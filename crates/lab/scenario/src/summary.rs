//! Statistics over a scenario's records, cell by cell and variant by variant.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::{
    Backend, CutRecord, DelayRecord, Measurement, Outcome, PageRecord, Record, Variant,
};
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
    pub verdict: Verdict,
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
    pub verdict: Verdict,
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
    pub verdict: Verdict,
    /// Why runs were untrusted, each reason once.
    pub untrusted_reasons: Vec<String>,
    /// Why runs failed, each reason once.
    pub failed_reasons: Vec<String>,
    /// [`Measurement::goodput_bps`] over the runs; none on transfers.
    pub goodput_bps: Option<Stats>,
    /// [`Measurement::acknowledged_bps`] over the runs; none on transfers.
    pub acknowledged_bps: Option<Stats>,
    /// [`Measurement::fairness`] over the runs; none of flows that are alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Stats>,
    /// [`Measurement::sender_retransmits`] over the runs.
    pub sender_retransmits: Option<Stats>,
    /// How long the data waited on the access link; none on transfers.
    pub queueing: Option<Queueing>,
    /// How long the proxy held the data; none without one, and on transfers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HoldTime>,
    /// Times over all transfers of all runs; none on bulk workloads.
    pub transfers: Option<TransferSummary>,
    /// More about pages; none on other workloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageSummary>,
    /// What became of the flows while feedback was cut; none where it never is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuts: Option<CutSummary>,
    /// How videos played; none on other workloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub videos: Option<VideoSummary>,
    /// How much better than no proxy; none for [`Variant::None`] itself and where no repetition
    /// has both.
    pub gain: Option<Gain>,
    /// What the paper reports for this variant here.
    pub reported: Vec<Reported>,
}

/// How long the data's packets waited on the access link: the time across it beyond the base delays
/// of its elements. Each statistic is over the runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Queueing {
    /// The runs' means, in seconds.
    pub mean_s: Stats,
    /// The runs' 95th percentiles, in seconds.
    pub p95_s: Stats,
    /// Power (the `natcp` paper, section 1): goodput over the mean, in bit/s per second.
    pub power: Stats,
    /// Goodput over the 95th percentile, in bit/s per second.
    pub power95: Stats,
}

/// How long the proxy held the data, as in [`crate::record::HeldWatch`]. Each statistic is over the runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HoldTime {
    /// The runs' means, in seconds.
    pub mean_s: Stats,
    /// The runs' 95th percentiles, in seconds.
    pub p95_s: Stats,
}

/// Times of transfers in seconds from the call of `connect`, as in [`crate::record::TransferRecord`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TransferSummary {
    /// Until `connect` returned.
    pub connected_s: Stats,
    /// Until the sender's last byte was acknowledged, be it by a proxy.
    pub acknowledged_s: Stats,
    /// Until the initiator's connection had closed in order.
    pub closed_s: Stats,
    /// Until the receiving application had the last byte.
    pub received_s: Stats,
}

/// Web pages, whose response time is [`TransferSummary::received_s`]. Over all pages of all runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PageSummary {
    /// Until an object was there that the document names, in seconds, from its request. Over all
    /// objects; none if documents name none.
    pub object_s: Option<Stats>,
    /// Packets of a page that a policer dropped.
    pub policed: Stats,
    /// The median rate that the sender's control allowed, in bits of payload per second; none where it
    /// sets none.
    pub rate_bps: Option<Stats>,
}

/// Cuts of feedback, as in [`crate::record::CutRecord`]. Over all cuts of all runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CutSummary {
    /// Goodput over a cut, in bit/s.
    pub goodput_bps: Stats,
    /// The longest silence over a cut, in seconds.
    pub silence_s: Stats,
    /// The 95th percentile of the queueing delay before a cut, in seconds; none if nothing came through.
    pub before_s: Option<Stats>,
    /// The same over its last second.
    pub during_s: Option<Stats>,
    /// The same after it.
    pub after_s: Option<Stats>,
}

/// Videos. Over all videos of all runs, but for `satisfied`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VideoSummary {
    /// Until it played, in seconds, of those that did; none if none did.
    pub start_s: Option<Stats>,
    /// How often it stood still.
    pub stalls: Stats,
    /// For how long in all, in seconds.
    pub stalled_s: Stats,
    /// [`Measurement::satisfied`], over the runs.
    pub satisfied: Stats,
}

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
pub enum Verdict {
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
                let verdict_on = |variant| {
                    Verdict::of_few(match scenario.verdict {
                        VerdictOn::Cell => counts,
                        VerdictOn::Variant => counts_of(variant),
                    })
                };
                let base = match verdict_on(Variant::None) {
                    Verdict::Measurable => of(Variant::None),
                    Verdict::NotMeasurable => Vec::new(),
                };
                let variants: Vec<VariantSummary> = variants
                    .into_iter()
                    .map(|variant| VariantSummary {
                        reported: scenario.reported_for(&cell.labels, variant).cloned().collect(),
                        ..VariantSummary::of(
                            variant,
                            verdict_on(variant),
                            &of(variant),
                            &base,
                            direction,
                        )
                    })
                    .collect();
                let ran = variants.iter().filter(|variant| variant.counts.total() > 0);
                let verdict = Verdict::of_parts(ran.map(|variant| variant.verdict));
                CellSummary { labels: cell.labels.clone(), counts, verdict, variants }
            })
            .collect();
        let counts = cells.iter().map(|cell| cell.counts).sum();
        Ok(Summary {
            scenario: scenario.name.clone(),
            digest: scenario.digest(),
            backend: records.first().map(|record| record.backend),
            counts,
            verdict: match scenario.verdict {
                VerdictOn::Cell => Verdict::of_many(counts),
                VerdictOn::Variant => {
                    let ran = cells.iter().filter(|cell| cell.counts.total() > 0);
                    Verdict::of_parts(ran.map(|cell| cell.verdict))
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
    fn of(
        variant: Variant,
        verdict: Verdict,
        runs: &[&Record],
        base: &[&Record],
        direction: Direction,
    ) -> VariantSummary {
        let counted = match verdict {
            Verdict::Measurable => runs,
            Verdict::NotMeasurable => &[],
        };
        let measured: Vec<&Measurement> =
            counted.iter().filter_map(|run| run.measurement()).collect();
        let bulk: Vec<&&Measurement> =
            measured.iter().filter(|measurement| measurement.transfers.is_empty()).collect();
        let over_bulk = |value: fn(&Measurement) -> f64| {
            Stats::of(&bulk.iter().map(|measurement| value(measurement)).collect::<Vec<_>>())
        };
        let retransmits: Vec<f64> =
            measured.iter().map(|measurement| measurement.sender_retransmits as f64).collect();
        VariantSummary {
            variant,
            counts: Counts::of_runs(runs),
            verdict,
            untrusted_reasons: reasons(runs, |outcome| match outcome {
                Outcome::Untrusted { reason, .. } => Some(reason),
                _ => None,
            }),
            failed_reasons: reasons(runs, |outcome| match outcome {
                Outcome::Failed { reason } => Some(reason),
                _ => None,
            }),
            goodput_bps: over_bulk(|measurement| measurement.goodput_bps),
            acknowledged_bps: over_bulk(|measurement| measurement.acknowledged_bps),
            fairness: Stats::of(
                &measured.iter().filter_map(|run| run.fairness()).collect::<Vec<_>>(),
            ),
            sender_retransmits: Stats::of(&retransmits),
            queueing: Queueing::of(&measured, direction),
            held: HoldTime::of(&measured),
            transfers: TransferSummary::of(&measured),
            pages: PageSummary::of(&measured),
            cuts: CutSummary::of(&measured),
            videos: VideoSummary::of(&measured),
            gain: if variant == Variant::None { None } else { Gain::of(counted, base) },
            reported: Vec::new(),
        }
    }
}

impl Queueing {
    fn of(measured: &[&Measurement], direction: Direction) -> Option<Queueing> {
        let over = |value: fn(&Measurement, &DelayRecord) -> f64| {
            let values: Vec<f64> = measured
                .iter()
                .filter_map(|run| Some(value(run, run.queueing(direction)?)))
                .filter(|value| value.is_finite())
                .collect();
            Stats::of(&values)
        };
        Some(Queueing {
            mean_s: over(|_, delay| delay.mean_us / 1e6)?,
            p95_s: over(|_, delay| delay.p95_us / 1e6)?,
            power: over(|run, delay| run.goodput_bps / (delay.mean_us / 1e6))?,
            power95: over(|run, delay| run.goodput_bps / (delay.p95_us / 1e6))?,
        })
    }
}

impl HoldTime {
    fn of(measured: &[&Measurement]) -> Option<HoldTime> {
        let over = |micros: fn(&DelayRecord) -> f64| {
            let held = measured.iter().filter_map(|run| run.held.as_ref());
            Stats::of(&held.map(|held| micros(held) / 1e6).collect::<Vec<_>>())
        };
        Some(HoldTime { mean_s: over(|held| held.mean_us)?, p95_s: over(|held| held.p95_us)? })
    }
}

impl TransferSummary {
    fn of(measured: &[&Measurement]) -> Option<TransferSummary> {
        let over = |time: fn(&crate::record::TransferRecord) -> f64| {
            let times: Vec<f64> =
                measured.iter().flat_map(|measurement| &measurement.transfers).map(time).collect();
            Stats::of(&times)
        };
        Some(TransferSummary {
            connected_s: over(|transfer| transfer.connected_s)?,
            acknowledged_s: over(|transfer| transfer.acknowledged_s)?,
            closed_s: over(|transfer| transfer.closed_s)?,
            received_s: over(|transfer| transfer.received_s)?,
        })
    }
}

impl PageSummary {
    fn of(measured: &[&Measurement]) -> Option<PageSummary> {
        let pages = || measured.iter().flat_map(|measurement| &measurement.pages);
        let over = |values: Vec<f64>| Stats::of(&values);
        Some(PageSummary {
            object_s: over(pages().flat_map(|page| page.objects_s.iter().copied()).collect()),
            policed: over(pages().map(|page| page.policed() as f64).collect())?,
            rate_bps: over(pages().filter_map(PageRecord::median_rate_bps).collect()),
        })
    }
}

impl CutSummary {
    fn of(measured: &[&Measurement]) -> Option<CutSummary> {
        let cuts = || measured.iter().flat_map(|measurement| &measurement.cuts);
        let over = |values: Vec<f64>| Stats::of(&values);
        Some(CutSummary {
            goodput_bps: over(cuts().map(|cut| cut.goodput_bps).collect())?,
            silence_s: over(cuts().map(|cut| cut.silence_s).collect())?,
            before_s: over(cuts().filter_map(CutRecord::before95_s).collect()),
            during_s: over(cuts().filter_map(CutRecord::during95_s).collect()),
            after_s: over(cuts().filter_map(CutRecord::after95_s).collect()),
        })
    }
}

impl VideoSummary {
    fn of(measured: &[&Measurement]) -> Option<VideoSummary> {
        let videos = || measured.iter().flat_map(|measurement| &measurement.videos);
        let over = |values: Vec<f64>| Stats::of(&values);
        Some(VideoSummary {
            start_s: over(videos().filter_map(|video| video.start_s).collect()),
            stalls: over(videos().map(|video| f64::from(video.stalls)).collect())?,
            stalled_s: over(videos().map(|video| video.stalled_s).collect())?,
            satisfied: over(measured.iter().filter_map(|run| run.satisfied()).collect())?,
        })
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

impl Verdict {
    fn of_many(counts: Counts) -> Verdict {
        if counts.untrusted * 10 > counts.total() {
            Verdict::NotMeasurable
        } else {
            Verdict::Measurable
        }
    }

    /// A cell has so few runs that a single one may be more than a tenth of them: one alone does
    /// not speak against the others.
    fn of_few(counts: Counts) -> Verdict {
        if counts.untrusted > 1 { Verdict::of_many(counts) } else { Verdict::Measurable }
    }

    /// Of what can be measured in part there is something to say.
    fn of_parts(mut parts: impl Iterator<Item = Verdict>) -> Verdict {
        let Some(first) = parts.next() else { return Verdict::Measurable };
        if parts.all(|part| part == first) { first } else { Verdict::Measurable }
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
    if measurement.transfers.is_empty() {
        return Some(measurement.goodput_bps);
    }
    let total: f64 = measurement.transfers.iter().map(|transfer| transfer.received_s).sum();
    (total > 0.0).then(|| measurement.transfers.len() as f64 / total)
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
