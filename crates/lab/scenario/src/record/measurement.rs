//! The numbers of a trusted run.

use serde::{Deserialize, Serialize};

use super::{
    CutRecord, DelayRecord, DirectionRecord, FeedbackRecord, LegRecord, LinkRecord, PageRecord,
    SeriesRecord, TransferRecord, VideoRecord,
};
use crate::Direction;

/// The numbers of a trusted run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Flat", try_from = "Flat")]
pub struct Measurement {
    /// Measured time in seconds (warm-up left out); on transfers, the sum of their
    /// [`TransferRecord::closed_s`].
    pub measured_s: f64,
    /// Segments that the sending application's TCP retransmitted in the measured time.
    pub sender_retransmits: u64,
    /// What the workload came to.
    pub workload: WorkloadRecord,
    /// Every TCP leg, as the kernel's TCP_INFO had it at the end of the measured time; none where there
    /// are cells.
    pub legs: Vec<LegRecord>,
    /// What the links did, the UE's first; where there are cells, all that are beside each other together.
    pub links: Vec<LinkRecord>,
    /// What became of NetAssist's feedback; none without it.
    pub feedback: Option<FeedbackRecord>,
}

/// What a workload came to.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkloadRecord {
    /// Flows that send for a time.
    Bulk(BulkRecord),
    /// Transfers of a given size, in order; or pages of many users, of which there is no more.
    Transfers(Vec<TransferRecord>),
    /// Pages.
    Pages {
        /// One entry for each page, in order.
        transfers: Vec<TransferRecord>,
        /// More about each, in order.
        pages: Vec<PageRecord>,
    },
    /// Videos.
    Videos {
        /// The download of each that has ended, in order.
        transfers: Vec<TransferRecord>,
        /// How each played, in order.
        videos: Vec<VideoRecord>,
    },
}

/// What flows that send for a time came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BulkRecord {
    /// Application bytes per second that the receiving application read, times eight, over the
    /// measured time (warm-up left out), all flows together. Bit/s.
    pub goodput_bps: f64,
    /// The same at the near end of the sender's own connection: what the next hop's TCP
    /// acknowledged (with a proxy, what the proxy took in). Bit/s.
    pub acknowledged_bps: f64,
    /// Goodput of each flow, bit/s, in the order of their starts.
    pub flows_bps: Vec<f64>,
    /// How long the proxy had held what it sent in the measured time, in looks of [`super::HeldWatch::LOOK`]; none without a proxy.
    pub held: Option<DelayRecord>,
    /// Each cut of feedback that the scenario has, in order. Empty without.
    pub cuts: Vec<CutRecord>,
    /// Legs and queues over time, where the workload asks for it.
    pub series: Option<SeriesRecord>,
}

impl Measurement {
    /// Of flows that send for a time; none on transfers.
    pub fn bulk(&self) -> Option<&BulkRecord> {
        match &self.workload {
            WorkloadRecord::Bulk(bulk) => Some(bulk),
            WorkloadRecord::Transfers(_)
            | WorkloadRecord::Pages { .. }
            | WorkloadRecord::Videos { .. } => None,
        }
    }

    /// As [`WorkloadRecord::transfers`].
    pub fn transfers(&self) -> &[TransferRecord] {
        self.workload.transfers()
    }

    /// More about each page, in order. Empty on other workloads.
    pub fn pages(&self) -> &[PageRecord] {
        match &self.workload {
            WorkloadRecord::Pages { pages, .. } => pages,
            WorkloadRecord::Bulk(_)
            | WorkloadRecord::Transfers(_)
            | WorkloadRecord::Videos { .. } => &[],
        }
    }

    /// How each video played, in order. Empty on other workloads.
    pub fn videos(&self) -> &[VideoRecord] {
        match &self.workload {
            WorkloadRecord::Videos { videos, .. } => videos,
            WorkloadRecord::Bulk(_)
            | WorkloadRecord::Transfers(_)
            | WorkloadRecord::Pages { .. } => &[],
        }
    }

    /// How many of a hundred of its videos satisfied their users; none without videos.
    pub fn satisfied(&self) -> Option<f64> {
        let videos = self.videos();
        let satisfied = videos.iter().filter(|video| video.satisfies()).count();
        (!videos.is_empty()).then(|| 100.0 * satisfied as f64 / videos.len() as f64)
    }

