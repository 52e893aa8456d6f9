//! The result as aligned text.

use midspan_scenario::metric::{GOODPUT, Sample};
use midspan_scenario::record::Variant;
use midspan_scenario::summary::{CellSummary, Summary, VariantSummary};
use midspan_scenario::{Metric, Scenario, Stats};

use crate::factors;
use crate::grid::{Cell, Grid, Look, painted, wrapped};
use crate::view::{self, Entry, Paper, axis_name, variant_name};
use midspan_units::number::{Quantity, factor};

/// Where text will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Columns; running text is broken there. Tables are as wide as they need to be, 80 to 100
    /// columns for three variants.
    pub width: usize,
    /// Whether to use bold and dim.
    pub colour: bool,
}

impl Terminal {
    /// A pipe or a file: 80 columns and no colour.
    pub const PLAIN: Terminal = Terminal { width: 80, colour: false };

    /// A terminal of `width` columns; `no_color` is the environment's `NO_COLOR`, which forbids
    /// colour if it is there and not empty.
    pub fn new(width: usize, no_color: Option<&str>) -> Self {
        Terminal { width: width.max(40), colour: no_color.is_none_or(str::is_empty) }
    }
}

/// The tables of every metric, and what must be said of runs without numbers.
pub(crate) fn tables(scenario: &Scenario, summary: &Summary, terminal: Terminal) -> String {
    let mut out = String::new();
    for metric in Metric::shown_in(scenario, summary) {
        let table = Table::of(scenario, summary, metric);
        out.push('\n');
        out.push_str(&table.caption());
        out.push('\n');
        out.push_str(&table.grid().render(terminal.colour));
    }
    if factors::any(summary) {
        out.push('\n');
        out.push_str(&wrapped(&factors::caption(scenario, summary), terminal.width, 0));
        out.push('\n');
        out.push_str(&factors::grid(summary).render(terminal.colour));
    }
    for trouble in view::troubles(scenario, summary) {
        out.push('\n');
        out.push_str(&wrapped(&trouble, terminal.width, 2));
    }
    out
}

/// The headline above the tables.
pub(crate) fn heading(scenario: &Scenario, terminal: Terminal) -> String {
    let title = match &scenario.figure {
        Some(figure) => format!("{} ({figure})", scenario.title),
        None => scenario.title.clone(),
    };
    painted(&wrapped(&title, terminal.width, 0), Look::Bold, terminal.colour) + "\n"
}

/// One metric's table.
struct Table<'a> {
    scenario: &'a Scenario,
    metric: &'static Metric,
    cells: Vec<&'a CellSummary>,
    /// The variants, in the scenario's order.
    variants: Vec<Variant>,
    /// Those of them that have gains.
    gains: Vec<Variant>,
}

impl<'a> Table<'a> {
    fn of(scenario: &'a Scenario, summary: &'a Summary, metric: &'static Metric) -> Self {
        let cells: Vec<&CellSummary> = summary.cells.iter().collect();
        let some = |cell: &&CellSummary, variant: Variant, wanted: fn(&VariantSummary) -> bool| {
            cell.variant(variant).is_some_and(wanted)
        };
        let variants = scenario.variants.iter().copied();
        let gains = variants
            .clone()
            .filter(|_| metric.has_gain)
            .filter(|variant| {
                cells.iter().any(|cell| {
                    some(cell, *variant, |summary| {
                        summary.gain.is_some() || summary.reported.iter().any(|r| r.gain.is_some())
                    })
                })
            })
            .collect();
        Table { scenario, metric, cells, variants: variants.collect(), gains }
    }

    fn caption(&self) -> String {
        let unit = self.metric.quantity.axis_unit();
        let entries = self.cells.iter().flat_map(|cell| {
            self.variants.iter().map(|variant| Entry::of(cell.variant(*variant), self.metric))
        });
        let sizes: Vec<u32> = entries
            .filter_map(|entry| match entry {
                Entry::Measured(stats) => Some(stats.n),
                _ => None,
            })
            .collect();
        let of = if self.metric.sample == Sample::Runs { "runs" } else { "transfers" };
        let what = match (sizes.iter().min(), sizes.iter().max()) {
            (_, None | Some(0 | 1)) => String::new(),
            (Some(least), Some(most)) if least < most => {
                format!(": mean ± standard deviation of {least} to {most} {of}")
            }
            (_, Some(most)) => format!(": mean ± standard deviation of {most} {of}"),
        };
        format!("{}{unit}{what}", self.metric.title)
    }

