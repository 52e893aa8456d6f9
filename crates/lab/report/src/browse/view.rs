//! Which numbers of which runs are shown, along which axis.

use std::collections::BTreeMap;

use midspan_scenario::Metric;
use midspan_scenario::record::{Backend, Variant};
use midspan_scenario::summary::CellSummary;

use super::{Pick, Side};
use crate::plot::figure::{Dot, Figure, Series};
use crate::plot::sheet::Source;
use crate::view::{Entry, axis_name, variant_name};

/// Axis -> label.
type Labels = BTreeMap<String, String>;

/// An axis of any of the runs, with the points of all.
pub(super) struct Axis {
    pub(super) name: String,
    pub(super) points: Vec<String>,
}

/// One variant of one run.
#[derive(Clone, Copy)]
pub(super) struct Column {
    /// Which of the sides.
    pub(super) side: usize,
    pub(super) variant: Variant,
}

/// What is picked, with what was not picked chosen.
pub(super) struct View<'a> {
    pub(super) sides: &'a [Side<'a>],
    pub(super) metrics: Vec<&'static Metric>,
    pub(super) metric: &'static Metric,
    pub(super) axes: Vec<Axis>,
    /// The horizontal axis; none without a sweep.
    pub(super) along: Option<String>,
    /// Points that other axes are held at.
    pub(super) at: Labels,
    /// The only variant that is shown; all without.
    pub(super) through: Option<Variant>,
    /// The variants of all sides, as far as they are picked.
    pub(super) columns: Vec<Column>,
}

