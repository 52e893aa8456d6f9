//! What the table, the plots and the conclusion all look at: a cell's entry in each metric.
//!
//! Metrics themselves are [`midspan_scenario::metric`]'s.

use std::collections::{BTreeMap, BTreeSet};

use midspan_scenario::metric::GOODPUT;
use midspan_scenario::record::{Record, Variant};
use midspan_scenario::summary::{CellSummary, Counts, Measurability, Summary, VariantSummary};
use midspan_scenario::{Direction, Metric, Scenario, Stats};

use midspan_units::number::shortest;

/// What there is to show for one variant in one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Entry {
    /// Trusted numbers.
    Measured(Stats),
    /// Too many runs were untrusted, its own or its cell's: no number is given.
    NotMeasurable,
    /// No run came to a trusted end.
    NoTrustedRun,
    /// Not run yet, not run in this cell, or not what its workload measures.
    Absent,
}

impl Entry {
    /// What `summary`, of a variant in a cell, has to show of `metric`.
    pub(crate) fn of(summary: Option<&VariantSummary>, metric: &Metric) -> Entry {
        let Some(summary) = summary else { return Entry::Absent };
        if summary.counts.total() == 0 {
            return Entry::Absent;
        }
        if summary.measurability == Measurability::NotMeasurable {
            return Entry::NotMeasurable;
        }
        match summary.stats(metric) {
            Some(stats) => Entry::Measured(stats),
            None if summary.counts.measured == 0 => Entry::NoTrustedRun,
            None => Entry::Absent,
        }
    }

    /// In a table, instead of a number.
    pub(crate) fn instead(&self) -> &'static str {
        match self {
            Entry::Measured(_) | Entry::Absent => "–",
            Entry::NotMeasurable => "n/m",
            Entry::NoTrustedRun => "failed",
        }
    }

    /// In a plot, instead of a bar.
    pub(crate) fn spelled_out(&self) -> &'static str {
        match self {
            Entry::Measured(_) | Entry::Absent => "not run",
            Entry::NotMeasurable => "not measurable here",
            Entry::NoTrustedRun => "no run succeeded",
        }
    }
}

/// Each number that the measured runs of `variant` in a cell gave, in the runs' order. Of a run
/// that was repeated only the last record counts.
pub(crate) fn run_values(
    scenario: &Scenario,
    records: &[Record],
    labels: &BTreeMap<String, String>,
    variant: Variant,
    metric: &Metric,
) -> Vec<f64> {
    let cell = scenario.cells().iter().find(|cell| cell.labels == *labels);
    let Some(direction) = cell.map(|cell| cell.spec.workload.direction()) else {
        return Vec::new();
    };
    let runs: BTreeMap<u32, &Record> = records
        .iter()
        .filter(|record| record.cell == *labels && record.variant == variant)
        .map(|record| (record.repetition, record))
        .collect();
    let measured = runs.values().filter_map(|record| record.measurement());
    let values = measured.flat_map(|run| metric.values(run, direction));
    values.filter(|value| value.is_finite()).collect()
}

/// A paper's number on a plot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mark {
    /// As the paper states it.
    Stated(f64),
    /// The paper states a gain: that multiple of the number without a proxy, the paper's if it
    /// states one, else ours.
    FromGain(f64),
}

impl Mark {
    /// Where it stands.
    pub(crate) fn value(self) -> f64 {
        match self {
            Mark::Stated(value) | Mark::FromGain(value) => value,
        }
    }
}

/// What a paper reports for one variant in one cell.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Paper {
    /// Goodput in bit/s, as stated.
    pub(crate) goodput: Option<f64>,
    /// Factor over no proxy, as stated.
    pub(crate) gain: Option<f64>,
    /// What the scenario says of these numbers.
    pub(crate) notes: Vec<String>,
}

impl Paper {
    pub(crate) fn of(summary: &VariantSummary) -> Paper {
        let reported = &summary.reported;
        Paper {
            goodput: reported.iter().find_map(|one| one.goodput).map(|rate| rate.as_bps() as f64),
            gain: reported.iter().find_map(|one| one.gain),
            notes: reported.iter().filter_map(|one| one.note.clone()).collect(),
        }
    }

    /// The goodput in Mbit/s, as the paper prints it.
    pub(crate) fn goodput_text(&self) -> Option<String> {
        self.goodput.map(|bps| shortest(bps / 1e6))
    }

    /// The gain, as the paper prints it.
    pub(crate) fn gain_text(&self) -> Option<String> {
        self.gain.map(|gain| format!("{} x", shortest(gain)))
    }

    /// `paper: 949 Mbit/s, gain 7 x`, and its notes.
    pub(crate) fn in_words(&self) -> String {
        let numbers = [
            self.goodput_text().map(|goodput| format!("{goodput} Mbit/s")),
            self.gain_text().map(|gain| format!("gain {gain}")),
        ];
        let mut parts: Vec<String> = numbers.into_iter().flatten().collect();
        parts.extend(self.notes.iter().cloned());
        format!("paper: {}", parts.join(", "))
    }

