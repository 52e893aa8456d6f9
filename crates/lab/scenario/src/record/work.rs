//! What came of single pieces of work: transfers, pages, videos.

use serde::{Deserialize, Serialize};

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
