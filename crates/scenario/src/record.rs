//! One run's result, one JSON object a line. `docs/results.md` describes the same schema.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    /// Measured time in seconds (warm-up left out); on transfers, from first connect to last close.
    pub measured_s: f64,
    /// Segments that the sending application's TCP retransmitted in the measured time.
    pub sender_retransmits: u64,
    /// Goodput of each flow, bit/s, in the order of their starts. Empty on transfers.
    pub flows_bps: Vec<f64>,
    /// One entry for each transfer of a given size, in order. Empty on bulk workloads.
    pub transfers: Vec<TransferRecord>,
    /// Every TCP leg, as the kernel's TCP_INFO had it at the end of the measured time.
    pub legs: Vec<LegRecord>,
    /// What the emulated links did.
    pub links: Vec<LinkRecord>,
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
    /// `access` or `wide`.
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
}
