//! One run's result, one JSON object a line. `docs/results.md` describes the same schema.

use std::collections::BTreeMap;

use midspan_path::Times;
use midspan_units::Span;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{CutTimes, Direction};

/// The version of the record's schema. Readers refuse what they do not know.
pub const SCHEMA: u32 = 1;

/// What happened in one run: one cell of the sweep, one variant, one repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`] at the time of writing.
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// Digest of the scenario as it was run, so that runs of different files are never mixed.
    pub digest: String,
    /// Which backend ran it.
    pub backend: Backend,
    /// Axis of the sweep -> label of the point on it. Empty without a sweep.
    pub cell: BTreeMap<String, String>,
    /// What stood in the middle.
    pub variant: Variant,
    /// Counted from 0.
    pub repetition: u32,
    /// Seed of the path elements' randomness; the same for all variants of a repetition.
    pub seed: u64,
    /// Wall-clock start, milliseconds since the Unix epoch; zero on a simulated run.
    pub started_unix_ms: u64,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A line that is not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct RecordError {
    /// The file's name, as it was given.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// Reads records, one JSON object a line; empty lines are passed over. `file` only names the text
/// in errors.
///
/// # Errors
/// The first line that is not a record, or one of a schema other than [`SCHEMA`].
pub fn parse_lines(text: &str, file: &str) -> Result<Vec<Record>, RecordError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            parse_line(line).map_err(|what| RecordError {
                file: file.to_owned(),
                line: index + 1,
                what,
            })
        })
        .collect()
}

/// The schema is looked at first: a record of another one may lack anything else.
fn parse_line(line: &str) -> Result<Record, String> {
    let value: Value = serde_json::from_str(line)
        .map_err(|error| format!("not a result record, which is one JSON object: {error}"))?;
    match value.get("schema").and_then(Value::as_u64) {
        Some(schema) if schema == u64::from(SCHEMA) => {}
        Some(schema) => {
            return Err(format!("a record of schema {schema}; this version reads schema {SCHEMA}"));
        }
        None => return Err(format!("not a result record: no `schema`, which is {SCHEMA}")),
    }
    let record: Record =
        serde_json::from_value(value).map_err(|error| format!("not a result record: {error}"))?;
    match record.measurement() {
        Some(run) if !run.is_possible() => {
            Err("not a result record: a measured run has rates from \
             0 and has taken some time"
                .to_owned())
        }
        _ => Ok(record),
    }
}

impl Record {
    /// What was measured, if it is trusted.
    pub fn measurement(&self) -> Option<&Measurement> {
        match &self.outcome {
            Outcome::Measured(measurement) => Some(measurement),
            Outcome::Untrusted { .. } | Outcome::Failed { .. } => None,
        }
    }
}

impl Measurement {
    /// How long the data waited on the access link, which is where radio is; none on transfers.
    pub fn queueing(&self, direction: Direction) -> Option<&DelayRecord> {
        if !self.transfers.is_empty() {
            return None;
        }
        // The first one is the UE's.
        let access = self.links.first()?;
        let data = match direction {
            Direction::Upload => &access.up,
            Direction::Download => &access.down,
        };
        data.delay.as_ref()
    }

    /// Jain's fairness index of the flows' goodput: from 1 over their number, if one has everything, to
    /// 1, if all have the same (R. Jain, D. Chiu and W. Hawe, "A quantitative measure of fairness and
    /// discrimination for resource allocation in shared computer systems", DEC TR-301, 1984). None of
    /// fewer than two flows, or of flows that have nothing.
    pub fn fairness(&self) -> Option<f64> {
        let sum: f64 = self.flows_bps.iter().sum();
        let squares: f64 = self.flows_bps.iter().map(|bps| bps * bps).sum();
        let count = self.flows_bps.len();
        (count > 1 && squares > 0.0).then(|| sum * sum / (count as f64 * squares))
    }

    fn is_possible(&self) -> bool {
        self.goodput_bps >= 0.0 && self.acknowledged_bps >= 0.0 && self.measured_s > 0.0
    }
}

/// What ran the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// Real kernel TCP over emulated links.
    Live,
    /// Virtual time.
    Sim,
}

/// What stands between the two networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// A router: one connection from end to end.
    None,
    /// Midspan's relay.
    Midspan,
    /// HAProxy, transparent, with splicing.
    Haproxy,
}

impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Variant::None => "none",
            Variant::Midspan => "midspan",
            Variant::Haproxy => "haproxy",
        })
    }
}

