//! Records as tables: one row for each run, or for each of what a run has several of.

use std::collections::BTreeSet;

use midspan_scenario::Direction;
use midspan_scenario::metric::METRICS;
use midspan_scenario::record::{
    BusyRecord, DelayRecord, DirectionRecord, LegRecord, LegSeries, Measurement, Outcome, Record,
    SeriesRecord, TransferRecord, VideoRecord,
};

use crate::Table;

type Make = fn(&[Record]) -> Table;

/// By name.
const TABLES: [(&str, Make); 8] = [
    ("runs", runs),
    ("flows", flows),
    ("transfers", transfers),
    ("videos", videos),
    ("legs", legs),
    ("links", links),
    ("leg_series", leg_series),
    ("link_series", link_series),
];

/// The names of all tables.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(name, _)| *name)
}

/// The table called `name`, of `records`; none if there is no such table. Its rows are in the records' order.
pub fn named(name: &str, records: &[Record]) -> Option<Table> {
    TABLES.iter().find(|(known, _)| *known == name).map(|(_, make)| make(records))
}

fn runs(records: &[Record]) -> Table {
    let mut columns = Table::default();
    columns.text("scenario", records.iter().map(|record| Some(&*record.scenario)));
    columns.text("digest", records.iter().map(|record| Some(&*record.digest)));
    let backends: Vec<String> =
        records.iter().map(|record| format!("{:?}", record.backend).to_lowercase()).collect();
    columns.text("backend", backends.iter().map(|backend| Some(&**backend)));
    let rows: Vec<(&Record, ())> = records.iter().map(|record| (record, ())).collect();
    which_run(&mut columns, records, &rows);
    columns.count("seed", "", records.iter().map(|record| Some(record.seed)));
    let started = |record: &Record| (record.started_unix_ms > 0).then_some(record.started_unix_ms);
    columns.count("started", "ms since 1970-01-01 UTC", records.iter().map(started));
    let outcome = |record: &Record| match &record.outcome {
        Outcome::Measured(_) => ("measured", None),
        Outcome::Untrusted { reason, .. } => ("untrusted", Some(reason.clone())),
        Outcome::Failed { reason } => ("failed", Some(reason.clone())),
    };
    let outcomes: Vec<_> = records.iter().map(outcome).collect();
    columns.text("outcome", outcomes.iter().map(|(outcome, _)| Some(*outcome)));
    columns.text("reason", outcomes.iter().map(|(_, reason)| reason.as_deref()));
    let run = |value: fn(&Measurement) -> Option<f64>| {
        records.iter().map(move |record| value(record.measurement()?))
    };
    columns.number("measured_s", "s", run(|run| Some(run.measured_s)));
    let retransmits = |record: &Record| Some(record.measurement()?.sender_retransmits);
    columns.count("sender_retransmits", "segments", records.iter().map(retransmits));
    for metric in METRICS {
        let Some((name, unit)) = metric.column else { continue };
        // One number a run has no direction.
        let value = |record: &Record| {
            metric.values(record.measurement()?, Direction::Upload).first().copied()
        };
        columns.number(name, unit, records.iter().map(value));
    }
    let held = |value: fn(&DelayRecord) -> f64| {
        records.iter().map(move |record| Some(value(record.measurement()?.bulk()?.held.as_ref()?)))
    };
    columns.number("held_p50_us", "us", held(|held| held.p50_us));
    columns.number("held_p99_us", "us", held(|held| held.p99_us));
    columns
}

fn flows(records: &[Record]) -> Table {
    let mut columns = Table::default();
    let rows = spread(records, |run| flow_rates(run).iter().copied().enumerate().collect());
    which_run(&mut columns, records, &rows);
    columns.count("flow", "", rows.iter().map(|(_, (flow, _))| Some(*flow as u64)));
    columns.number("goodput_bps", "bit/s", rows.iter().map(|(_, (_, bps))| Some(*bps)));
    columns
}

