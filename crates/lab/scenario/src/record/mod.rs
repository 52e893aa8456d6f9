//! One run's result, one JSON object a line. `docs/reference/results.md` describes the same schema.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

mod assist;
mod held;
mod measurement;
mod network;
mod series;
#[cfg(test)]
mod tests;
mod work;

pub use assist::{CutRecord, CutWatch, FeedbackRecord};
pub use held::HeldWatch;
pub use measurement::{BulkRecord, Measurement, WorkloadRecord};
pub use network::{
    BusyRecord, DelayRecord, DirectionRecord, LatenessRecord, LegRecord, LinkRecord,
};
pub use series::{LegSeries, LinkSeries, SeriesRecord, SeriesWatch};
pub use work::{PageRecord, PageSample, TransferRecord, VideoRecord};

/// The version of the record's schema. Readers take this one and [those before](crate::Scenario::as_of), and refuse what
/// they do not know.
pub const SCHEMA: u32 = 5;

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