impl<'a> View<'a> {
    /// None if no run measures anything.
    pub(super) fn of(sides: &'a [Side<'a>], pick: &Pick) -> Option<View<'a>> {
        let mut metrics: Vec<&'static Metric> = Vec::new();
        for side in sides {
            let report = side.report;
            let all = Metric::shown_in(report.scenario, &report.summary);
            let new: Vec<&'static Metric> =
                all.into_iter().filter(|one| !metrics.contains(one)).collect();
            metrics.extend(new);
        }
        let picked = metrics.iter().find(|metric| pick.measure.as_deref() == Some(metric.name));
        let metric = *picked.or(metrics.first())?;
        let axes = axes(sides);
        // Of equally long ones the last, which turns fastest.
        let longest = axes.iter().max_by_key(|axis| axis.points.len());
        let along = axes.iter().find(|axis| Some(&axis.name) == pick.along.as_ref()).or(longest);
        let along = along.map(|axis| axis.name.clone());
        let mut at = pick.at.clone();
        at.retain(|name, label| {
            Some(name) != along.as_ref()
                && axes.iter().any(|axis| axis.name == *name && axis.points.contains(label))
        });
        let all = sides.iter().enumerate().flat_map(|(side, one)| {
            one.report
                .scenario
                .variants
                .iter()
                .map(move |variant| Column { side, variant: *variant })
        });
        let all: Vec<Column> = all.collect();
        let named = |column: &&Column| Some(column.variant.to_string()) == pick.through;
        let through = all.iter().find(named).map(|column| column.variant);
        let is_picked = |column: &Column| through.is_none_or(|variant| column.variant == variant);
        let columns = all.into_iter().filter(is_picked).collect();
        Some(View { sides, metrics, metric, axes, along, at, through, columns })
    }

    /// The cells that are shown, in the sweep's order: those of all runs, each once.
    pub(super) fn rows(&self) -> Vec<Labels> {
        let mut rows: Vec<Labels> = Vec::new();
        for cell in self.sides.iter().flat_map(|side| &side.report.summary.cells) {
            if self.takes(&cell.labels) && !rows.contains(&cell.labels) {
                rows.push(cell.labels.clone());
            }
        }
        rows
    }

    /// A run without an axis is at each of its points.
    fn takes(&self, labels: &Labels) -> bool {
        self.at.iter().all(|(axis, label)| labels.get(axis).is_none_or(|known| known == label))
    }

    /// What a column has in a cell.
    pub(super) fn entry(&self, column: Column, labels: &Labels) -> Entry {
        let cells = &self.sides[column.side].report.summary.cells;
        let cell: Option<&CellSummary> = cells.iter().find(|cell| cell.labels == *labels);
        Entry::of(cell.and_then(|cell| cell.variant(column.variant)), self.metric)
    }

    /// The same variant in the first run, which others are held against; none of the first itself.
    pub(super) fn base(&self, column: Column) -> Option<Column> {
        let is_later =
            column.side > 0 && self.sides[0].report.scenario.variants.contains(&column.variant);
        is_later.then_some(Column { side: 0, ..column })
    }

    /// `Midspan`, or with several runs `B: Midspan`.
    pub(super) fn name(&self, column: Column) -> String {
        let variant = variant_name(column.variant);
        match self.sides {
            [_] => variant.to_owned(),
            _ => format!("{}: {variant}", letter(column.side)),
        }
    }

    /// A drawing for each point of the axes that are neither the horizontal one nor held, with what that point is.
    pub(super) fn figures(&self) -> Vec<(String, Figure)> {
        let mut groups: Vec<(Labels, Vec<Labels>)> = Vec::new();
        for row in self.rows() {
            let mut others = row.clone();
            others.retain(|axis, _| Some(axis) != self.along.as_ref());
            match groups.iter_mut().find(|(known, _)| *known == others) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((others, vec![row])),
            }
        }
        let figures = groups.into_iter().map(|(others, rows)| {
            let title = self.point_name(&others);
            (title.clone(), self.figure(&title, &rows))
        });
        figures.collect()
    }

    fn figure(&self, title: &str, rows: &[Labels]) -> Figure {
        let label = |row: &Labels| {
            self.along.as_ref().and_then(|axis| row.get(axis)).cloned().unwrap_or_default()
        };
        let series = self.columns.iter().enumerate().map(|(hue, column)| Series {
            name: self.name(*column),
            hue,
            source: match self.sides[column.side].report.summary.backend {
                Some(Backend::Sim) => Source::Sim,
                _ => Source::Live,
            },
            values: rows.iter().map(|row| dot(self.entry(*column, row))).collect(),
        });
        Figure {
            description: format!("{} {title}", self.metric.title),
            x_title: self.along.as_deref().map(axis_name).unwrap_or_default(),
            y_title: self.metric.title.to_owned(),
            quantity: self.metric.quantity,
            // A line wants somewhere to go.
            bars: rows.len() < 3,
            points: rows.iter().map(label).collect(),
            series: series.collect(),
            rules: Vec::new(),
        }
    }

    /// `0.5 % loss, upload direction`, in the order of the axes.
    fn point_name(&self, labels: &Labels) -> String {
        let points = self.axes.iter().filter_map(|axis| {
            Some(format!("{} {}", labels.get(&axis.name)?, axis_name(&axis.name)))
        });
        points.collect::<Vec<_>>().join(", ")
    }
}

fn dot(entry: Entry) -> Option<Dot> {
    match entry {
        Entry::Measured(stats) => {
            Some(Dot { mean: stats.mean, spread: stats.deviation.unwrap_or(0.0) })
        }
        _ => None,
    }
}

/// The axes of all runs, each with the points of all, in the order of those that have them first.
fn axes(sides: &[Side<'_>]) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for axis in sides.iter().flat_map(|side| &side.report.scenario.axes) {
        let index = axes.iter().position(|known| known.name == axis.name).unwrap_or_else(|| {
            axes.push(Axis { name: axis.name.clone(), points: Vec::new() });
            axes.len() - 1
        });
        for point in &axis.points {
            if !axes[index].points.contains(point) {
                axes[index].points.push(point.clone());
            }
        }
    }
    axes
}

/// What the runs that are compared are called: A, B, C, D.
pub(super) fn letter(side: usize) -> char {
    ('A'..='Z').nth(side).unwrap_or('?')
}