/// Whether the run gave numbers that can be trusted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It ran as meant.
    Measured(Measurement),
    /// It ran, but its conditions were not those of the scenario: no number is given.
    Untrusted {
        /// Why, in one line.
        reason: String,
        /// What the emulated links reported about themselves.
        links: Vec<LinkRecord>,
    },
    /// It did not run to its end.
    Failed {
        /// Why, in one line.
        reason: String,
    },
}

/// The numbers of a trusted run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Application bytes per second that the receiving application read, times eight, over the
    /// measured time (warm-up left out), all flows together. Bit/s. Zero on transfers.
    pub goodput_bps: f64,
    /// The same at the near end of the sender's own connection: what the next hop's TCP
    /// acknowledged (with a proxy, what the proxy took in). Bit/s. Zero on transfers.
    pub acknowledged_bps: f64,
    /// Measured time in seconds (warm-up left out); on transfers, the sum of their
    /// [`TransferRecord::closed_s`].
    pub measured_s: f64,
    /// Segments that the sending application's TCP retransmitted in the measured time.
    pub sender_retransmits: u64,
    /// Goodput of each flow, bit/s, in the order of their starts. Empty on transfers.
    pub flows_bps: Vec<f64>,
    /// One entry for each transfer of a given size, page or video, in order. Empty on bulk workloads.
    pub transfers: Vec<TransferRecord>,
    /// More about each page, in order. Empty on other workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<PageRecord>,
    /// How each video played, in order. Empty on other workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub videos: Vec<VideoRecord>,
    /// Every TCP leg, as the kernel's TCP_INFO had it at the end of the measured time; none where there
    /// are cells.
    pub legs: Vec<LegRecord>,
    /// What the links did, the UE's first; where there are cells, all that are beside each other together.
    pub links: Vec<LinkRecord>,
    /// What became of NetAssist's feedback; none without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<FeedbackRecord>,
    /// Each cut of feedback that the scenario has, in order. Empty without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<CutRecord>,
}

/// What became of the flows while the base station was silent, and afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CutRecord {
    /// When it began, seconds since the path began.
    pub from_s: f64,
    /// Application bytes per second that came in over it, times eight, all flows together. Bit/s.
    pub goodput_bps: f64,
    /// The longest time over it in which nothing came in, seconds, to a hundredth.
    pub silence_s: f64,
    /// The queueing delay of the data on the access link over the second before it; none if no packet
    /// came through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<DelayRecord>,
    /// The same over the second that begins three periods after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<DelayRecord>,
}

impl CutRecord {
    /// The 95th percentile of the queueing delay before it, in seconds.
    pub fn before95_s(&self) -> Option<f64> {
        Some(self.before?.p95_us / 1e6)
    }

    /// The 95th percentile of the queueing delay after it, in seconds.
    pub fn after95_s(&self) -> Option<f64> {
        Some(self.after?.p95_us / 1e6)
    }
}

/// Follows the flows through a cut: the longest silence, and what came in.
#[derive(Debug, Clone, Copy)]
pub struct CutWatch {
    first: u64,
    last: u64,
    since: Span,
    silence: Span,
}

impl CutWatch {
    /// How often to look.
    pub const LOOK: Span = Span::from_millis(10);

    /// At the beginning, `at`, since the path began, when so many bytes have come in.
    pub fn start(at: Span, received: u64) -> CutWatch {
        CutWatch { first: received, last: received, since: at, silence: Span::ZERO }
    }

    /// Another look.
    pub fn look(&mut self, at: Span, received: u64) {
        self.silence = self.silence.max(at.saturating_sub(self.since));
        if received > self.last {
            (self.last, self.since) = (received, at);
        }
    }

    /// At the end, which has been looked at, with the delays over the time before the cut and after.
    pub fn record(&self, cut: &CutTimes, before: &Times, after: &Times) -> CutRecord {
        let length = cut.end.saturating_sub(cut.start);
        CutRecord {
            from_s: cut.start.as_secs_f64(),
            goodput_bps: (self.last - self.first) as f64 * 8.0 / length.as_secs_f64(),
            silence_s: self.silence.as_secs_f64(),
            before: DelayRecord::of(before),
            after: DelayRecord::of(after),
        }
    }
}

impl Measurement {
    /// How many of a hundred of its videos satisfied their users; none without videos.
    pub fn satisfied(&self) -> Option<f64> {
        let satisfied = self.videos.iter().filter(|video| video.satisfies()).count();
        (!self.videos.is_empty()).then(|| 100.0 * satisfied as f64 / self.videos.len() as f64)
    }
}

