//! Gains of many cells at a glance: a table for each proxy, rows and columns along the sweep's two longest axes,
//! coloured from slower to faster.

use std::collections::BTreeMap;

use maud::{Markup, html};
use midspan_scenario::record::Variant;
use midspan_scenario::summary::{CellSummary, Gain, Summary};
use midspan_scenario::{Axis, Metric, Scenario};

use crate::charts::gain_with_interval;
use crate::conclusion::{SAME, is_open};
use crate::view::{Entry, axis_name, cell_name, variant_name};
use midspan_units::number::factor;

/// From so many cells on a list of them is no picture.
const MANY: usize = 12;
/// Shades on either side of what makes no difference.
const SHADES: f64 = 4.0;
/// From one shade to the next the gain is 1.5 times as great.
const STEP: f64 = 1.5;

/// The cells at one point along the axes that rows and columns leave over.
struct Panel<'a> {
    title: String,
    /// By the labels along rows and columns.
    cells: BTreeMap<(&'a str, &'a str), &'a CellSummary>,
}

/// A map of gains by `metric` for each variant that has some; none of few cells, or of a single axis.
pub(super) fn maps(scenario: &Scenario, summary: &Summary, metric: &Metric) -> Option<Markup> {
    let (down, across) = longest_two(scenario)?;
    let gain = |cell: &CellSummary, variant| gain(cell, variant, metric);
    let mut variants = scenario.variants.clone();
    variants.retain(|variant| summary.cells.iter().any(|cell| gain(cell, *variant).is_some()));
    if summary.cells.len() < MANY || variants.is_empty() {
        return None;
    }
    let panels = panels(scenario, summary, down, across);
    Some(html! {
        h2 { "Gain in all cells" }
        @for variant in variants {
            @let worst = worst(summary, variant, metric);
            h3 { (variant_name(variant)) }
            div class="heats" { @for panel in &panels {
                figure { table class="heat" {
                    @if !panel.title.is_empty() { caption { (panel.title) } }
                    thead {
                        tr {
                            td {}
                            th colspan=(across.points.len()) { (axis_name(&across.name)) }
                        }
                        tr {
                            th class="text" { (axis_name(&down.name)) }
                            @for point in &across.points { th scope="col" { (point) } }
                        }
                    }
                    tbody { @for row in &down.points { tr {
                        th class="text" scope="row" { (row) }
                        @for column in &across.points {
                            @match panel.cells.get(&(row.as_str(), column.as_str())) {
                                Some(cell) => (square(cell, variant, metric, worst)),
                                None => td {},
                            }
                        }
                    } } }
                } }
            } }
        }
        p class="caption" {
            "Gain over no proxy: blue is faster, orange slower, each shade by a factor of " (STEP)
            ", the last one for all beyond; without a colour are gains within 3 % and within the runs' spread. The worst \
             cell of each proxy has a frame, and says so."
        }
    })
}

fn square(
    cell: &CellSummary,
    variant: Variant,
    metric: &Metric,
    worst: Option<&CellSummary>,
) -> Markup {
    let Some(gain) = gain(cell, variant, metric) else {
        let entry = Entry::of(cell.variant(variant), metric);
        return html! { td class="missing" title=(entry.spelled_out()) { (entry.instead()) } };
    };
    let is_worst = worst.is_some_and(|worst| worst.labels == cell.labels);
    html! {
        td class={ (shade(&gain)) @if is_worst { " worst" } } title=(gain_with_interval(&gain)) {
            (factor(gain.mean)) " x"
            @if is_worst { small { "worst" } }
        }
    }
}

/// Of a cell that gives a number.
fn gain(cell: &CellSummary, variant: Variant, metric: &Metric) -> Option<Gain> {
    let summary = cell.variant(variant);
    let measured = matches!(Entry::of(summary, metric), Entry::Measured(_));
    summary.and_then(|summary| metric.gain(summary)).filter(|_| measured)
}

fn worst<'a>(summary: &'a Summary, variant: Variant, metric: &Metric) -> Option<&'a CellSummary> {
    let gains = summary.cells.iter().filter_map(|cell| Some((cell, gain(cell, variant, metric)?)));
    let least = gains.min_by(|(_, one), (_, other)| one.mean.total_cmp(&other.mean));
    least.map(|(cell, _)| cell)
}

/// `faster-1` to `faster-4`, and the same the other way.
fn shade(gain: &Gain) -> String {
    if is_open(gain) || (gain.mean - 1.0).abs() <= SAME {
        return "even".to_owned();
    }
    let steps = (gain.mean.ln().abs() / STEP.ln()).ceil().clamp(1.0, SHADES);
    let way = if gain.mean > 1.0 { "faster" } else { "slower" };
    format!("{way}-{steps}")
}

/// The axes with the most points: of rows and of columns, which are the more.
fn longest_two(scenario: &Scenario) -> Option<(&Axis, &Axis)> {
    let mut axes: Vec<&Axis> = scenario.axes.iter().filter(|axis| axis.points.len() > 1).collect();
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.points.len()));
    match axes.as_slice() {
        [across, down, ..] => Some((down, across)),
        _ => None,
    }
}

fn panels<'a>(
    scenario: &Scenario,
    summary: &'a Summary,
    down: &Axis,
    across: &Axis,
) -> Vec<Panel<'a>> {
    let mut panels: Vec<Panel<'a>> = Vec::new();
    for cell in &summary.cells {
        let label = |axis: &Axis| cell.labels.get(&axis.name).map_or("", String::as_str);
        let place = (label(down), label(across));
        let mut others = cell.labels.clone();
        others.retain(|axis, _| *axis != down.name && *axis != across.name);
        let title = cell_name(scenario, &others);
        match panels.iter_mut().find(|known| known.title == title) {
            Some(panel) => drop(panel.cells.insert(place, cell)),
            None => panels.push(Panel { title, cells: [(place, cell)].into() }),
        }
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_are_as_far_apart_either_way() {
        let shade = |mean| {
            let ci95 = Some((mean * 0.99, mean * 1.01));
            super::shade(&Gain { n: 3, mean, ci95, min: mean, max: mean })
        };
        for (gain, expected) in [
            (1.02, "even"),
            (1.1, "faster-1"),
            (1.6, "faster-2"),
            (100.0, "faster-4"),
            (1.0 / 1.1, "slower-1"),
            (1.0 / 1.6, "slower-2"),
            (0.001, "slower-4"),
        ] {
            assert_eq!(shade(gain), expected, "{gain}");
        }
        let wide = Gain { n: 3, mean: 1.2, ci95: Some((0.8, 1.7)), min: 0.8, max: 1.7 };
        assert_eq!(super::shade(&wide), "even");
    }
}
