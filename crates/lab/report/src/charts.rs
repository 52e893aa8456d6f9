//! Which plots a scenario's results are shown in, in the form in which papers show them.

use std::collections::BTreeMap;

use midspan_scenario::metric::GOODPUT;
use midspan_scenario::record::{Record, Variant};
use midspan_scenario::summary::{CellSummary, Summary};
use midspan_scenario::{Metric, Scenario, Workload};
use midspan_units::ByteSize;

use crate::plot::bars::{Bar, BarChart, Group, Value};
use crate::plot::lines::{Line, LineChart, Point};
use crate::view::{self, Entry, Paper, axis_name, cell_name, variant_name};
use midspan_units::number::factor;

/// A chart, or a row of them, and the point of the sweep that it shows; the title is empty where it
/// shows all of it.
pub(crate) struct Titled<T> {
    pub(crate) title: String,
    pub(crate) chart: T,
}

/// `metric` as grouped bars: along the axis with the most points, one chart for each point of the
/// other axes.
pub(crate) fn bars(
    scenario: &Scenario,
    summary: &Summary,
    records: &[Record],
    metric: &'static Metric,
) -> Vec<Titled<BarChart>> {
    let source = Source { scenario, records, metric };
    let along = longest_axis(scenario);
    let panels = panels(scenario, summary, along).into_iter();
    panels
        .map(|(title, cells)| Titled { chart: source.bars(&title, along, &cells), title })
        .collect()
}

/// The `metrics` of transfers as lines over their size, side by side in one row for each point of
/// the other axes; none if no axis sets the size.
pub(crate) fn lines(
    scenario: &Scenario,
    summary: &Summary,
    metrics: &[&'static Metric],
) -> Option<Vec<Titled<Vec<LineChart>>>> {
    let (along, sizes) = sizes(scenario)?;
    let panels = panels(scenario, summary, Some(along)).into_iter();
    let row = |title: &str, cells: &[&CellSummary]| {
        let chart = |metric: &&'static Metric| {
            Source { scenario, records: &[], metric }.lines(title, along, &sizes, cells)
        };
        metrics.iter().map(chart).collect()
    };
    Some(panels.map(|(title, cells)| Titled { chart: row(&title, &cells), title }).collect())
}

/// What charts draw from.
struct Source<'a> {
    scenario: &'a Scenario,
    records: &'a [Record],
    metric: &'static Metric,
}