/// NetAssist's feedback in a run, from its first datagram on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FeedbackRecord {
    /// Readings of the base station.
    pub readings: u64,
    /// Of these, implausible ones, which were clipped.
    pub clipped: u64,
    /// Readings that the daemon did not listen to, because it had cut the base station off.
    pub ignored: u64,
    /// Datagrams that the sender's agent used.
    pub used: u64,
    /// Datagrams that were lost or came too late.
    pub missing: u64,
}

/// One transfer of a given size on a connection of its own. Times in seconds from the moment
/// `connect` was called.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TransferRecord {
    /// Application bytes.
    pub bytes: u64,
    /// `connect` returned at the initiator.
    pub connected_s: f64,
    /// The sender's TCP had its last byte acknowledged (with a proxy: by the proxy).
    pub acknowledged_s: f64,
    /// The initiator's connection had closed in order, both directions.
    pub closed_s: f64,
    /// The receiving application had read the last byte: the honest end-to-end time.
    pub received_s: f64,
}

/// One page, as the client fetched it. Times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PageRecord {
    /// From the client's start until it had the document.
    pub document_s: f64,
    /// For each object, from its request until the client had it, in order.
    pub objects_s: Vec<f64>,
    /// The path and the sender, every tenth of a second while the page was fetched.
    pub samples: Vec<PageSample>,
}

impl PageRecord {
    /// The median over the page's time of the rate that the sender's control allowed; none where it sets
    /// none.
    pub fn median_rate_bps(&self) -> Option<f64> {
        let mut rates: Vec<f64> =
            self.samples.iter().filter_map(|sample| sample.rate_bps).collect();
        rates.sort_by(f64::total_cmp);
        let middle = rates.len() / 2;
        let above = *rates.get(middle)?;
        Some(if rates.len() % 2 == 1 { above } else { (rates[middle - 1] + above) / 2.0 })
    }

    /// Packets to the UE that a policer dropped while the page was fetched.
    pub fn policed(&self) -> u64 {
        self.samples.last().map_or(0, |sample| sample.policed)
    }
}

/// How one video played. Times in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct VideoRecord {
    /// From being told to play until it played; none if it did not by the end of the run.
    pub start_s: Option<f64>,
    /// How often it stood still after it had begun.
    pub stalls: u32,
    /// For how long in all.
    pub stalled_s: f64,
}

impl VideoRecord {
    /// Whether its user is satisfied, as the `lte` paper has it (section 4.1): it began within eight
    /// seconds, and stood still no more than three times and for no more than two seconds in all.
    pub fn satisfies(&self) -> bool {
        self.start_s.is_some_and(|start| start < 8.0) && self.stalls <= 3 && self.stalled_s <= 2.0
    }
}

/// One look at a path while a page is fetched. Counts are since the page began.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PageSample {
    /// Seconds since the page began.
    pub at_s: f64,
    /// The rate that the sender's congestion control allows, in bits of payload per second; absent
    /// where it sets none, or before there is a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<f64>,
    /// Packets to the UE that a policer of the access link has dropped.
    pub policed: u64,
    /// Packets to the UE that were lost on the air.
    pub radio_lost: u64,
    /// Acknowledgements that a base station has marked.
    pub marked: u64,
}

/// Where a TCP socket stood: which host, and which leg it was the sender of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LegRecord {
    /// `ue`, `mec` or `server`.
    pub host: String,
    /// `end-to-end`, `client` (UE to proxy) or `server` (proxy to server).
    pub leg: String,
    /// Congestion control in use.
    pub congestion_control: String,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// Least round-trip time seen, microseconds.
    pub min_rtt_us: u32,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Segments retransmitted over the connection's life.
    pub retransmits: u32,
    /// Bytes that the peer acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Most recent delivery rate, bit/s.
    pub delivery_rate_bps: f64,
    /// D-SACKs received: retransmissions that proved needless.
    pub dsack_dups: u32,
    /// Reordering events seen.
    pub reord_seen: u32,
}

/// What one emulated link reports about itself and about the packets that crossed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkRecord {
    /// `access` or `wide`, or `radio`, which is before them where there are cells.
    pub link: String,
    /// How late packets left, against the time that the path intended.
    pub lateness: LatenessRecord,
    /// Packets that were lost without the path's intending it.
    pub unintended_drops: u64,
    /// From the UE towards the server.
    pub up: DirectionRecord,
    /// From the server towards the UE.
    pub down: DirectionRecord,
}