fn transfers(records: &[Record]) -> Table {
    let mut columns = Table::default();
    let rows = spread(records, |run| run.transfers().iter().enumerate().collect());
    which_run(&mut columns, records, &rows);
    columns.count("transfer", "", rows.iter().map(|(_, (number, _))| Some(*number as u64)));
    columns.count("bytes", "B", rows.iter().map(|(_, (_, transfer))| Some(transfer.bytes)));
    let of = |value: fn(&TransferRecord) -> f64| {
        rows.iter().map(move |(_, (_, transfer))| Some(value(transfer)))
    };
    columns.number("connected_s", "s", of(|transfer| transfer.connected_s));
    columns.number("acknowledged_s", "s", of(|transfer| transfer.acknowledged_s));
    columns.number("closed_s", "s", of(|transfer| transfer.closed_s));
    columns.number("received_s", "s", of(|transfer| transfer.received_s));
    columns
}

fn videos(records: &[Record]) -> Table {
    let mut columns = Table::default();
    let rows = spread(records, |run| run.videos().iter().enumerate().collect());
    which_run(&mut columns, records, &rows);
    columns.count("video", "", rows.iter().map(|(_, (number, _))| Some(*number as u64)));
    let of = |value: fn(&VideoRecord) -> Option<f64>| {
        rows.iter().map(move |(_, (_, video))| value(video))
    };
    columns.number("start_s", "s", of(|video| video.start_s));
    columns.count("stalls", "", rows.iter().map(|(_, (_, video))| Some(u64::from(video.stalls))));
    columns.number("stalled_s", "s", of(|video| Some(video.stalled_s)));
    columns
}

fn legs(records: &[Record]) -> Table {
    let mut columns = Table::default();
    let rows = spread(records, |run| run.legs.iter().collect());
    which_run(&mut columns, records, &rows);
    let word = |value: fn(&LegRecord) -> &str| rows.iter().map(move |(_, leg)| Some(value(leg)));
    columns.text("host", word(|leg| &leg.host));
    columns.text("leg", word(|leg| &leg.leg));
    columns.text("congestion_control", word(|leg| &leg.congestion_control));
    let count = |value: fn(&LegRecord) -> u64| rows.iter().map(move |(_, leg)| Some(value(leg)));
    columns.count("rtt_us", "us", count(|leg| leg.rtt_us.into()));
    columns.count("min_rtt_us", "us", count(|leg| leg.min_rtt_us.into()));
    columns.count("cwnd", "segments", count(|leg| leg.cwnd.into()));
    columns.count("retransmits", "segments", count(|leg| leg.retransmits.into()));
    columns.count("bytes_acked", "B", count(|leg| leg.bytes_acked));
    columns.count("bytes_received", "B", count(|leg| leg.bytes_received));
    let rate = rows.iter().map(|(_, leg)| Some(leg.delivery_rate_bps));
    columns.number("delivery_rate_bps", "bit/s", rate);
    columns.count("dsack_dups", "", count(|leg| leg.dsack_dups.into()));
    columns.count("reord_seen", "", count(|leg| leg.reord_seen.into()));
    for (name, of) in [
        ("busy_us", (|busy| busy.busy_us) as fn(BusyRecord) -> u64),
        ("rwnd_limited_us", |busy| busy.rwnd_limited_us),
        ("sndbuf_limited_us", |busy| busy.sndbuf_limited_us),
    ] {
        columns.count(name, "us", rows.iter().map(|(_, leg)| leg.busy.map(of)));
    }
    columns
}

/// A row for each way through each link.
fn links(records: &[Record]) -> Table {
    let mut columns = Table::default();
    let rows = spread(records, |run| {
        let ways =
            run.links.iter().map(|link| [(link, "up", &link.up), (link, "down", &link.down)]);
        ways.flatten().collect()
    });
    which_run(&mut columns, records, &rows);
    columns.text("link", rows.iter().map(|(_, (link, ..))| Some(&*link.link)));
    columns.text("way", rows.iter().map(|(_, (_, way, _))| Some(*way)));
    let count = |value: fn(&DirectionRecord) -> u64| {
        rows.iter().map(move |(_, (.., direction))| Some(value(direction)))
    };
    columns.count("packets_in", "packets", count(|way| way.packets_in));
    columns.count("packets_out", "packets", count(|way| way.packets_out));
    columns.count("bytes_out", "B", count(|way| way.bytes_out));
    columns.count("dropped", "packets", count(|way| way.dropped.values().sum()));
    columns.count("marked", "packets", count(|way| way.marked));
    let delay = |value: fn(&DelayRecord) -> f64| {
        rows.iter().map(move |(_, (.., direction))| direction.delay.as_ref().map(value))
    };
    columns.number("delay_mean_us", "us", delay(|delay| delay.mean_us));
    columns.number("delay_p50_us", "us", delay(|delay| delay.p50_us));
    columns.number("delay_p95_us", "us", delay(|delay| delay.p95_us));
    columns.number("delay_p99_us", "us", delay(|delay| delay.p99_us));
    columns.number("delay_max_us", "us", delay(|delay| delay.max_us));
    columns
}

