//! What the emulated links say of a run, in the record's words.

use midspan_emu::Report;
use midspan_path::{Counters, Stretch};
use midspan_scenario::record::{DirectionRecord, LatenessRecord, LinkRecord};
use midspan_units::Span;

use crate::topology::ShortestRtts;

/// The two links' own reports.
#[derive(Debug, Clone)]
pub(crate) struct LinkReports {
    /// UE to MEC.
    pub(crate) access: Report,
    /// MEC to server; none if that is a cable.
    pub(crate) wide: Option<Report>,
}

impl LinkReports {
    /// Why the links were not what the scenario says, if so.
    pub(crate) fn distrust(&self, rtts: ShortestRtts) -> Option<String> {
        let access = [(&self.access, rtts.access)];
        let reasons: Vec<String> = access
            .into_iter()
            .chain(self.wide.iter().map(|wide| (wide, rtts.wide)))
            .filter_map(|(report, rtt)| Some(format!("{}: {}", report.name, report.distrust(rtt)?)))
            .collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

/// All links, for the result record, what is on the air before them; with every hundredth of the packets' delays if so wanted.
pub(crate) fn records(reports: &LinkReports, percentiles: bool) -> Vec<LinkRecord> {
    let wide = reports.wide.iter().map(|wide| record("wide", wide, percentiles));
    let radio = reports.access.radio.iter().map(|stretch| radio(stretch, percentiles));
    radio.chain([record("access", &reports.access, percentiles)]).chain(wide).collect()
}

/// What the air interface did. The access link's thread has it, and accounts for how late packets left.
fn radio(stretch: &Stretch, percentiles: bool) -> LinkRecord {
    let Stretch { name, counters, delays } = stretch;
    LinkRecord {
        link: (*name).to_owned(),
        lateness: LatenessRecord::default(),
        unintended_drops: 0,
        up: direction(&counters.0).with_delays(&delays.0, percentiles),
        down: direction(&counters.1).with_delays(&delays.1, percentiles),
    }
}

fn record(link: &str, report: &Report, percentiles: bool) -> LinkRecord {
    let micros = |span: Span| span.as_nanos() as f64 / 1e3;
    let lateness = &report.lateness;
    LinkRecord {
        link: link.to_owned(),
        lateness: LatenessRecord {
            count: lateness.count,
            p50_us: micros(lateness.p50),
            p99_us: micros(lateness.p99),
            p999_us: micros(lateness.p999),
            max_us: micros(lateness.max),
        },
        unintended_drops: report.drops.total(),
        up: direction(&report.up).with_delays(&report.up_delays, percentiles),
        down: direction(&report.down).with_delays(&report.down_delays, percentiles),
    }
}

fn direction(counters: &Counters) -> DirectionRecord {
    DirectionRecord {
        packets_in: counters.packets_in,
        packets_out: counters.packets_out,
        bytes_out: counters.bytes_out,
        dropped: counters
            .dropped
            .iter()
            .map(|(cause, count)| ((*cause).to_owned(), *count))
            .collect(),
        marked: counters.marked,
        ..DirectionRecord::default()
    }
}
