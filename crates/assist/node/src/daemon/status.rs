use std::collections::BTreeMap;

use midspan_assist_proto::{BasisKind, Counts, HealthState, UeView};
use midspan_units::Span;
use serde::{Deserialize, Serialize};

use crate::tls::AuditCounts;

/// What a daemon knows and has done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Of which windows all feedback is.
    pub basis: BasisKind,
    /// Where it listens.
    pub listen: String,
    /// UE by UE.
    pub ues: Vec<UeView>,
    /// Who is connected.
    pub sessions: Vec<SessionStatus>,
    /// Where measurements come from.
    pub sources: Vec<SourceStatus>,
    /// What was decided.
    pub counts: Counts,
    /// What QUIC refused by itself.
    pub audit: AuditCounts,
    /// Connections that did not become sessions, by why.
    pub refused: BTreeMap<String, u64>,
    /// Sessions that ended, by how.
    pub ended: BTreeMap<String, u64>,
    /// Times that changed files could not be used; the old ones hold.
    pub reloads_failed: u64,
    /// Datagrams that a connection did not take.
    pub unsent: u64,
    /// How long after they were due datagrams went out, in microseconds: median, 99th percentile
    /// and greatest of the last minute or less.
    pub late_us: [u64; 3],
    /// The network part of minRTT as probed, in microseconds.
    pub network_us: Option<u64>,
}

/// One connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionStatus {
    /// As UEs name it.
    pub id: u64,
    /// From where.
    pub address: String,
    /// The names in its certificate.
    pub names: Vec<String>,
    /// SHA-256 of its certificate.
    pub fingerprint: String,
    /// For how many UEs.
    pub registrations: usize,
}

/// One source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its name.
    pub name: String,
    /// What it is worth.
    pub verdict: HealthState,
    /// What it has said.
    #[serde(flatten)]
    pub counts: SourceCounts,
    /// What went wrong last.
    pub last_fault: Option<String>,
    /// How old its newest reading is.
    pub age: Option<Span>,
    /// How many RNTIs have an address.
    pub mapped: usize,
}

/// What a source has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SourceCounts {
    /// Readings of UEs.
    pub readings: u64,
    /// Of UEs that nobody knows the address of.
    pub unmapped: u64,
    /// Records that made no sense.
    pub unreadable: u64,
    /// Readings from the past.
    pub stale: u64,
    /// Readings that were clipped.
    pub implausible: u64,
    /// Readings that were not listened to.
    pub ignored: u64,
    /// Times that it was cut off.
    pub cut_off: u64,
    /// Times that it stalled.
    pub stalled: u64,
    /// Times that it could not be had.
    pub down: u64,
}