/// A row for each look at each leg.
fn leg_series(records: &[Record]) -> Table {
    let mut columns = Table::default();
    let rows = spread(records, |run| {
        let legs = series(run).into_iter().flat_map(|series| &series.legs);
        legs.flat_map(|leg| (0..leg.at_s.len()).map(move |look| (leg, look))).collect()
    });
    which_run(&mut columns, records, &rows);
    let of = |value: fn(&LegSeries) -> &str| rows.iter().map(move |(_, (leg, _))| Some(value(leg)));
    columns.text("host", of(|leg| &leg.host));
    columns.text("leg", of(|leg| &leg.leg));
    let count = |value: fn(&LegSeries, usize) -> u32| {
        rows.iter().map(move |(_, (leg, look))| Some(u64::from(value(leg, *look))))
    };
    columns.count("number", "", count(|leg, _| leg.number));
    let number = |value: fn(&LegSeries, usize) -> f64| {
        rows.iter().map(move |(_, (leg, look))| Some(value(leg, *look)))
    };
    columns.number("at_s", "s", number(|leg, look| leg.at_s[look]));
    columns.count("cwnd", "segments", count(|leg, look| leg.cwnd[look]));
    columns.count("rtt_us", "us", count(|leg, look| leg.rtt_us[look]));
    let rate = number(|leg, look| leg.delivery_rate_bps[look]);
    columns.number("delivery_rate_bps", "bit/s", rate);
    columns.count("retransmits", "segments", count(|leg, look| leg.retransmits[look]));
    columns
}

/// A row for each look at each direction of a link.
fn link_series(records: &[Record]) -> Table {
    let mut columns = Table::default();
    let rows = spread(records, |run| {
        let links = series(run).into_iter().flat_map(|series| &series.links);
        links.flat_map(|link| (0..link.at_s.len()).map(move |look| (link, look))).collect()
    });
    which_run(&mut columns, records, &rows);
    columns.text("link", rows.iter().map(|(_, (link, _))| Some(&*link.link)));
    columns.text("way", rows.iter().map(|(_, (link, _))| Some(&*link.way)));
    columns.number("at_s", "s", rows.iter().map(|(_, (link, look))| Some(link.at_s[*look])));
    let waiting = rows.iter().map(|(_, (link, look))| Some(link.waiting_bytes[*look]));
    columns.count("waiting_bytes", "B", waiting);
    columns
}

fn flow_rates(run: &Measurement) -> &[f64] {
    run.bulk().map_or(&[], |bulk| &bulk.flows_bps)
}

fn series(run: &Measurement) -> Option<&SeriesRecord> {
    run.bulk()?.series.as_ref()
}

/// What measured runs have several of, each beside its run.
fn spread<'a, T>(
    records: &'a [Record],
    of: impl Fn(&'a Measurement) -> Vec<T>,
) -> Vec<(&'a Record, T)> {
    let measured = records.iter().filter_map(|record| Some((record, record.measurement()?)));
    measured.flat_map(|(record, run)| of(run).into_iter().map(move |one| (record, one))).collect()
}

/// The columns by which tables are joined: one for each axis of the sweep, with the labels of its points, then variant and
/// repetition.
fn which_run<T>(columns: &mut Table, records: &[Record], rows: &[(&Record, T)]) {
    let axes: BTreeSet<&String> = records.iter().flat_map(|record| record.cell.keys()).collect();
    for axis in axes {
        let labels = rows.iter().map(|(record, _)| record.cell.get(axis).map(String::as_str));
        columns.text(axis, labels);
    }
    let variants: Vec<String> = rows.iter().map(|(record, _)| record.variant.to_string()).collect();
    columns.text("variant", variants.iter().map(|variant| Some(&**variant)));
    columns.count("repetition", "", rows.iter().map(|(record, _)| Some(record.repetition.into())));
}
