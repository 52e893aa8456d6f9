//! The page: one file that needs nothing but itself.

mod comparison;
mod details;
mod gain;
mod heat;
mod table;
mod timeline;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use midspan_scenario::metric::Sample;
use midspan_scenario::record::{Backend, Record, Variant};
use midspan_scenario::summary::CellSummary;
use midspan_scenario::{Metric, Scenario};
use midspan_units::number::bytes;

use crate::charts::{self, Titled};
use crate::machine::{Machine, utc};
use crate::plot::lines::LineChart;
use crate::plot::{Kind, Scale, legend};
use crate::view::{Mark, axis_name, cell_name, troubles, variant_name};
use crate::{Outcome, Report, factors};

pub(crate) use comparison::page as comparison_page;
pub(crate) use gain::page as gain_page;

/// Draws the page.
pub(crate) fn page(report: &Report<'_>) -> String {
    let body = html! {
        (head_of(report))
        main { (content(report)) }
        footer { p { (meaning_of_numbers()) } }
        // Ours as well. Without it tables stay as they are.
        script { (PreEscaped(include_str!("tables.js"))) }
    };
    document(&report.scenario.title, &body)
}

/// What a page of other things as well shows of a report.
pub(crate) fn body(report: &Report<'_>) -> Markup {
    html! {
        (head_of(report))
        (content(report))
        footer { p { (meaning_of_numbers()) } }
    }
}

fn head_of(report: &Report<'_>) -> Markup {
    let scenario = report.scenario;
    let conclusion = report.conclusion();
    html! {
        header {
            h1 { (scenario.title) }
            p class="lead" {
                @if let Some(figure) = &scenario.figure { (figure) " · " }
                "scenario " code { (scenario.name) }
                @if let Some(backend) = report.summary.backend { " · " (backend_name(backend)) }
            }
            div class=(tone(conclusion.outcome)) {
                @for sentence in &conclusion.sentences { p { (sentence) } }
            }
            (facts(report))
        }
    }
}

fn content(report: &Report<'_>) -> Markup {
    html! {
        (troubles_of(report))
        (results(report))
        (timeline::section(report))
        (remarks(report))
        (details_of(report))
        @if let Some(source) = report.source {
            h2 { "Scenario file" }
            pre { (source) }
        }
    }
}

/// A whole page around `body`.
pub(crate) fn document(title: &str, body: &Markup) -> String {
    document_with(title, &html! {}, body)
}

/// The same, with more in its head.
pub(crate) fn document_with(title: &str, head: &Markup, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · Midspan" }
                // The style sheet is ours and holds no markup.
                style { (PreEscaped(include_str!("style.css"))) }
                (head)
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// What was run, when, and where.
fn facts(report: &Report<'_>) -> Markup {
    let scenario = report.scenario;
    let counts = report.summary.counts;
    let variants: Vec<&str> =
        scenario.variants.iter().map(|variant| variant_name(*variant)).collect();
    let in_cells: usize = scenario.cells().iter().map(|cell| cell.variants.len()).sum();
    let planned = in_cells * scenario.repetitions as usize;
    html! {
        dl class="facts" {
            dt { "compared" } dd { (variants.join(", ")) }
            @if !scenario.axes.is_empty() { dt { "over" } dd { (axes(scenario)) } }
            dt { "runs" }
            dd {
                (counts.measured) " measured"
                @if counts.untrusted > 0 { ", " span class="bad" { (counts.untrusted) " untrusted" } }
                @if counts.failed > 0 { ", " span class="bad" { (counts.failed) " failed" } }
                " of " (planned) " planned (" (scenario.repetitions) " of each variant that a cell \
                 runs, in " (scenario.cells().len()) " cells, interleaved)"
            }
            @if let Some((first, last)) = span_of(report.records) {
                dt { "when" } dd { (utc(first)) @if utc(first) != utc(last) { " to " (utc(last)) } }
            }
            @if let Some(machine) = report.machine { (machine_facts(machine)) }
            dt { "digest" } dd { code { (report.summary.digest) } }
        }
    }
}

fn machine_facts(machine: &Machine) -> Markup {
    let versions: Vec<String> =
        machine.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let mut hardware = vec![machine.cpu.clone()];
    if machine.cores > 0 {
        let plural = if machine.cores == 1 { "" } else { "s" };
        hardware.push(format!("{} core{plural}", machine.cores));
    }
    if machine.memory_bytes > 0 {
        hardware.push(format!("{} of memory", bytes(machine.memory_bytes as f64)));
    }
    hardware.retain(|part| !part.is_empty());
    let facts = [
        ("kernel", machine.kernel.clone()),
        ("machine", hardware.join(", ")),
        ("versions", versions.join(", ")),
    ];
    html! {
        @for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
            dt { (name) } dd { (value) }
        }
    }
}

