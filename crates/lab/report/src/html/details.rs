//! Every run of a cell: what it gave, what TCP said, what the emulated links said.

use maud::{Markup, html};
use midspan_scenario::Stats;
use midspan_scenario::record::{
    BulkRecord, BusyRecord, DirectionRecord, LegRecord, LinkRecord, Measurement, Outcome, Record,
    TransferRecord,
};

use crate::machine::utc;
use crate::view::variant_name;
use midspan_units::number::{Quantity, bytes, count, sort_key};

/// The details of one cell, closed until opened. `records` are the cell's, in the order to show.
pub(super) fn section(title: &str, records: &[&Record]) -> Markup {
    let measured = records.iter().filter(|record| record.measurement().is_some()).count();
    html! {
        details {
            summary {
                (title) " "
                span class="soft" { "— " (measured) " of " (records.len()) " runs measured" }
            }
            h4 { "Runs" }
            (runs(records))
            (transfers(records))
            @let legs = each(records, |measurement| &measurement.legs);
            @if !legs.is_empty() { h4 { "TCP, at the end of the measured time" } (leg_table(&legs)) }
            @let links = links(records);
            @if !links.is_empty() { h4 { "Emulated links" } (link_table(&links)) }
        }
    }
}

fn runs(records: &[&Record]) -> Markup {
    html! {
        div class="scroll" { table class="sortable" {
            (heads(&["<variant", "run", "<started", "seed", "goodput, Mbit/s", "acknowledged", "measured",
                "retransmits", "<remarks"]))
            tbody { @for record in records { tr {
                td class="text" { (variant_name(record.variant)) }
                td { (record.repetition + 1) }
                td class="text" { @if record.started_unix_ms > 0 { (utc(record.started_unix_ms)) } }
                td { (format!("{:016x}", record.seed)) }
                (outcome(&record.outcome))
            } } }
        } }
    }
}

fn outcome(outcome: &Outcome) -> Markup {
    let (kind, reason) = match outcome {
        Outcome::Measured(measurement) => return numbers(measurement),
        Outcome::Untrusted { reason, .. } => ("untrusted", reason),
        Outcome::Failed { reason } => ("failed", reason),
    };
    html! {
        td class="missing" colspan="4" { (kind) }
        td class="text wrap" { (reason) }
    }
}

fn numbers(run: &Measurement) -> Markup {
    let bulk = run.bulk();
    let rate = |bps: fn(&BulkRecord) -> f64| {
        bulk.map_or("–".to_owned(), |bulk| Quantity::Rate.digits(bps(bulk)))
    };
    let flows = bulk.map_or(&[][..], |bulk| &bulk.flows_bps);
    html! {
        td { (rate(|bulk| bulk.goodput_bps)) }
        td { (rate(|bulk| bulk.acknowledged_bps)) }
        (duration(run.measured_s))
        (counted(run.sender_retransmits))
        td class="text wrap" {
            @if flows.len() > 1 {
                @let flows: Vec<String> =
                    flows.iter().map(|bps| Quantity::Rate.digits(*bps)).collect();
                "flows: " (flows.join(", "))
            }
        }
    }
}

/// Transfers of a run that are listed one by one; of more there is what they were on the whole.
const LISTED: usize = 20;

fn transfers(records: &[&Record]) -> Markup {
    let transfers = each(records, Measurement::transfers);
    let most = transfers.chunk_by(|(one, _), (other, _)| std::ptr::eq(*one, *other));
    let most = most.map(<[_]>::len).max().unwrap_or(0);
    html! {
        @if most > LISTED {
            (summarised_transfers(records))
        } @else if most > 0 {
            (listed_transfers(&transfers))
        }
    }
}

fn listed_transfers(transfers: &[(&Record, &TransferRecord)]) -> Markup {
    html! {
        h4 { "Transfers, timed from the call of connect" }
        div class="scroll" { table class="sortable" {
            (heads(&["<variant", "run", "size", "connected", "acknowledged", "closed", "received"]))
            tbody { @for (record, transfer) in transfers { tr {
                (run_of(record))
                td data-by=(transfer.bytes) { (bytes(transfer.bytes as f64)) }
                @for time in TIMES { (duration(time(transfer))) }
            } } }
        } }
    }
}

/// A row for each run.
fn summarised_transfers(records: &[&Record]) -> Markup {
    let runs = records.iter().filter_map(|record| Some((record, record.measurement()?)));
    html! {
        h4 { "Transfers of each run, timed from the call of connect: medians, and the shortest and the longest until received" }
        div class="scroll" { table class="sortable" {
            (heads(&["<variant", "run", "transfers", "connected", "acknowledged", "closed", "received", "shortest",
                "longest"]))
            tbody { @for (record, run) in runs { tr {
                (run_of(record))
                (counted(run.transfers().len() as u64))
                @let stats = TIMES.map(|time| Stats::of(&run.transfers().iter().map(time).collect::<Vec<_>>()));
                @for stats in stats { (time_or_none(stats.map(|stats| stats.median))) }
                @let [.., received] = stats;
                (time_or_none(received.map(|stats| stats.min)))
                (time_or_none(received.map(|stats| stats.max)))
            } } }
        } }
    }
}

/// Connected, acknowledged, closed, received.
const TIMES: [fn(&TransferRecord) -> f64; 4] = [
    |transfer| transfer.connected_s,
    |transfer| transfer.acknowledged_s,
    |transfer| transfer.closed_s,
    |transfer| transfer.received_s,
];

