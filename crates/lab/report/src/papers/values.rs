//! The numbers of a recorded run, from its records or from its summary.

use std::collections::BTreeMap;

use midspan_scenario::record::{DirectionRecord, PageRecord, Record, Variant};
use midspan_scenario::summary::{Foreign, Summary};
use midspan_scenario::{Scenario, Stats};

use super::read;
use crate::number::Quantity;
use crate::view::{Entry, Metric};

/// A recorded run's numbers, cell by cell.
#[derive(Debug, Default)]
pub struct Values {
    cells: Vec<Cell>,
}

#[derive(Debug)]
struct Cell {
    labels: BTreeMap<String, String>,
    /// By measure.
    numbers: BTreeMap<(Variant, Measure), Number>,
    /// Of its first run, if records are there and it has any.
    delays: BTreeMap<Variant, DirectionRecord>,
    pages: BTreeMap<Variant, PageRecord>,
}

/// Something measured: a number for each cell and variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Measure {
    Goodput,
    Fairness,
    Queueing,
    Queueing95,
    Power,
    Power95,
    Received,
    Closed,
    Acknowledged,
    Object,
    SendingRate,
    Policed,
    Retransmitted,
    Satisfied,
    Start,
}

/// Mean of the runs, and their standard deviation; zero if there is one alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

/// Which numbers are wanted: a label for each axis that matters.
pub(super) type Labels = BTreeMap<String, String>;

impl Values {
    /// From records, which may be of either backend.
    ///
    /// # Errors
    /// The first record that is not of this scenario.
    pub fn of_records(scenario: &Scenario, records: &[Record]) -> Result<Values, Foreign> {
        let summary = Summary::of(scenario, records)?;
        let mut cells = Vec::with_capacity(summary.cells.len());
        for (cell, spread) in summary.cells.iter().zip(scenario.cells()) {
            let mut numbers = BTreeMap::new();
            for variant in &cell.variants {
                let mut put = |measure, stats: Option<Stats>| {
                    if let Some(stats) = stats {
                        let deviation = stats.deviation.unwrap_or(0.0);
                        let number = Number { mean: stats.mean, deviation };
                        numbers.insert((variant.variant, measure), number);
                    }
                };
                for (measure, metric) in METRICS {
                    if let Entry::Measured(stats) = Entry::of(Some(variant), metric) {
                        put(measure, Some(stats));
                    }
                }
                if Entry::of(Some(variant), Metric::Goodput) != Entry::NotMeasurable {
                    put(Measure::Retransmitted, variant.sender_retransmits);
                    put(Measure::Power, variant.queueing.map(|queueing| queueing.power));
                    put(Measure::Power95, variant.queueing.map(|queueing| queueing.power95));
                }
            }
            let (mut delays, mut pages) = (BTreeMap::new(), BTreeMap::new());
            for record in records.iter().filter(|record| record.cell == cell.labels) {
                let Some(run) = record.measurement() else { continue };
                if let Some(radio) = run.radio(spread.spec.workload.direction()) {
                    delays.entry(record.variant).or_insert_with(|| radio.clone());
                }
                if let Some(page) = run.pages.first() {
                    pages.entry(record.variant).or_insert_with(|| page.clone());
                }
            }
            cells.push(Cell { labels: cell.labels.clone(), numbers, delays, pages });
        }
        Ok(Values { cells })
    }

    /// From the text of a report on the scenario ([`crate::Report::text`]), to the digits that it has.
    ///
    /// # Errors
    /// What it says instead of what a report on this scenario would.
    pub fn of_summary(scenario: &Scenario, text: &str) -> Result<Values, String> {
        let cell = |labels: &Labels| Cell {
            labels: labels.clone(),
            numbers: BTreeMap::new(),
            delays: BTreeMap::new(),
            pages: BTreeMap::new(),
        };
        let mut cells: Vec<Cell> = scenario.cells().iter().map(|one| cell(&one.labels)).collect();
        for (measure, metric) in METRICS {
            for entry in read::table(scenario, metric, text)? {
                cells[entry.cell].numbers.insert((entry.variant, measure), entry.number);
            }
        }
        for cell in &mut cells {
            cell.derive_power();
        }
        Ok(Values { cells })
    }

    /// The numbers of the cells that have all of `labels`, with each cell's own labels.
    pub(super) fn numbers(
        &self,
        variant: Variant,
        measure: Measure,
        labels: &Labels,
    ) -> impl Iterator<Item = (&Labels, Number)> {
        let cells = self.cells.iter().filter(move |cell| cell.has(labels));
        cells.filter_map(move |cell| Some((&cell.labels, *cell.numbers.get(&(variant, measure))?)))
    }