    /// Whether there is a number.
    pub(crate) fn has_number(&self) -> bool {
        self.goodput.is_some() || self.gain.is_some()
    }

    /// Where the paper's mark stands on a plot of goodput.
    pub(crate) fn mark(&self, cell: &CellSummary) -> Option<Mark> {
        let baseline = || {
            let none = cell.variant(Variant::None)?;
            let ours = match Entry::of(Some(none), &GOODPUT) {
                Entry::Measured(stats) => Some(stats.mean),
                _ => None,
            };
            Paper::of(none).goodput.or(ours)
        };
        let stated = self.goodput.map(Mark::Stated);
        stated.or_else(|| Some(Mark::FromGain(self.gain? * baseline()?)))
    }
}

/// A cell's point on every axis, in words: `0.5 % loss, 1 ms proxy rtt (upload)`. Empty without a
/// sweep.
pub(crate) fn cell_name(scenario: &Scenario, labels: &BTreeMap<String, String>) -> String {
    let points = || scenario.axes.iter().filter_map(|axis| Some((axis, labels.get(&axis.name)?)));
    let (directions, others): (Vec<_>, Vec<_>) =
        points().partition(|(axis, _)| axis.name == DIRECTION);
    let others: Vec<String> =
        others.iter().map(|(axis, label)| format!("{label} {}", axis_name(&axis.name))).collect();
    let mut name = others.join(", ");
    for (_, direction) in directions {
        let space = if name.is_empty() { "" } else { " " };
        name.push_str(&format!("{space}({direction})"));
    }
    name
}

/// The axis whose labels need no name beside them: `upload`, `download`.
pub(crate) const DIRECTION: &str = "direction";

/// An axis' name as prose.
pub(crate) fn axis_name(axis: &str) -> String {
    axis.replace('_', " ")
}

/// Who sends, if it is the same in all of the scenario's cells.
pub(crate) fn common_direction(scenario: &Scenario) -> Option<Direction> {
    let mut directions = scenario.cells().iter().map(|cell| cell.spec.workload.direction());
    let first = directions.next()?;
    directions.all(|direction| direction == first).then_some(first)
}

/// What must be said of runs that gave no number: one sentence for each cell and cause.
pub(crate) fn troubles(scenario: &Scenario, summary: &Summary) -> Vec<String> {
    let mut sentences = Vec::new();
    for cell in &summary.cells {
        let name = cell_name(scenario, &cell.labels);
        if cell.measurability == Measurability::NotMeasurable {
            let reasons = cell.variants.iter().flat_map(|variant| &variant.untrusted_reasons);
            let place = if name.is_empty() { String::new() } else { format!("{name}: ") };
            sentences.push(format!("{place}{}", not_measurable(cell.counts, reasons)));
            if cell.counts.failed > 0 {
                let reasons = cell.variants.iter().flat_map(|variant| &variant.failed_reasons);
                let failed = kind(cell.counts.failed, cell.counts.total(), "failed", reasons);
                sentences.push(format!("{place}{failed}"));
            }
            continue;
        }
        for variant in &cell.variants {
            let place = [name.as_str(), variant_name(variant.variant)];
            let place: Vec<&str> = place.into_iter().filter(|part| !part.is_empty()).collect();
            if let Some(what) = trouble(variant) {
                sentences.push(format!("{}: {what}", place.join(", ")));
            }
        }
    }
    sentences
}

/// `not measurable here: 3 of 9 runs untrusted: emulator p99 lateness 240 us`.
pub(crate) fn not_measurable<'a>(
    counts: Counts,
    reasons: impl IntoIterator<Item = &'a String>,
) -> String {
    format!(
        "not measurable here: {} of {} runs untrusted{}",
        counts.untrusted,
        counts.total(),
        listed(reasons)
    )
}

fn trouble(variant: &VariantSummary) -> Option<String> {
    let counts = variant.counts;
    let kinds = [
        (counts.untrusted, "untrusted", &variant.untrusted_reasons),
        (counts.failed, "failed", &variant.failed_reasons),
    ];
    let said: Vec<String> = kinds
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, name, reasons)| kind(count, counts.total(), name, reasons))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// `2 of 9 runs failed: address already in use`.
fn kind<'a>(
    count: u32,
    total: u32,
    name: &str,
    reasons: impl IntoIterator<Item = &'a String>,
) -> String {
    format!("{count} of {total} runs {name}{}", listed(reasons))
}

/// One of `reasons` after a colon, and how many others there are.
fn listed<'a>(reasons: impl IntoIterator<Item = &'a String>) -> String {
    let all: BTreeSet<&str> = reasons.into_iter().map(String::as_str).collect();
    let Some(first) = all.first() else { return String::new() };
    match all.len() - 1 {
        0 => format!(": {first}"),
        1 => format!(": {first}; and one more reason like it"),
        more => format!(": {first}; and {more} more reasons like it"),
    }
}

/// What a reader calls a variant.
pub(crate) fn variant_name(variant: Variant) -> &'static str {
    match variant {
        Variant::None => "no proxy",
        Variant::Midspan => "Midspan",
        Variant::Haproxy => "HAProxy",
    }
}