fn time_or_none(seconds: Option<f64>) -> Markup {
    seconds.map_or_else(|| html! { td { "–" } }, duration)
}

/// A heading for each column, by which the table can be sorted; of text where the name begins with `<`.
fn heads(names: &[&str]) -> Markup {
    html! {
        thead { tr { @for (index, name) in names.iter().enumerate() {
            @match name.strip_prefix('<') {
                Some(name) => th scope="col" class="text" data-sorts=(index) { (name) },
                None => th scope="col" data-sorts=(index) { (name) },
            }
        } } }
    }
}

fn duration(seconds: f64) -> Markup {
    html! { td data-by=[sort_key(seconds)] { (Quantity::Duration.with_unit(seconds)) } }
}

fn counted(number: u64) -> Markup {
    html! { td data-by=(number) { (count(number)) } }
}

/// A column's heading, and its times in microseconds.
type Times = (&'static str, fn(&BusyRecord) -> u64);

/// What a leg's sender was busy with, and what it waited for.
const BUSY: [Times; 3] = [
    ("sending", |busy| busy.busy_us),
    ("waiting for the window", |busy| busy.rwnd_limited_us),
    ("for its buffer", |busy| busy.sndbuf_limited_us),
];

fn leg_table(legs: &[(&Record, &LegRecord)]) -> Markup {
    let mut columns = vec![
        "<variant",
        "run",
        "<host",
        "<leg",
        "<control",
        "RTT",
        "least RTT",
        "cwnd",
        "retransmits",
        "D-SACKs",
        "reorderings",
        "acknowledged",
        "received",
        "rate, Mbit/s",
    ];
    // Only live runs know it.
    let busy = if legs.iter().any(|(_, leg)| leg.busy.is_some()) { &BUSY[..] } else { &[] };
    columns.extend(busy.iter().map(|(name, _)| *name));
    html! {
        div class="scroll" { table class="sortable" {
            (heads(&columns))
            tbody { @for (record, leg) in legs { tr {
                (run_of(record))
                td class="text" { (leg.host) }
                td class="text" { (leg.leg) }
                td class="text" { (leg.congestion_control) }
                @for us in [leg.rtt_us, leg.min_rtt_us] { (duration(f64::from(us) / 1e6)) }
                @for number in [leg.cwnd, leg.retransmits, leg.dsack_dups, leg.reord_seen] { (counted(number.into())) }
                @for size in [leg.bytes_acked, leg.bytes_received] { td data-by=(size) { (bytes(size as f64)) } }
                td { (Quantity::Rate.digits(leg.delivery_rate_bps)) }
                @for (_, of) in busy { (time_or_none(leg.busy.as_ref().map(|busy| of(busy) as f64 / 1e6))) }
            } } }
        } }
    }
}

fn link_table(links: &[(&Record, &LinkRecord)]) -> Markup {
    let time = |us: f64| Quantity::Duration.with_unit(us / 1e6);
    html! {
        div class="scroll" { table {
            thead {
                tr {
                    th colspan="3" {} th colspan="4" { "lateness" } th {}
                    th colspan="3" { "up: packets" } th colspan="3" { "down: packets" }
                }
                tr {
                    th class="text" { "variant" } th { "run" } th class="text" { "link" }
                    th { "median" } th { "99 %" } th { "99.9 %" } th { "worst" }
                    th { "lost unintended" }
                    @for _ in 0..2 { th { "in" } th { "out" } th class="text" { "dropped by intent" } }
                }
            }
            tbody { @for (record, link) in links { tr {
                (run_of(record))
                td class="text" { (link.link) }
                @let late = &link.lateness;
                @for us in [late.p50_us, late.p99_us, late.p999_us, late.max_us] { td { (time(us)) } }
                td class=[(link.unintended_drops > 0).then_some("bad")] { (count(link.unintended_drops)) }
                (packets(&link.up)) (packets(&link.down))
            } } }
        } }
    }
}

fn packets(direction: &DirectionRecord) -> Markup {
    let mut causes: Vec<String> =
        direction.dropped.iter().map(|(cause, n)| format!("{cause} {}", count(*n))).collect();
    if direction.marked > 0 {
        causes.push(format!("marked {}", count(direction.marked)));
    }
    html! {
        td { (count(direction.packets_in)) }
        td { (count(direction.packets_out)) }
        td class="text" { @if causes.is_empty() { "–" } @else { (causes.join(", ")) } }
    }
}

fn run_of(record: &Record) -> Markup {
    html! { td class="text" { (variant_name(record.variant)) } td { (record.repetition + 1) } }
}

/// What `part` gives for every measured run, beside its run.
fn each<'a, T>(
    records: &[&'a Record],
    part: impl Fn(&'a Measurement) -> &'a [T],
) -> Vec<(&'a Record, &'a T)> {
    let measured = records.iter().filter_map(|record| Some((*record, record.measurement()?)));
    measured.flat_map(|(record, run)| part(run).iter().map(move |item| (record, item))).collect()
}

/// The links of every run that has them, untrusted ones too.
fn links<'a>(records: &[&'a Record]) -> Vec<(&'a Record, &'a LinkRecord)> {
    let mut found = Vec::new();
    for record in records {
        let links = match &record.outcome {
            Outcome::Measured(measurement) => &measurement.links,
            Outcome::Untrusted { links, .. } => links,
            Outcome::Failed { .. } => continue,
        };
        found.extend(links.iter().map(|link| (*record, link)));
    }
    found
}
