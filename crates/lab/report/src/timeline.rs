//! What legs and queues did over time, of runs whose records have series.

use std::collections::BTreeMap;

use midspan_scenario::record::{LegSeries, LinkSeries, Record, SeriesRecord, Variant};
use midspan_scenario::summary::{CellSummary, Measurability, Summary};
use midspan_scenario::{Direction, Scenario};

use crate::plot::sheet::Source;
use crate::plot::trace::{Curve, Panel, Trace};
use crate::view::{cell_name, variant_name};
use midspan_units::number::Quantity;

/// One cell, with a drawing for each variant that has series, all on the same axes.
pub(crate) struct Timelines {
    /// As [`cell_name`].
    pub(crate) cell: String,
    /// Variant and run, and what it did.
    pub(crate) runs: Vec<(String, Trace)>,
}

/// Points of a curve: about two for each pixel that it has on a telephone.
const POINTS: usize = 480;

/// What a leg was at each look.
type Values = fn(&LegSeries) -> Vec<f64>;

/// What a leg's panels show.
const OF_LEGS: [(&str, Quantity, Values); 4] = [
    ("Congestion window, segments", Quantity::Count, |leg| floats(&leg.cwnd)),
    ("Round-trip time, smoothed", Quantity::Duration, |leg| {
        leg.rtt_us.iter().map(|us| f64::from(*us) / 1e6).collect()
    }),
    ("Delivery rate", Quantity::Rate, |leg| leg.delivery_rate_bps.clone()),
    ("Segments retransmitted so far", Quantity::Count, |leg| floats(&leg.retransmits)),
];

/// Of each cell and variant the first measured run that has series, in the sweep's order.
pub(crate) fn of(scenario: &Scenario, summary: &Summary, records: &[Record]) -> Vec<Timelines> {
    let of_cell = |cell: &CellSummary| {
        let of_scenario = scenario.cells().iter().find(|one| one.labels == cell.labels)?;
        let direction = of_scenario.spec.workload.direction();
        let mut runs: Vec<(String, Trace)> = cell
            .variants
            .iter()
            .filter(|variant| variant.measurability == Measurability::Measurable)
            .filter_map(|variant| {
                let (record, series) = first(records, &cell.labels, variant.variant)?;
                let title =
                    format!("{}, run {}", variant_name(record.variant), record.repetition + 1);
                Some((title.clone(), trace(title, series, direction)))
            })
            .collect();
        share_axes(&mut runs);
        let cell = cell_name(scenario, &cell.labels);
        (!runs.is_empty()).then_some(Timelines { cell, runs })
    };
    summary.cells.iter().filter_map(of_cell).collect()
}

/// The first repetition that has series. Of a run that was repeated only the last record counts.
fn first<'a>(
    records: &'a [Record],
    labels: &BTreeMap<String, String>,
    variant: Variant,
) -> Option<(&'a Record, &'a SeriesRecord)> {
    let runs: BTreeMap<u32, &Record> = records
        .iter()
        .filter(|record| record.cell == *labels && record.variant == variant)
        .map(|record| (record.repetition, record))
        .collect();
    runs.into_values().find_map(|run| Some((run, run.measurement()?.bulk()?.series.as_ref()?)))
}

fn trace(description: String, series: &SeriesRecord, direction: Direction) -> Trace {
    let legs: Vec<&LegSeries> =
        series.legs.iter().filter(|leg| sends(&leg.host, &leg.leg, direction)).collect();
    let of_legs = OF_LEGS.into_iter().map(|(title, quantity, values)| {
        let curve = |leg: &&LegSeries| {
            let (name, hue) = leg_name(leg);
            curve(name, hue, &leg.at_s, values(leg))
        };
        panel(title, quantity, legs.iter().map(curve).collect())
    });
    let way = match direction {
        Direction::Upload => "up",
        Direction::Download => "down",
    };
    let links = series.links.iter().filter(|link| link.way == way);
    let links: Vec<Curve> = links
        .map(|link| {
            let (name, hue) = link_name(link);
            curve(name, hue, &link.at_s, link.waiting_bytes.iter().map(|it| *it as f64).collect())
        })
        .collect();
    let mut panels: Vec<Panel> = of_legs.collect();
    panels.push(panel("Waiting on the links, in the data's direction", Quantity::Size, links));
    panels.retain(|panel| !panel.curves.is_empty());
    Trace {
        description: format!(
            "{description}: window, round-trip time, rate and retransmissions of each leg, and what waits on the \
             links, over time"
        ),
        x_title: "Time since the run began".to_owned(),
        x_quantity: Quantity::Duration,
        x_from_zero: true,
        x_up_to: 0.0,
        panels,
    }
}

