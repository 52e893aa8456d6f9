//! What sockets, links and packets showed.

use std::collections::BTreeMap;

use midspan_path::Times;
use midspan_units::Span;
use serde::{Deserialize, Serialize};

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
    /// What its sender waited for; none where nobody has measured it, as in simulated runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<BusyRecord>,
}

/// For how long a TCP sender had data that was not acknowledged, over the connection's life, and what it waited for then, in
/// microseconds: what `ss -i` calls the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyRecord {
    /// In all.
    pub busy_us: u64,
    /// For its peer's receive window.
    pub rwnd_limited_us: u64,
    /// For room in its send buffer.
    pub sndbuf_limited_us: u64,
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
    /// The 1st to the 100th percentile of the same, microseconds to two digits; empty where the scenario does not ask for
    /// them ([`Bulk::percentiles`](crate::Bulk::percentiles)), and where none came through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delay_percentiles_us: Vec<f64>,
}

impl DirectionRecord {
    /// The distribution of these delays, with every hundredth of it if so wanted.
    pub fn with_delays(self, delays: &Times, percentiles: bool) -> DirectionRecord {
        let at = |percent: u32| micros(delays.at(f64::from(percent) / 100.0));
        let hundredths = (1..=100).filter(|_| percentiles && delays.count() > 0);
        DirectionRecord {
            delay: DelayRecord::of(delays),
            delay_percentiles_us: hundredths.map(at).collect(),
            ..self
        }
    }
}

fn micros(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e3
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
        (delays.count() > 0).then(|| DelayRecord {
            mean_us: micros(delays.mean()),
            p50_us: micros(delays.at(0.5)),
            p95_us: micros(delays.at(0.95)),
            p99_us: micros(delays.at(0.99)),
            max_us: micros(delays.max()),
        })
    }
}