impl Source<'_> {
    fn bars(&self, title: &str, along: Option<&str>, cells: &[&CellSummary]) -> BarChart {
        let groups = cells.iter().map(|cell| Group {
            label: along.and_then(|axis| cell.labels.get(axis)).cloned().unwrap_or_default(),
            bars: self.scenario.variants.iter().map(|variant| self.bar(cell, *variant)).collect(),
        });
        BarChart {
            description: self.description(title),
            x_title: along.map(axis_name).unwrap_or_default(),
            y_title: self.metric.title.to_owned(),
            quantity: self.metric.quantity,
            groups: groups.collect(),
        }
    }

    fn bar(&self, cell: &CellSummary, variant: Variant) -> Bar {
        let summary = cell.variant(variant);
        let entry = Entry::of(summary, self.metric);
        let gain = summary.and_then(|summary| self.metric.gain(summary));
        let measured = matches!(entry, Entry::Measured(_));
        let value = match entry {
            Entry::Measured(stats) => Value::Measured {
                mean: stats.mean,
                spread: stats.deviation.unwrap_or(0.0),
                runs: view::run_values(
                    self.scenario,
                    self.records,
                    &cell.labels,
                    variant,
                    self.metric,
                ),
            },
            Entry::Absent => Value::Missing(""),
            _ => Value::Missing(entry.spelled_out()),
        };
        Bar {
            variant,
            value,
            reported: self.paper(cell, variant).and_then(|paper| paper.mark(cell)),
            note: gain
                .filter(|_| measured)
                .map(|gain| format!("{}×", factor(gain.mean)))
                .unwrap_or_default(),
            hover: self.hover(cell, variant),
        }
    }

    fn lines(
        &self,
        title: &str,
        axis: &str,
        sizes: &BTreeMap<String, ByteSize>,
        cells: &[&CellSummary],
    ) -> LineChart {
        let lines = self.scenario.variants.iter().map(|variant| {
            let mut points: Vec<Point> = cells
                .iter()
                .filter_map(|cell| {
                    let size = sizes.get(cell.labels.get(axis)?)?;
                    self.point(cell, *variant, size.as_bytes() as f64)
                })
                .collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            Line { variant: *variant, points }
        });
        LineChart {
            description: self.description(title),
            x_title: axis_name(axis),
            title: self.metric.title.to_owned(),
            quantity: self.metric.quantity,
            lines: lines.collect(),
        }
    }

    fn point(&self, cell: &CellSummary, variant: Variant, x: f64) -> Option<Point> {
        let Entry::Measured(stats) = Entry::of(cell.variant(variant), self.metric) else {
            return None;
        };
        Some(Point {
            x,
            mean: stats.mean,
            spread: stats.deviation.unwrap_or(0.0),
            hover: self.hover(cell, variant),
        })
    }

    /// Everything that there is to say of one variant in one cell.
    fn hover(&self, cell: &CellSummary, variant: Variant) -> String {
        let quantity = self.metric.quantity;
        let summary = cell.variant(variant);
        let entry = Entry::of(summary, self.metric);
        let mut lines = vec![variant_name(variant).to_owned()];
        let name = cell_name(self.scenario, &cell.labels);
        lines.extend((!name.is_empty()).then_some(name));
        match entry {
            Entry::Measured(stats) => {
                let spread = stats
                    .deviation
                    .map(|deviation| format!(" ± {}", quantity.spread(deviation, stats.mean)));
                lines.push(format!(
                    "{}{} {} (n = {})",
                    quantity.digits(stats.mean),
                    spread.unwrap_or_default(),
                    quantity.unit_of(stats.mean),
                    stats.n
                ));
                let gain = summary.and_then(|summary| self.metric.gain(summary));
                lines.extend(gain.map(|gain| gain_with_interval(&gain)));
            }
            _ => lines.push(entry.spelled_out().to_owned()),
        }
        lines.extend(self.paper(cell, variant).map(|paper| paper.in_words()));
        lines.join("\n")
    }

    fn paper(&self, cell: &CellSummary, variant: Variant) -> Option<Paper> {
        let paper = Paper::of(cell.variant(variant)?);
        (*self.metric == GOODPUT && paper.has_number()).then_some(paper)
    }

    fn description(&self, title: &str) -> String {
        let title = if title.is_empty() { &self.scenario.title } else { title };
        format!("{}: {title}", self.metric.title)
    }
}

/// `gain 23.4 x of 3 repetitions, 95 % interval 21.0 to 26.1`.
pub(crate) fn gain_with_interval(gain: &midspan_scenario::summary::Gain) -> String {
    let interval =
        gain.ci95.map(|(low, high)| format!(", 95 % interval {} to {}", factor(low), factor(high)));
    let runs = if gain.n == 1 { "repetition" } else { "repetitions" };
    format!("gain {} x of {} {runs}{}", factor(gain.mean), gain.n, interval.unwrap_or_default())
}

/// The cells, in groups that differ along one axis only; a group's title names its point on the
/// other axes.
fn panels<'a>(
    scenario: &Scenario,
    summary: &'a Summary,
    along: Option<&str>,
) -> Vec<(String, Vec<&'a CellSummary>)> {
    let mut panels: Vec<(String, Vec<&CellSummary>)> = Vec::new();
    for cell in &summary.cells {
        let mut others = cell.labels.clone();
        others.retain(|axis, _| Some(axis.as_str()) != along);
        let title = cell_name(scenario, &others);
        match panels.iter_mut().find(|(known, _)| *known == title) {
            Some((_, cells)) => cells.push(cell),
            None => panels.push((title, vec![cell])),
        }
    }
    panels
}

/// The axis with the most points; of equal ones the last, which turns fastest.
fn longest_axis(scenario: &Scenario) -> Option<&str> {
    let longest = scenario.axes.iter().max_by_key(|axis| axis.points.len())?;
    Some(&longest.name)
}

/// The axis that sets the size of the transfers, and the size at each of its points.
fn sizes(scenario: &Scenario) -> Option<(&str, BTreeMap<String, ByteSize>)> {
    scenario.axes.iter().find_map(|axis| {
        let mut sizes = BTreeMap::new();
        for cell in scenario.cells() {
            let Workload::Transfer(transfer) = &cell.spec.workload else { return None };
            let label = cell.labels.get(&axis.name)?;
            let known = sizes.insert(label.clone(), transfer.size);
            if known.is_some_and(|known| known != transfer.size) {
                return None;
            }
        }
        let distinct: std::collections::BTreeSet<_> = sizes.values().collect();
        (distinct.len() > 1 && distinct.len() == sizes.len()).then_some((axis.name.as_str(), sizes))
    })
}