fn axes(scenario: &Scenario) -> String {
    let axes = scenario
        .axes
        .iter()
        .map(|axis| format!("{}: {}", axis_name(&axis.name), axis.points.join(", ")));
    axes.collect::<Vec<_>>().join("; ")
}

fn troubles_of(report: &Report<'_>) -> Markup {
    let troubles = troubles(report.scenario, &report.summary);
    html! {
        @if !troubles.is_empty() {
            h2 { "Runs without a number" }
            ul class="notes" { @for trouble in &troubles { li { (trouble) } } }
        }
    }
}

/// Every metric's plots and table.
fn results(report: &Report<'_>) -> Markup {
    let metrics = Metric::shown_in(report.scenario, &report.summary);
    // The first that has gains is the most honest.
    let heat = |metric: &&'static Metric| heat::maps(report.scenario, &report.summary, metric);
    let heat = metrics.iter().find_map(heat);
    let (bulk, times): (Vec<&'static Metric>, Vec<&'static Metric>) =
        metrics.into_iter().partition(|metric| metric.sample == Sample::Runs);
    html! {
        @if factors::any(&report.summary) {
            h2 { "Comparison" }
            p class="caption" { (factors::caption(report.scenario, &report.summary)) }
            (factors::table(&report.summary))
        }
        @if let Some(heat) = heat { (heat) }
        @for metric in bulk { (bar_section(report, metric)) }
        @match charts::lines(report.scenario, &report.summary, &times) {
            Some(rows) => (line_section(report, &times, &rows)),
            None => @for metric in times { (bar_section(report, metric)) },
        }
    }
}

/// One metric as bars, and its table.
fn bar_section(report: &Report<'_>, metric: &'static Metric) -> Markup {
    let (scenario, summary) = (report.scenario, &report.summary);
    let charts = charts::bars(scenario, summary, report.records, metric);
    let scale = Scale::covering(charts.iter().flat_map(|one| one.chart.values()));
    let marks: Vec<Mark> = charts.iter().flat_map(|one| one.chart.marks()).collect();
    let from_gain = marks.iter().any(|mark| matches!(mark, Mark::FromGain(_)));
    html! {
        h2 { (metric.title) }
        (legend(&named(&scenario.variants), Kind::Bars, &marks))
        @for Titled { title, chart } in &charts {
            figure {
                @if !title.is_empty() { h4 { (title) } }
                (chart.draw(scale))
            }
        }
        p class="caption" {
            (metric.meaning)
            @if from_gain {
                " A hollow mark is a gain that the paper states, times the goodput without a proxy: \
                 the paper's if it states one, else ours."
            }
        }
        (table::results(scenario, summary, metric))
    }
}

