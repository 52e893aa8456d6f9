//! The report's plots as files: drawings that stand alone, with legend, style and ground in them.

use midspan_scenario::Metric;
use midspan_scenario::metric::Sample;
use midspan_scenario::record::{Backend, Variant};
use midspan_units::number::bytes;

use crate::Report;
use crate::charts::{self, Titled};
use crate::plot::bars::{BarChart, Value};
use crate::plot::figure::{Dot, Figure, Series};
use crate::plot::lines::LineChart;
use crate::plot::sheet::{Source, without_variables};
use crate::timeline;
use crate::view::{Mark, variant_name};

/// A drawing, and what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawing {
    /// No other drawing's of the report; letters that every file system takes. They begin with numbers in the
    /// report's order.
    pub name: String,
    /// An SVG document in light colours, of no more than what readers of SVG have in common.
    pub svg: String,
}

/// The plots of a report, in its order: each metric over the sweep, then legs and queues over time. Tables and maps of
/// gains are not among them.
pub(crate) fn of(report: &Report<'_>) -> Vec<Drawing> {
    let (scenario, summary) = (report.scenario, &report.summary);
    let source = match summary.backend {
        Some(Backend::Sim) => Source::Sim,
        _ => Source::Live,
    };
    let metrics = Metric::shown_in(scenario, summary).into_iter();
    let (bulk, times): (Vec<&Metric>, Vec<&Metric>) =
        metrics.partition(|metric| metric.sample == Sample::Runs);
    let bars = |metric: &'static Metric| {
        let charts = charts::bars(scenario, summary, report.records, metric).into_iter();
        charts.map(move |Titled { title, chart }| {
            (format!("{} {title}", metric.title), of_bars(&chart, source).draw())
        })
    };
    let mut drawings: Vec<_> = bulk.into_iter().flat_map(bars).collect();
    match charts::lines(scenario, summary, &times) {
        None => drawings.extend(times.into_iter().flat_map(bars)),
        Some(rows) => drawings.extend(rows.iter().flat_map(|Titled { title, chart }| {
            let name = move |line: &LineChart| format!("{} {title}", line.title);
            chart.iter().map(move |line| (name(line), of_lines(line, source).draw()))
        })),
    }
    let cells = timeline::of(scenario, summary, report.records);
    drawings.extend(cells.iter().flat_map(|cell| {
        let name = |run: &str| format!("over time {} {run}", cell.cell);
        cell.runs.iter().map(move |(run, trace)| (name(run), trace.draw()))
    }));
    let numbered = drawings.into_iter().enumerate();
    numbered
        .map(|(index, (name, drawing))| Drawing {
            name: format!("{:02}-{}", index + 1, plain(&name)),
            svg: format!("{}\n", without_variables(&drawing.into_string())),
        })
        .collect()
}

fn of_bars(chart: &BarChart, source: Source) -> Figure {
    let first = chart.groups.first().map(|group| &group.bars[..]).unwrap_or_default();
    let mut series: Vec<Series> = Vec::new();
    for (place, bar) in first.iter().enumerate() {
        let bars = || chart.groups.iter().map(|group| &group.bars[place]);
        let measured = bars().map(|bar| match &bar.value {
            Value::Measured { mean, spread, .. } => Some(Dot { mean: *mean, spread: *spread }),
            Value::Missing(_) => None,
        });
        let reported = |wanted: fn(Mark) -> bool| {
            let stated = bars().map(|bar| bar.reported.filter(|mark| wanted(*mark)));
            stated.map(|mark| Some(Dot { mean: mark?.value(), spread: 0.0 })).collect::<Vec<_>>()
        };
        series.push(of_variant(bar.variant, source, measured.collect()));
        let stated = reported(|mark| matches!(mark, Mark::Stated(_)));
        let from_gain = reported(|mark| matches!(mark, Mark::FromGain(_)));
        for (source, values) in [(Source::Paper, stated), (Source::PaperGain, from_gain)] {
            if values.iter().any(Option::is_some) {
                series.push(of_variant(bar.variant, source, values));
            }
        }
    }
    Figure {
        description: chart.description.clone(),
        x_title: chart.x_title.clone(),
        y_title: chart.y_title.clone(),
        quantity: chart.quantity,
        bars: true,
        points: chart.groups.iter().map(|group| group.label.clone()).collect(),
        series,
        rules: Vec::new(),
    }
}

fn of_lines(chart: &LineChart, source: Source) -> Figure {
    let mut sizes: Vec<f64> = chart.sizes().collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let series = chart.lines.iter().map(|line| {
        let dot = |size: &f64| {
            let point = line.points.iter().find(|point| point.x == *size)?;
            Some(Dot { mean: point.mean, spread: point.spread })
        };
        of_variant(line.variant, source, sizes.iter().map(dot).collect())
    });
    Figure {
        description: chart.description.clone(),
        x_title: chart.x_title.clone(),
        y_title: chart.title.clone(),
        quantity: chart.quantity,
        bars: false,
        points: sizes.iter().map(|size| bytes(*size)).collect(),
        series: series.collect(),
        rules: Vec::new(),
    }
}

fn of_variant(variant: Variant, source: Source, values: Vec<Option<Dot>>) -> Series {
    let hue = match variant {
        Variant::None => 0,
        Variant::Midspan => 1,
        Variant::Haproxy => 2,
    };
    Series { name: variant_name(variant).to_owned(), hue, source, values }
}

/// Words joined by dashes.
fn plain(name: &str) -> String {
    let name = name.to_lowercase();
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.');
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        assert_eq!(plain("Goodput loss 0.5 %, 1 Mbit/s "), "goodput-loss-0.5-1-mbit-s");
    }
}