    /// How long the data waited on the access link, which is where radio is; none on transfers.
    pub fn queueing(&self, direction: Direction) -> Option<&DelayRecord> {
        self.radio(direction)?.delay.as_ref()
    }

    /// The data's packets on the access link; none on transfers.
    pub fn radio(&self, direction: Direction) -> Option<&DirectionRecord> {
        self.bulk()?;
        // The first one is the UE's.
        let access = self.links.first()?;
        Some(match direction {
            Direction::Upload => &access.up,
            Direction::Download => &access.down,
        })
    }

    /// Whether its rates and its time can have been measured.
    pub(super) fn is_possible(&self) -> bool {
        let rates = self.bulk().map_or([0.0; 2], |bulk| [bulk.goodput_bps, bulk.acknowledged_bps]);
        rates.iter().all(|rate| *rate >= 0.0) && self.measured_s > 0.0
    }
}

impl WorkloadRecord {
    /// One entry for each transfer of a given size, page or video, in order. Empty on bulk workloads.
    pub fn transfers(&self) -> &[TransferRecord] {
        match self {
            WorkloadRecord::Bulk(_) => &[],
            WorkloadRecord::Transfers(transfers)
            | WorkloadRecord::Pages { transfers, .. }
            | WorkloadRecord::Videos { transfers, .. } => transfers,
        }
    }
}

impl BulkRecord {
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
}

/// A measurement as it stands in a file: the keys of all workloads side by side, rates of transfers being zero.
#[derive(Clone, Serialize, Deserialize)]
struct Flat {
    goodput_bps: f64,
    acknowledged_bps: f64,
    measured_s: f64,
    sender_retransmits: u64,
    flows_bps: Vec<f64>,
    transfers: Vec<TransferRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pages: Vec<PageRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    videos: Vec<VideoRecord>,
    legs: Vec<LegRecord>,
    links: Vec<LinkRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<DelayRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    feedback: Option<FeedbackRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cuts: Vec<CutRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    series: Option<SeriesRecord>,
}

impl From<Measurement> for Flat {
    fn from(run: Measurement) -> Flat {
        let (bulk, transfers, pages, videos) = match run.workload {
            WorkloadRecord::Bulk(bulk) => (bulk, Vec::new(), Vec::new(), Vec::new()),
            WorkloadRecord::Transfers(transfers) => {
                (BulkRecord::default(), transfers, Vec::new(), Vec::new())
            }
            WorkloadRecord::Pages { transfers, pages } => {
                (BulkRecord::default(), transfers, pages, Vec::new())
            }
            WorkloadRecord::Videos { transfers, videos } => {
                (BulkRecord::default(), transfers, Vec::new(), videos)
            }
        };
        Flat {
            goodput_bps: bulk.goodput_bps,
            acknowledged_bps: bulk.acknowledged_bps,
            measured_s: run.measured_s,
            sender_retransmits: run.sender_retransmits,
            flows_bps: bulk.flows_bps,
            transfers,
            pages,
            videos,
            legs: run.legs,
            links: run.links,
            held: bulk.held,
            feedback: run.feedback,
            cuts: bulk.cuts,
            series: bulk.series,
        }
    }
}

impl TryFrom<Flat> for Measurement {
    type Error = &'static str;

    fn try_from(flat: Flat) -> Result<Measurement, &'static str> {
        let Flat { transfers, pages, videos, .. } = flat;
        let bulk = BulkRecord {
            goodput_bps: flat.goodput_bps,
            acknowledged_bps: flat.acknowledged_bps,
            flows_bps: flat.flows_bps,
            held: flat.held,
            cuts: flat.cuts,
            series: flat.series,
        };
        let is_of_transfers = bulk == BulkRecord::default();
        let workload = match (transfers.is_empty(), pages.is_empty(), videos.is_empty()) {
            (true, true, true) => WorkloadRecord::Bulk(bulk),
            _ if !is_of_transfers => return Err("a run of transfers has no flows with rates"),
            (false, true, true) => WorkloadRecord::Transfers(transfers),
            (_, false, true) => WorkloadRecord::Pages { transfers, pages },
            (_, true, false) => WorkloadRecord::Videos { transfers, videos },
            (_, false, false) => return Err("a run has pages or videos, not both"),
        };
        Ok(Measurement {
            measured_s: flat.measured_s,
            sender_retransmits: flat.sender_retransmits,
            workload,
            legs: flat.legs,
            links: flat.links,
            feedback: flat.feedback,
        })
    }
}
