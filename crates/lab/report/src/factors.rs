//! One point of an axis held against the others: as text and as a table of the page.

use maud::{Markup, html};
use midspan_scenario::metric::{GOODPUT, METRICS};
use midspan_scenario::summary::Summary;
use midspan_scenario::{Comparison, Metric, Scenario};

use crate::grid::{Cell, Grid, Look};
use crate::view::variant_name;
use midspan_units::number::{factor, shortest};

/// Whether there is anything to compare.
pub(crate) fn any(summary: &Summary) -> bool {
    compared(summary).next().is_some()
}

/// The comparisons that have a number.
fn compared(summary: &Summary) -> impl Iterator<Item = &Comparison> {
    summary.comparisons.iter().filter(|comparison| comparison.factors(&GOODPUT).is_some())
}

/// In a sentence, above the table.
pub(crate) fn caption(scenario: &Scenario, summary: &Summary) -> String {
    let point = scenario.compare.as_ref().map_or("", |compare| &compare.point);
    let cells = summary.comparisons.iter().filter_map(|comparison| comparison.factors(&GOODPUT));
    let most = cells.map(|factors| factors.n).max().unwrap_or(0);
    format!("{point} over each of the others, as factors: mean; median of up to {most} cells")
}

/// The table of `summary`.
pub(crate) fn grid(summary: &Summary) -> Grid {
    let mut grid = Grid::default();
    let several = several(summary);
    let mut header = vec![Cell::left("against")];
    for (_, title) in shown(summary) {
        header.extend([Cell::right(title), Cell::empty()]);
    }
    grid.push(header.into_iter().map(|cell| cell.look(Look::Dim)).collect());
    for comparison in compared(summary) {
        let mut row = vec![Cell::left(name(comparison, several))];
        for (metric, _) in shown(summary) {
            let factors = comparison.factors(metric);
            row.push(Cell::right(factors.map_or("–".to_owned(), |f| factor(f.mean))));
            let paper = comparison.reported.as_ref().and_then(|one| one.of(metric));
            let median = factors.map(|f| format!("; {}", factor(f.median))).unwrap_or_default();
            let paper = paper.map(|paper| format!(" (paper {})", shortest(paper)));
            row.push(Cell::left(median + &paper.unwrap_or_default()));
        }
        grid.push(row);
    }
    grid
}

/// The same on the page.
pub(crate) fn table(summary: &Summary) -> Markup {
    let several = several(summary);
    html! {
        div class="scroll" { table {
            thead {
                tr {
                    th class="text" rowspan="2" { "against" }
                    @for (_, title) in shown(summary) { th colspan="4" { (title) } }
                }
                tr { @for _ in shown(summary) {
                    th { "mean" } th { "median" } th { "range" } th { "paper" }
                } }
            }
            tbody { @for comparison in compared(summary) { tr {
                td class="text" { (name(comparison, several)) }
                @for (metric, _) in shown(summary) {
                    @match comparison.factors(metric) {
                        Some(factors) => {
                            td title={ "n = " (factors.n) } { (factor(factors.mean)) }
                            td { (factor(factors.median)) }
                            td { (factor(factors.min)) " – " (factor(factors.max)) }
                        }
                        None => { td class="missing" { "–" } td {} td {} }
                    }
                    td class="reported" {
                        @if let Some(paper) = comparison.reported.as_ref().and_then(|one| one.of(metric)) {
                            (shortest(paper))
                        }
                    }
                }
            } } }
        } }
    }
}

/// What is compared and has a number somewhere, and what it is called.
fn shown(summary: &Summary) -> impl Iterator<Item = (&'static Metric, &'static str)> {
    METRICS
        .iter()
        .filter_map(|metric| Some((metric, metric.compared?)))
        .filter(|(metric, _)| compared(summary).any(|one| one.factors(metric).is_some()))
}

/// Whether more than one variant is compared.
fn several(summary: &Summary) -> bool {
    let variants: std::collections::BTreeSet<_> =
        compared(summary).map(|comparison| comparison.variant).collect();
    variants.len() > 1
}

fn name(comparison: &Comparison, several: bool) -> String {
    match several {
        true => format!("{}, {}", comparison.against, variant_name(comparison.variant)),
        false => comparison.against.clone(),
    }
}