    /// Whether a cell has these labels, with or without a number.
    pub(super) fn has(&self, labels: &Labels) -> bool {
        self.cells.iter().any(|cell| cell.has(labels))
    }

    pub(super) fn delays(&self, variant: Variant, labels: &Labels) -> Option<&DirectionRecord> {
        self.cells.iter().filter(|cell| cell.has(labels)).find_map(|cell| cell.delays.get(&variant))
    }

    pub(super) fn page(&self, variant: Variant, labels: &Labels) -> Option<&PageRecord> {
        self.cells.iter().filter(|cell| cell.has(labels)).find_map(|cell| cell.pages.get(&variant))
    }
}

impl Cell {
    fn has(&self, labels: &Labels) -> bool {
        labels.iter().all(|(axis, label)| self.labels.get(axis) == Some(label))
    }

    /// Power is goodput over queueing delay: of one run, of which a summary has both, exactly so.
    fn derive_power(&mut self) {
        let variants: Vec<Variant> = self.numbers.keys().map(|key| key.0).collect();
        for variant in variants {
            let number = |measure| self.numbers.get(&(variant, measure)).copied();
            let over = |measure| Some(number(Measure::Goodput)?.mean / number(measure)?.mean);
            let powers = [
                (Measure::Power, over(Measure::Queueing)),
                (Measure::Power95, over(Measure::Queueing95)),
            ];
            for (measure, mean) in powers {
                if let Some(mean) = mean.filter(|mean| mean.is_finite()) {
                    self.numbers.insert((variant, measure), Number { mean, deviation: 0.0 });
                }
            }
        }
    }
}

/// Measures that a report has a table of.
const METRICS: [(Measure, Metric); 13] = [
    (Measure::Goodput, Metric::Goodput),
    (Measure::Fairness, Metric::Fairness),
    (Measure::Queueing, Metric::Queueing),
    (Measure::Queueing95, Metric::Queueing95),
    (Measure::Received, Metric::Received),
    (Measure::Closed, Metric::Closed),
    (Measure::Acknowledged, Metric::Acknowledged),
    (Measure::Object, Metric::Object),
    (Measure::SendingRate, Metric::SendingRate),
    (Measure::Policed, Metric::Policed),
    (Measure::Retransmitted, Metric::Retransmitted),
    (Measure::Satisfied, Metric::Satisfied),
    (Measure::Start, Metric::Start),
];

impl Measure {
    /// By the name that a description gives it.
    pub(super) fn named(name: &str) -> Result<Measure, String> {
        let names = || ALL.iter().map(|measure| measure.name());
        let known = ALL.into_iter().find(|measure| measure.name() == name);
        known.ok_or_else(|| {
            format!("no measure `{name}`; there are {}", names().collect::<Vec<_>>().join(", "))
        })
    }

    fn name(self) -> &'static str {
        match self {
            Measure::Goodput => "goodput",
            Measure::Fairness => "fairness",
            Measure::Queueing => "queueing",
            Measure::Queueing95 => "queueing95",
            Measure::Power => "power",
            Measure::Power95 => "power95",
            Measure::Received => "received",
            Measure::Closed => "closed",
            Measure::Acknowledged => "acknowledged",
            Measure::Object => "object",
            Measure::SendingRate => "sending-rate",
            Measure::Policed => "policed",
            Measure::Retransmitted => "retransmitted",
            Measure::Satisfied => "satisfied",
            Measure::Start => "start",
        }
    }

    /// For an axis.
    pub(super) fn title(self) -> &'static str {
        match self {
            Measure::Power => "Power, Mbit/s over mean queueing delay in s",
            Measure::Power95 => "Power at the 95th percentile",
            Measure::Retransmitted => "Segments retransmitted",
            measure => METRICS
                .iter()
                .find(|(one, _)| *one == measure)
                .map_or("", |(_, metric)| metric.title()),
        }
    }

    pub(super) fn quantity(self) -> Quantity {
        let of = |metric: Metric| metric.quantity();
        METRICS
            .iter()
            .find(|(one, _)| *one == self)
            .map_or(Quantity::Count, |(_, metric)| of(*metric))
    }
}

const ALL: [Measure; 15] = [
    Measure::Goodput,
    Measure::Fairness,
    Measure::Queueing,
    Measure::Queueing95,
    Measure::Power,
    Measure::Power95,
    Measure::Received,
    Measure::Closed,
    Measure::Acknowledged,
    Measure::Object,
    Measure::SendingRate,
    Measure::Policed,
    Measure::Retransmitted,
    Measure::Satisfied,
    Measure::Start,
];