/// Whether the data leave this host by this leg: what the other ends have to say is about acknowledgements.
fn sends(host: &str, leg: &str, direction: Direction) -> bool {
    match direction {
        Direction::Upload => host == "ue" || host == "mec" && leg == "server",
        Direction::Download => host == "server" || host == "mec" && leg == "client",
    }
}

/// One name and colour for all flows' legs of a kind.
fn leg_name(leg: &LegSeries) -> (&'static str, usize) {
    match (&*leg.host, &*leg.leg) {
        ("ue", "client") => ("client leg, sent by the UE", 1),
        ("mec", "client") => ("client leg, sent by the proxy", 1),
        ("mec", _) => ("server leg, sent by the proxy", 2),
        ("server", "server") => ("server leg, sent by the server", 2),
        _ => ("end to end", 0),
    }
}

fn link_name(link: &LinkSeries) -> (&str, usize) {
    match &*link.link {
        "access" => ("access link", 3),
        "wide" => ("wide area", 5),
        other => (other, 6),
    }
}

fn curve(name: &str, hue: usize, at_s: &[f64], values: Vec<f64>) -> Curve {
    let points: Vec<(f64, f64)> = at_s.iter().copied().zip(values).collect();
    Curve {
        name: name.to_owned(),
        hue,
        // All are of one backend: there is nothing to tell apart.
        source: Source::Live,
        points: thinned(&points, POINTS),
        joined: true,
        marked: false,
    }
}

fn panel(title: &str, quantity: Quantity, curves: Vec<Curve>) -> Panel {
    Panel {
        title: title.to_owned(),
        quantity,
        from_zero: true,
        up_to: 0.0,
        names: Vec::new(),
        curves,
        rules: Vec::new(),
    }
}

/// Lets all go as far as the one that goes furthest, so that they can be compared by eye.
fn share_axes(runs: &mut [(String, Trace)]) {
    let greatest = |values: Vec<f64>| values.into_iter().fold(0.0, f64::max);
    let points = |panel: &Panel| -> Vec<(f64, f64)> {
        panel.curves.iter().flat_map(|curve| curve.points.clone()).collect()
    };
    let panels = || runs.iter().flat_map(|(_, trace)| &trace.panels);
    let along = greatest(panels().flat_map(points).map(|point| point.0).collect());
    let mut up: BTreeMap<String, f64> = BTreeMap::new();
    for panel in panels() {
        let most = greatest(points(panel).into_iter().map(|point| point.1).collect());
        let known = up.entry(panel.title.clone()).or_default();
        *known = known.max(most);
    }
    for (_, trace) in runs {
        trace.x_up_to = along;
        for panel in &mut trace.panels {
            panel.up_to = up[&panel.title];
        }
    }
}

/// Of each stretch of time the least and the greatest, in their order, so that no peak is lost; about `most` points in
/// all.
fn thinned(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    if points.len() <= most {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(most + 2);
    for stretch in points.chunks(points.len().div_ceil(most / 2)) {
        let by_value = |one: &&(f64, f64), other: &&(f64, f64)| one.1.total_cmp(&other.1);
        let least = stretch.iter().min_by(by_value);
        let greatest = stretch.iter().max_by(by_value);
        let (Some(least), Some(greatest)) = (least, greatest) else { continue };
        let (before, after) =
            if least.0 <= greatest.0 { (least, greatest) } else { (greatest, least) };
        kept.push(*before);
        if after != before {
            kept.push(*after);
        }
    }
    kept
}

fn floats(values: &[u32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn thinning_keeps_order_and_peaks(values in prop::collection::vec(0.0..1e9f64, 1..3000), most in 2..600usize) {
            let points: Vec<(f64, f64)> =
                values.iter().enumerate().map(|(at, value)| (at as f64, *value)).collect();
            let kept = thinned(&points, most);
            prop_assert!(kept.len() <= most.max(2) + 2);
            prop_assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0));
            prop_assert!(kept.iter().all(|point| points.contains(point)));
            let extremes = |points: &[(f64, f64)]| {
                points.iter().fold((f64::MAX, 0.0f64), |(least, most), point| {
                    (least.min(point.1), most.max(point.1))
                })
            };
            prop_assert_eq!(extremes(&kept), extremes(&points));
        }
    }

    #[test]
    fn the_end_that_sends_speaks_for_a_leg() {
        let all = [
            ("ue", "end-to-end"),
            ("ue", "client"),
            ("mec", "client"),
            ("mec", "server"),
            ("server", "server"),
            ("server", "end-to-end"),
        ];
        let of = |direction| -> Vec<_> {
            all.into_iter().filter(|(host, leg)| sends(host, leg, direction)).collect()
        };
        assert_eq!(
            of(Direction::Upload),
            [("ue", "end-to-end"), ("ue", "client"), ("mec", "server")]
        );
        assert_eq!(
            of(Direction::Download),
            [("mec", "client"), ("server", "server"), ("server", "end-to-end")]
        );
    }
}
