//! The table of one metric: a row for each cell, columns for each variant.

use maud::{Markup, html};
use midspan_scenario::metric::GOODPUT;
use midspan_scenario::record::Variant;
use midspan_scenario::summary::{CellSummary, Gain, Summary};
use midspan_scenario::{Metric, Scenario, Stats};

use crate::charts::gain_with_interval;
use crate::conclusion::{SAME, is_open};
use crate::view::{Entry, Paper, axis_name, variant_name};
use midspan_units::number::{Quantity, factor, sort_key};

/// The columns of one variant.
struct Columns {
    variant: Variant,
    /// Which column of the table the first is.
    first: usize,
    gain: bool,
    paper: bool,
}

/// The table of `metric`.
pub(super) fn results(scenario: &Scenario, summary: &Summary, metric: &Metric) -> Markup {
    let mut first = scenario.axes.len();
    let columns: Vec<Columns> = scenario
        .variants
        .iter()
        .map(|variant| {
            let columns = Columns::of(summary, *variant, metric, first);
            first += columns.count();
            columns
        })
        .collect();
    let mean = match metric.quantity {
        Quantity::Rate => "Mbit/s ± sd",
        Quantity::Duration => "time ± sd",
        Quantity::Size | Quantity::Count | Quantity::Index => "mean ± sd",
    };
    html! {
        div class="scroll" { table class="sortable" {
            thead {
                tr {
                    @for (index, axis) in scenario.axes.iter().enumerate() {
                        th scope="col" class="text" rowspan="2" data-sorts=(index) { (axis_name(&axis.name)) }
                    }
                    @for column in &columns {
                        th scope="colgroup" colspan=(column.count()) { (variant_name(column.variant)) }
                    }
                }
                tr { @for column in &columns {
                    th scope="col" data-sorts=(column.first) { (mean) }
                    @if column.gain { th scope="col" data-sorts=(column.first + 1) { "gain" } }
                    @if column.paper { th scope="col" { "paper" } }
                } }
            }
            tbody { @for cell in &summary.cells { tr {
                @for axis in &scenario.axes {
                    td class="text" { (cell.labels.get(&axis.name).map_or("", String::as_str)) }
                }
                @for column in &columns { (column.cells(cell, metric)) }
            } } }
        } }
    }
}

impl Columns {
    fn of(summary: &Summary, variant: Variant, metric: &Metric, first: usize) -> Self {
        let variants = || summary.cells.iter().filter_map(move |cell| cell.variant(variant));
        Columns {
            variant,
            first,
            gain: variants().any(|variant| metric.gain(variant).is_some()),
            paper: *metric == GOODPUT && variants().any(|variant| Paper::of(variant).has_number()),
        }
    }

    fn count(&self) -> usize {
        1 + usize::from(self.gain) + usize::from(self.paper)
    }

    fn cells(&self, cell: &CellSummary, metric: &Metric) -> Markup {
        let summary = cell.variant(self.variant);
        let entry = Entry::of(summary, metric);
        let measured = matches!(entry, Entry::Measured(_));
        let gain = summary.and_then(|summary| metric.gain(summary)).filter(|_| measured);
        html! {
            (number(entry, metric.quantity))
            @if self.gain {
                td class=[gain.as_ref().and_then(tone)] data-by=[gain.and_then(|gain| sort_key(gain.mean))]
                    title=[gain.as_ref().map(gain_with_interval)] {
                    @if let Some(gain) = gain { (factor(gain.mean)) " x" }
                }
            }
            @if self.paper { td class="reported" { (summary.map(paper).unwrap_or_default()) } }
        }
    }
}

fn number(entry: Entry, quantity: Quantity) -> Markup {
    let Entry::Measured(Stats { mean, deviation, n, min, max, .. }) = entry else {
        return html! { td class="missing" title=(entry.spelled_out()) data-by="-1" { (entry.instead()) } };
    };
    let range = format!("n = {n}, from {} to {}", quantity.with_unit(min), quantity.with_unit(max));
    html! {
        td title=(range) data-by=[sort_key(mean)] {
            (quantity.digits(mean))
            @if let Some(deviation) = deviation {
                span class="spread" { " ± " (quantity.spread(deviation, mean)) }
            }
            @if quantity == Quantity::Duration { " " (quantity.unit_of(mean)) }
        }
    }
}

fn paper(summary: &midspan_scenario::summary::VariantSummary) -> String {
    let paper = Paper::of(summary);
    let numbers = [paper.goodput_text(), paper.gain_text()];
    numbers.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Colour for gains that are clearly one or the other.
fn tone(gain: &Gain) -> Option<&'static str> {
    match gain.mean {
        _ if is_open(gain) => None,
        mean if mean >= 1.0 + SAME => Some("good"),
        mean if mean <= 1.0 - SAME => Some("bad"),
        _ => None,
    }
}