/// Distribution of the emulator's lateness in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LatenessRecord {
    /// Packets measured.
    pub count: u64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Worst.
    pub max_us: f64,
}

/// Wire packets in one direction of a link.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DirectionRecord {
    /// Packets that came in.
    pub packets_in: u64,
    /// Packets that went out.
    pub packets_out: u64,
    /// Bytes that went out, IP headers included.
    pub bytes_out: u64,
    /// Packets that elements dropped by intent, by cause (`loss`, `queue`, `policer`, ...).
    pub dropped: BTreeMap<String, u64>,
    /// Packets that elements marked congestion-experienced.
    pub marked: u64,
    /// How long packets took beyond the elements' base delays; none where none came through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<DelayRecord>,
}

/// Distribution of the time that packets took across a link beyond the base delays of its elements:
/// in queues, in transmission, or held back. Microseconds, to two digits.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DelayRecord {
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Worst.
    pub max_us: f64,
}

impl DelayRecord {
    /// What was measured; none of nothing.
    pub fn of(delays: &Times) -> Option<DelayRecord> {
        let micros = |span: Span| span.as_nanos() as f64 / 1e3;
        (delays.count() > 0).then(|| DelayRecord {
            mean_us: micros(delays.mean()),
            p50_us: micros(delays.at(0.5)),
            p95_us: micros(delays.at(0.95)),
            p99_us: micros(delays.at(0.99)),
            max_us: micros(delays.max()),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn measured() -> Record {
        let link = LinkRecord {
            link: "access".into(),
            lateness: LatenessRecord {
                count: 9,
                p50_us: 35.5,
                p99_us: 84.0,
                p999_us: 120.0,
                max_us: 2000.0,
            },
            unintended_drops: 0,
            up: DirectionRecord {
                packets_in: 1000,
                packets_out: 995,
                bytes_out: 1_492_500,
                dropped: BTreeMap::from([("loss".into(), 5)]),
                marked: 0,
                delay: Some(DelayRecord { mean_us: 1.5, ..DelayRecord::default() }),
            },
            down: DirectionRecord::default(),
        };
        let leg = LegRecord {
            host: "ue".into(),
            leg: "client".into(),
            congestion_control: "cubic".into(),
            rtt_us: 1100,
            min_rtt_us: 1000,
            cwnd: 90,
            retransmits: 5,
            bytes_acked: 1_400_000,
            bytes_received: 0,
            delivery_rate_bps: 5.5e8,
            dsack_dups: 0,
            reord_seen: 0,
        };
        let transfer = TransferRecord {
            bytes: 1000,
            connected_s: 0.05,
            acknowledged_s: 0.1,
            closed_s: 0.15,
            received_s: 0.075,
        };
        Record {
            schema: SCHEMA,
            scenario: "mec-3a".into(),
            digest: "0123456789abcdef".into(),
            backend: Backend::Live,
            cell: BTreeMap::from([("loss".into(), "0.5 %".into())]),
            variant: Variant::Midspan,
            repetition: 2,
            seed: u64::MAX,
            started_unix_ms: 1_700_000_000_000,
            outcome: Outcome::Measured(Measurement {
                goodput_bps: 5.25e8,
                acknowledged_bps: 5.5e8,
                measured_s: 6.0,
                sender_retransmits: 5,
                flows_bps: vec![5.25e8],
                transfers: vec![transfer],
                pages: Vec::new(),
                videos: Vec::new(),
                legs: vec![leg],
                links: vec![link],
                feedback: Some(FeedbackRecord { used: 9, ..FeedbackRecord::default() }),
                cuts: vec![cut_record()],
            }),
        }
    }

    /// 2 s from 10 s on, over which 250 KB come in, and nothing between 10.5 s and 11.2 s.
    fn cut_record() -> CutRecord {
        let at = |millis| Span::from_millis(millis);
        let cut = CutTimes {
            before: at(9_000),
            start: at(10_000),
            end: at(12_000),
            after: at(12_150),
            last: at(13_150),
        };
        let mut watch = CutWatch::start(cut.start, 7_000);
        for (when, received) in [
            (10_100, 50_000),
            (10_500, 90_000),
            (11_000, 90_000),
            (11_200, 91_000),
            (12_000, 257_000),
        ] {
            watch.look(at(when), received);
        }
        let mut after = Times::new();
        after.record(at(20));
        watch.record(&cut, &Times::new(), &after)
    }

    #[test]
    fn a_cut_is_followed_from_its_start_to_its_end() {
        let record = cut_record();
        assert_eq!((record.from_s, record.goodput_bps), (10.0, 1_000_000.0));
        assert_eq!(record.silence_s, 0.8);
        assert_eq!(record.before95_s(), None);
        assert!((0.019..0.021).contains(&record.after95_s().unwrap()));
    }

    fn of_outcome(outcome: Outcome) -> Record {
        Record { outcome, ..measured() }
    }

    fn untrusted() -> Record {
        of_outcome(Outcome::Untrusted { reason: "3 packets dropped".into(), links: Vec::new() })
    }

    fn failed() -> Record {
        of_outcome(Outcome::Failed { reason: "the relay did not start".into() })
    }

    fn line(record: &Record) -> String {
        serde_json::to_string(record).unwrap() + "\n"
    }

    #[test]
    fn every_outcome_round_trips_on_one_line() {
        let records = [measured(), untrusted(), failed()];
        let text: String = records.iter().map(line).collect();
        assert_eq!(text.lines().count(), 3);
        assert_eq!(parse_lines(&text, "r.jsonl").unwrap(), records);
    }

    #[test]
    fn the_documented_shape() {
        let text = line(&failed());
        assert_eq!(
            text.trim_end(),
            r#"{"schema":1,"scenario":"mec-3a","digest":"0123456789abcdef","backend":"live","#
                .to_owned()
                + r#""cell":{"loss":"0.5 %"},"variant":"midspan","repetition":2,"#
                + r#""seed":18446744073709551615,"started_unix_ms":1700000000000,"#
                + r#""outcome":"failed","reason":"the relay did not start"}"#
        );
    }

    #[test]
    fn a_pages_median_rate_is_over_the_samples_that_have_one() {
        let page = |rates: &[Option<f64>]| PageRecord {
            document_s: 1.0,
            objects_s: Vec::new(),
            samples: rates
                .iter()
                .map(|&rate_bps| PageSample {
                    at_s: 0.0,
                    rate_bps,
                    policed: 2,
                    radio_lost: 0,
                    marked: 0,
                })
                .collect(),
        };
        assert_eq!(page(&[Some(3.0), None, Some(1.0), Some(2.0)]).median_rate_bps(), Some(2.0));
        assert_eq!(page(&[Some(3.0), Some(1.0)]).median_rate_bps(), Some(2.0));
        assert_eq!(page(&[None]).median_rate_bps(), None);
        assert_eq!((page(&[None]).policed(), page(&[]).policed()), (2, 0));
    }

    /// Of three flows two have the same and one nothing: 4 / (3 x 2).
    #[test]
    fn fairness_is_jains() {
        let of = |flows: &[f64]| {
            let Outcome::Measured(run) = measured().outcome else { unreachable!() };
            Measurement { flows_bps: flows.to_vec(), ..run }.fairness()
        };
        assert_eq!(of(&[5.0, 5.0, 0.0]), Some(4.0 / 6.0));
        assert_eq!((of(&[5.0, 5.0]), of(&[5.0]), of(&[0.0, 0.0])), (Some(1.0), None, None));
    }

    #[test]
    fn a_user_is_satisfied_up_to_each_bound() {
        assert!(video_of((Some(7.9), 3, 2.0)).satisfies());
        for video in [(None, 0, 0.0), (Some(8.0), 0, 0.0), (Some(1.0), 4, 1.0), (Some(1.0), 1, 2.1)]
        {
            assert!(!video_of(video).satisfies(), "{video:?}");
        }
    }

    fn video_of((start_s, stalls, stalled_s): (Option<f64>, u32, f64)) -> VideoRecord {
        VideoRecord { start_s, stalls, stalled_s }
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| parse_lines(text, "r.jsonl").unwrap_err().to_string();
        let good = line(&failed());
        let newer = good.replacen("\"schema\":1", "\"schema\":2", 1);
        assert_eq!(
            error(&format!("{good}\n{newer}")),
            "r.jsonl:3: a record of schema 2; this version reads schema 1"
        );
        assert_eq!(
            error(&format!("{good}{{}}\n")),
            "r.jsonl:2: not a result record: no `schema`, which is 1"
        );
        let cut = &good[..good.len() / 2];
        assert!(
            error(cut).starts_with("r.jsonl:1: not a result record, which is one JSON object:")
        );
        let lacking = good.replacen("\"seed\":18446744073709551615,", "", 1);
        assert_eq!(error(&lacking), "r.jsonl:1: not a result record: missing field `seed`");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = parse_lines(&text, "r.jsonl");
        }
    }
}