    fn grid(&self) -> Grid {
        let mut grid = Grid::default();
        grid.push(self.header());
        for cell in &self.cells {
            grid.push(self.row(cell));
            if let Some(row) = self.paper_row(cell) {
                grid.push(row);
            }
        }
        grid
    }

    fn header(&self) -> Vec<Cell> {
        let axes = self.scenario.axes.iter().map(|axis| axis_name(&axis.name)).collect();
        let variants = self.variants.iter().flat_map(|variant| {
            let gain = self.gains.contains(variant).then(|| Cell::right("gain"));
            [Cell::right(variant_name(*variant)), Cell::empty()].into_iter().chain(gain)
        });
        labels(axes).chain(variants).map(|cell| cell.look(Look::Dim)).collect()
    }

    fn row(&self, cell: &CellSummary) -> Vec<Cell> {
        let axes = self.scenario.axes.iter();
        let points = axes.map(|axis| cell.labels.get(&axis.name).cloned().unwrap_or_default());
        let variants = self.variants.iter().flat_map(|variant| {
            let summary = cell.variant(*variant);
            let entry = Entry::of(summary, self.metric);
            let gain = self.gains.contains(variant).then(|| {
                let gain = summary.and_then(|summary| self.metric.gain(summary));
                let shown = gain.filter(|_| matches!(entry, Entry::Measured(_)));
                Cell::right(
                    shown.map(|gain| format!("{} x", factor(gain.mean))).unwrap_or_default(),
                )
                .look(Look::Bold)
            });
            number_cells(entry, self.metric.quantity).into_iter().chain(gain)
        });
        labels(points.collect()).chain(variants).collect()
    }

    /// The paper's numbers, below ours; none where it states none.
    fn paper_row(&self, cell: &CellSummary) -> Option<Vec<Cell>> {
        let of = |variant: Variant| match cell.variant(variant) {
            Some(summary) if *self.metric == GOODPUT => Paper::of(summary),
            _ => Paper::default(),
        };
        if !self.variants.iter().any(|variant| of(*variant).has_number()) {
            return None;
        }
        let mut points = vec![String::new(); self.scenario.axes.len().max(1)];
        points[0] = "  paper".to_owned();
        let mut row: Vec<Cell> = labels(points).collect();
        for variant in &self.variants {
            let paper = of(*variant);
            row.push(Cell::right(paper.goodput_text().unwrap_or_default()));
            row.push(Cell::empty());
            if self.gains.contains(variant) {
                row.push(Cell::right(paper.gain_text().unwrap_or_default()));
            }
        }
        Some(row.into_iter().map(|cell| cell.look(Look::Dim)).collect())
    }
}

/// The columns that name a cell: one for each axis, and one without a sweep too.
fn labels(mut texts: Vec<String>) -> impl Iterator<Item = Cell> {
    if texts.is_empty() {
        texts.push(String::new());
    }
    texts.into_iter().map(Cell::left)
}

/// Mean and spread, or what stands in their place.
fn number_cells(entry: Entry, quantity: Quantity) -> [Cell; 2] {
    let Entry::Measured(Stats { mean, deviation, .. }) = entry else {
        return [Cell::right(entry.instead()).look(Look::Dim), Cell::empty()];
    };
    let unit = match quantity {
        Quantity::Rate | Quantity::Count | Quantity::Index => String::new(),
        Quantity::Duration | Quantity::Size => format!(" {}", quantity.unit_of(mean)),
    };
    let spread = deviation.map(|deviation| format!("± {}", quantity.spread(deviation, mean)));
    let spread = format!("{}{unit}", spread.unwrap_or_default());
    [Cell::right(quantity.digits(mean)), Cell::left(spread.trim()).look(Look::Dim)]
}
