//! The numbers of a recorded run, from its records or from its summary.

use std::collections::BTreeMap;

use midspan_scenario::metric::{GOODPUT, METRICS, POWER, POWER95, QUEUEING, QUEUEING95};
use midspan_scenario::record::{DirectionRecord, PageRecord, Record, Variant};
use midspan_scenario::summary::{Foreign, Summary};
use midspan_scenario::{Metric, Scenario};

use super::read;
use crate::view::Entry;

/// A recorded run's numbers, cell by cell.
#[derive(Debug, Default)]
pub struct Values {
    cells: Vec<Cell>,
}

#[derive(Debug)]
struct Cell {
    labels: BTreeMap<String, String>,
    /// By variant and the metric's name.
    numbers: BTreeMap<(Variant, &'static str), Number>,
    /// Of its first run, if records are there and it has any.
    delays: BTreeMap<Variant, DirectionRecord>,
    pages: BTreeMap<Variant, PageRecord>,
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
                for metric in METRICS {
                    if let Entry::Measured(stats) = Entry::of(Some(variant), metric) {
                        let deviation = stats.deviation.unwrap_or(0.0);
                        let number = Number { mean: stats.mean, deviation };
                        numbers.insert((variant.variant, metric.name), number);
                    }
                }
            }
            let (mut delays, mut pages) = (BTreeMap::new(), BTreeMap::new());
            for record in records.iter().filter(|record| record.cell == cell.labels) {
                let Some(run) = record.measurement() else { continue };
                if let Some(radio) = run.radio(spread.spec.workload.direction()) {
                    delays.entry(record.variant).or_insert_with(|| radio.clone());
                }
                if let Some(page) = run.pages().first() {
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
        for metric in METRICS {
            for entry in read::table(scenario, metric, text)? {
                cells[entry.cell].numbers.insert((entry.variant, metric.name), entry.number);
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
        metric: &'static Metric,
        labels: &Labels,
    ) -> impl Iterator<Item = (&Labels, Number)> {
        let cells = self.cells.iter().filter(move |cell| cell.has(labels));
        cells.filter_map(move |cell| {
            Some((&cell.labels, *cell.numbers.get(&(variant, metric.name))?))
        })
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
            let number = |metric: Metric| self.numbers.get(&(variant, metric.name)).copied();
            let over = |metric| Some(number(GOODPUT)?.mean / number(metric)?.mean);
            for (metric, mean) in [(POWER, over(QUEUEING)), (POWER95, over(QUEUEING95))] {
                if let Some(mean) = mean.filter(|mean| mean.is_finite()) {
                    self.numbers.insert((variant, metric.name), Number { mean, deviation: 0.0 });
                }
            }
        }
    }
}

/// The metric that a description names.
pub(super) fn metric_named(name: &str) -> Result<&'static Metric, String> {
    Metric::named(name).ok_or_else(|| {
        let names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        format!("no measure `{name}`; there are {}", names.join(", "))
    })
}