/// The times of transfers over their size: plots side by side, then a table for each.
fn line_section(
    report: &Report<'_>,
    metrics: &[&'static Metric],
    rows: &[Titled<Vec<LineChart>>],
) -> Markup {
    // One scale for all, so that they can be compared by eye.
    let all = || rows.iter().flat_map(|row| &row.chart);
    let sizes = Scale::covering_log(all().flat_map(LineChart::sizes));
    let times = Scale::covering_log(all().flat_map(LineChart::values));
    html! {
        h2 { "Response time" }
        (legend(&named(&report.scenario.variants), Kind::Lines, &[]))
        @for Titled { title, chart } in rows {
            figure {
                @if !title.is_empty() { h4 { (title) } }
                div class="panels" { @for panel in chart { div { (panel.draw(sizes, times)) } } }
            }
        }
        @for metric in metrics {
            h3 { (metric.title) }
            p class="caption" { (metric.meaning) }
            (table::results(report.scenario, &report.summary, metric))
        }
    }
}

fn named(variants: &[Variant]) -> Vec<(Variant, &'static str)> {
    variants.iter().map(|variant| (*variant, variant_name(*variant))).collect()
}

/// What is to be known of the results: why they differ, what the scenario chose, what is left out.
fn remarks(report: &Report<'_>) -> Markup {
    let scenario = report.scenario;
    let claims: Vec<(String, &str, &String)> = scenario
        .reported
        .iter()
        .filter_map(|one| {
            let name = cell_name(scenario, &one.cell);
            Some((name, variant_name(one.variant), one.note.as_ref()?))
        })
        .collect();
    html! {
        @if !report.explanations.is_empty() {
            h2 { "Why ours differ from the paper's" }
            @for paragraph in report.explanations { p { (paragraph) } }
        }
        @if !scenario.notes.is_empty() {
            h2 { "Notes" }
            ul class="notes" { @for note in &scenario.notes { li { (note) } } }
        }
        @if !claims.is_empty() {
            h3 { "What the paper says of these numbers" }
            ul class="notes" {
                @for (cell, variant, note) in &claims {
                    li { @if !cell.is_empty() { (cell) ", " } (variant) ": " (note) }
                }
            }
        }
        @if !scenario.skips.is_empty() {
            h3 { "Left out" }
            ul class="notes" { @for skip in &scenario.skips { li { (skip.because) } } }
        }
    }
}

fn details_of(report: &Report<'_>) -> Markup {
    html! {
        @if !report.records.is_empty() {
            h2 { "Every run" }
            @for cell in &report.summary.cells {
                @let records = records_of(report.records, cell);
                @if !records.is_empty() {
                    @let name = cell_name(report.scenario, &cell.labels);
                    (details::section(if name.is_empty() { "all runs" } else { &name }, &records))
                }
            }
        }
    }
}

fn records_of<'a>(records: &'a [Record], cell: &CellSummary) -> Vec<&'a Record> {
    let mut records: Vec<&Record> =
        records.iter().filter(|record| record.cell == cell.labels).collect();
    // Stable: a run that was repeated stays beside its first attempt, in the order of the attempts.
    records.sort_by_key(|record| (record.repetition, record.variant));
    records
}

fn span_of(records: &[Record]) -> Option<(u64, u64)> {
    let starts = || records.iter().map(|record| record.started_unix_ms).filter(|start| *start > 0);
    Some((starts().min()?, starts().max()?))
}

/// The class of the box around the conclusion.
fn tone(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Good => "verdict",
        Outcome::Slower => "verdict poor",
        Outcome::Unknown => "verdict unknown",
    }
}

fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::Live => "live: real kernel TCP over emulated links",
        Backend::Sim => "simulated in virtual time",
    }
}

fn meaning_of_numbers() -> &'static str {
    "A number is the mean of the measured runs, on transfers of all their transfers, ± their sample standard deviation (sd). A gain is the \
     geometric mean of the repetitions' own gains: the runs of a repetition met the same losses. A \
     run whose emulated links fell behind is untrusted and gives no number; a cell with more than \
     a tenth of such runs, and more than one, is not measurable on that machine (n/m)."
}
