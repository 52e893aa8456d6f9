//! What passed of connections, by how they were treated.

use std::sync::atomic::{AtomicU64, Ordering};

use midspan_observe::{Histogram, TIME};
use midspan_steer::{Course, FlowRecord, Verdict};
use serde::Serialize;

/// Sums over ended connections that were treated alike.
#[derive(Debug)]
pub(crate) struct TreatmentSums {
    connections: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    busy_up_ns: AtomicU64,
    busy_down_ns: AtomicU64,
    completions: [Histogram; SIZES.len()],
}

/// Classes of connections by payload to the client: what they are called, and the most bytes that they have.
pub(crate) const SIZES: [(&str, u64); 5] = [
    ("10kB", 10_000),
    ("100kB", 100_000),
    ("1MB", 1_000_000),
    ("10MB", 10_000_000),
    ("more", u64::MAX),
];

/// Sums over ended connections that were treated alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TreatmentSnapshot {
    /// How many ended.
    pub connections: u64,
    /// Payload from their clients, in bytes.
    pub bytes_up: u64,
    /// Payload to their clients, in bytes.
    pub bytes_down: u64,
    /// From the client's first payload until the server had acknowledged the last, all together, in nanoseconds.
    pub busy_up_ns: u64,
    /// From the server's first payload until the client had acknowledged the last, all together, in nanoseconds.
    pub busy_down_ns: u64,
}

impl Default for TreatmentSums {
    fn default() -> Self {
        TreatmentSums {
            connections: AtomicU64::new(0),
            bytes_up: AtomicU64::new(0),
            bytes_down: AtomicU64::new(0),
            busy_up_ns: AtomicU64::new(0),
            busy_down_ns: AtomicU64::new(0),
            completions: [const { Histogram::new(TIME) }; SIZES.len()],
        }
    }
}

impl TreatmentSums {
    /// Takes in one that has ended. One thread does.
    pub(crate) fn add(&self, record: &FlowRecord) {
        let busy = |course: &Course| {
            let times = course.payload.zip(course.acknowledged);
            times.map_or(0, |((first, _), (_, last))| last.saturating_sub(first).as_nanos() as u64)
        };
        if let Some((_, last)) = record.down.acknowledged {
            let size = SIZES.iter().position(|&(_, most)| record.down.bytes <= most);
            let time = last.saturating_sub(record.start).as_micros() as u64;
            self.completions[size.unwrap_or(SIZES.len() - 1)].record(time);
        }
        for (sum, more) in [
            (&self.connections, 1),
            (&self.bytes_up, record.up.bytes),
            (&self.bytes_down, record.down.bytes),
            (&self.busy_up_ns, busy(&record.up)),
            (&self.busy_down_ns, busy(&record.down)),
        ] {
            sum.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// How long those with payload to the client took, by [size](SIZES): from SYN to the acknowledgement of the last byte, in
    /// microseconds.
    pub(crate) fn completions(&self) -> &[Histogram; SIZES.len()] {
        &self.completions
    }

    pub(crate) fn snapshot(&self) -> TreatmentSnapshot {
        let get = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        TreatmentSnapshot {
            connections: get(&self.connections),
            bytes_up: get(&self.bytes_up),
            bytes_down: get(&self.bytes_down),
            busy_up_ns: get(&self.busy_up_ns),
            busy_down_ns: get(&self.busy_down_ns),
        }
    }
}

/// How a connection was treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Treatment {
    /// It was split.
    Split,
    /// It was left alone for comparison, and is like the split ones in everything else.
    Holdout,
    /// It was bypassed for another reason.
    Bypassed,
}

impl Treatment {
    /// All of them.
    pub const ALL: [Treatment; 3] = [Treatment::Split, Treatment::Holdout, Treatment::Bypassed];

    /// What it is called in logs and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Treatment::Split => "split",
            Treatment::Holdout => "holdout",
            Treatment::Bypassed => "passed",
        }
    }

    /// What follows from the verdict on the connection's opening.
    pub const fn of(verdict: Verdict) -> Treatment {
        match verdict {
            Verdict::Split => Treatment::Split,
            Verdict::PassHoldout => Treatment::Holdout,
            _ => Treatment::Bypassed,
        }
    }
}
