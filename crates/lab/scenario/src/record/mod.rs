//! One run's result, one JSON object a line. `docs/reference/results.md` describes the same schema.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Direction;

mod assist;
mod held;
mod network;
mod series;
#[cfg(test)]
mod tests;
mod work;

pub use assist::{CutRecord, CutWatch, FeedbackRecord};
pub use held::HeldWatch;
pub use network::{DelayRecord, DirectionRecord, LatenessRecord, LegRecord, LinkRecord};
pub use series::{LegSeries, LinkSeries, SeriesRecord, SeriesWatch};
pub use work::{PageRecord, PageSample, TransferRecord, VideoRecord};

/// The version of the record's schema. Readers take this one and [those before](crate::Scenario::as_of), and refuse what
/// they do not know.
pub const SCHEMA: u32 = 4;

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
/// The first line that is not a record, or one of a schema that is not known.
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
        Some(schema) if (1..=u64::from(SCHEMA)).contains(&schema) => {}
        Some(schema) => {
            return Err(format!(
                "a record of schema {schema}; this version reads schemas 1 to {SCHEMA}"
            ));
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
    /// How many of a hundred of its videos satisfied their users; none without videos.
    pub fn satisfied(&self) -> Option<f64> {
        let satisfied = self.videos.iter().filter(|video| video.satisfies()).count();
        (!self.videos.is_empty()).then(|| 100.0 * satisfied as f64 / self.videos.len() as f64)
    }

    /// How long the data waited on the access link, which is where radio is; none on transfers.
    pub fn queueing(&self, direction: Direction) -> Option<&DelayRecord> {
        self.radio(direction)?.delay.as_ref()
    }

    /// The data's packets on the access link; none on transfers.
    pub fn radio(&self, direction: Direction) -> Option<&DirectionRecord> {
        if !self.transfers.is_empty() {
            return None;
        }
        // The first one is the UE's.
        let access = self.links.first()?;
        Some(match direction {
            Direction::Upload => &access.up,
            Direction::Download => &access.down,
        })
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
#[expect(clippy::large_enum_variant, reason = "nearly all are the large one")]
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
    /// How long the proxy had held what it sent in the measured time, in looks of [`HeldWatch::LOOK`]; none without a proxy, and
    /// on transfers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<DelayRecord>,
    /// What became of NetAssist's feedback; none without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<FeedbackRecord>,
    /// Each cut of feedback that the scenario has, in order. Empty without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<CutRecord>,
    /// Legs and queues over time, where the workload asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesRecord>,
}
