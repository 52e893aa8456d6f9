//! The metrics report of srsRAN 4G's base station (`enb.conf`: `[expert] report_json_enable`): JSON
//! objects, pretty-printed one after the other into one file that grows.

use std::collections::{BTreeMap, BTreeSet};

use midspan_assist_proto::estimate::Cell;
use midspan_assist_proto::{LinkReading, Rnti};
use midspan_units::{ByteSize, Rate, Span};
use serde::Deserialize;

use super::record::whole;
use super::{Batch, Format, Sample, UeName, Unreadable};

/// Reads the report. It has what was served and not what could be; on bearers in RLC acknowledged
/// mode how many bytes the UE has not acknowledged (`dl_buffered_bytes`; always zero in
/// unacknowledged mode); and channel quality, which bounds capacity where the cell is known.
///
/// What a UE was served is the bytes of its bearers from one report to the next: `dl_bitrate`
/// counts the padding of half-empty blocks too. In acknowledged mode it is `payload` of that: there
/// the bytes are those that were acknowledged, which come in clumps, and packets beyond those that
/// the program remembers are never counted.
#[derive(Debug, Default)]
pub struct SrsEnb {
    cell: Option<Cell>,
    before: BTreeMap<Rnti, Bytes>,
    /// UEs that have a bearer in acknowledged mode.
    acknowledge: BTreeSet<Rnti>,
}

/// Totals of a UE's bearers at a time in microseconds.
#[derive(Debug, Clone, Copy)]
struct Bytes {
    at: u64,
    down: u64,
    up: u64,
}

#[derive(Deserialize)]
struct Report {
    #[serde(rename = "type")]
    kind: String,
    timestamp: Option<f64>,
    #[serde(default)]
    cell_list: Vec<CellItem>,
}

#[derive(Deserialize)]
struct CellItem {
    cell_container: CellContainer,
}

#[derive(Deserialize)]
struct CellContainer {
    #[serde(default)]
    ue_list: Vec<UeItem>,
}

#[derive(Deserialize)]
struct UeItem {
    ue_container: Ue,
}

#[derive(Deserialize)]
struct Ue {
    ue_rnti: Rnti,
    dl_cqi: Option<f64>,
    dl_bitrate: Option<f64>,
    dl_bler: Option<f64>,
    ul_bitrate: Option<f64>,
    ul_bsr: Option<f64>,
    #[serde(default)]
    bearer_list: Vec<BearerItem>,
}

#[derive(Deserialize)]
struct BearerItem {
    bearer_container: Bearer,
}

#[derive(Deserialize)]
struct Bearer {
    #[serde(default)]
    dl_total_bytes: u64,
    #[serde(default)]
    ul_total_bytes: u64,
    #[serde(default)]
    dl_buffered_bytes: u64,
}

impl Ue {
    fn sum(&self, field: impl Fn(&Bearer) -> u64) -> Option<u64> {
        let bearers = self.bearer_list.iter().map(|item| field(&item.bearer_container));
        bearers.reduce(u64::saturating_add)
    }

    fn wants_blocks(&self) -> bool {
        self.dl_bitrate.is_some_and(|rate| rate > 0.0)
            || self.sum(|bearer| bearer.dl_buffered_bytes).is_some_and(|bytes| bytes > 0)
    }
}

impl SrsEnb {
    /// Of `cell`, if it is known.
    pub fn new(cell: Option<Cell>) -> SrsEnb {
        SrsEnb { cell, ..SrsEnb::default() }
    }

    fn sample(&mut self, ue: &Ue, stamp: Option<u64>, sharers: u32) -> Sample {
        let now = stamp.and_then(|at| {
            let down = ue.sum(|bearer| bearer.dl_total_bytes)?;
            Some(Bytes { at, down, up: ue.sum(|bearer| bearer.ul_total_bytes)? })
        });
        let before = match now {
            Some(now) => self.before.insert(ue.ue_rnti, now),
            None => self.before.remove(&ue.ue_rnti),
        };
        let moved = |total: fn(&Bytes) -> u64| {
            let (now, before) = (now?, before?);
            let window = Span::from_micros(now.at.checked_sub(before.at)?);
            let bytes = total(&now).checked_sub(total(&before))?;
            (window > Span::ZERO).then(|| Rate::of(bytes, window))
        };
        let rate = |value: Option<f64>| value.and_then(whole).map(Rate::from_bps);
        let cqi = ue.dl_cqi.filter(|cqi| (0.0..=15.0).contains(cqi));
        let failing = ue.dl_bler.filter(|share| (0.0..=100.0).contains(share)).unwrap_or(0.0);
        let ceiling = cqi.zip(self.cell).map(|(cqi, cell)| {
            payload(cell.ceiling((cqi * 100.0) as u32, (failing * 100.0) as u32, sharers))
        });
        let unacknowledged = ue.sum(|bearer| bearer.dl_buffered_bytes).map(ByteSize::from_bytes);
        if unacknowledged.is_some_and(|bytes| bytes > ByteSize::default()) {
            self.acknowledge.insert(ue.ue_rnti);
        }
        let (delivered, sent) = (moved(|bytes| bytes.down), rate(ue.dl_bitrate));
        let acknowledges = self.acknowledge.contains(&ue.ue_rnti);
        let sent = sent.map(|sent| if acknowledges { payload(sent) } else { sent });
        let downlink = LinkReading {
            served: if acknowledges { sent.or(delivered) } else { delivered.or(sent) },
            unacknowledged,
            ceiling,
            ..LinkReading::default()
        };
        let uplink = LinkReading {
            served: moved(|bytes| bytes.up).or(rate(ue.ul_bitrate)),
            backlog: ue.ul_bsr.and_then(whole).map(ByteSize::from_bytes),
            ..LinkReading::default()
        };
        Sample { name: UeName::Rnti(ue.ue_rnti), window: None, downlink, uplink }
    }
}

/// What of the bits that the MAC layer sent in acknowledged mode is packets: in the recordings 92 to
/// 97 %, and the rest headers, status reports and padding.
fn payload(sent: Rate) -> Rate {
    Rate::from_bps(sent.as_bps() / 16 * 15)
}

impl Format for SrsEnb {
    fn read(&mut self, record: &[u8]) -> Result<Option<Batch>, Unreadable> {
        let report: Report = serde_json::from_slice(record)?;
        if report.kind != "metrics" {
            return Ok(None);
        }
        let stamp = report.timestamp.and_then(|time| whole(time * 1e6));
        let mut samples = Vec::new();
        for cell in &report.cell_list {
            let ues: Vec<&Ue> =
                cell.cell_container.ue_list.iter().map(|item| &item.ue_container).collect();
            for ue in &ues {
                let others = ues
                    .iter()
                    .filter(|other| other.ue_rnti != ue.ue_rnti && other.wants_blocks())
                    .count();
                samples.push(self.sample(ue, stamp, others as u32 + 1));
            }
        }
        // A UE that left takes its totals with it: the RNTI will be somebody else's.
        let there =
            |rnti: &Rnti| samples.iter().any(|sample: &Sample| sample.name == UeName::Rnti(*rnti));
        self.before.retain(|rnti, _| there(rnti));
        self.acknowledge.retain(there);
        Ok(Some(Batch { stamp, samples }))
    }
}

#[cfg(test)]
mod tests {
    use crate::source::recording::recording;
    use midspan_assist_proto::estimate::Technology;

    use super::*;
    use crate::source::{Records, Splitter};

    /// After the fields that srsRAN 4G's documentation lists for `report_json_enable`, in the
    /// layout of the program.
    const SAMPLE: &str = include_str!("../../samples/srsenb.json");

    fn cell() -> Cell {
        Cell {
            technology: Technology::Lte,
            blocks: 50,
            layers: 1,
            slots_per_ms: 1,
            downlink_percent: 100,
        }
    }

    fn read(text: &[u8]) -> Vec<Batch> {
        let (mut format, mut batches) = (SrsEnb::new(Some(cell())), Vec::new());
        let mut splitter = Splitter::new(Records::Objects);
        splitter.feed(text, |record| batches.extend(format.read(record).unwrap())).unwrap();
        batches
    }

    #[test]
    fn served_is_the_bytes_between_two_reports() {
        let batches = read(SAMPLE.as_bytes());
        assert_eq!(batches.len(), 3);
        let [first, second] = [&batches[1].samples[0], &batches[2].samples[0]];
        assert_eq!(first.name, UeName::Rnti(70));
        // No total before: the bit rate as reported.
        assert_eq!(first.downlink.served, Some(Rate::from_bps(12_000_000)));
        // 4,500 bytes are not acknowledged: the bit rate, and of the other UE 12,500 bytes in 100 ms.
        assert_eq!(second.downlink.served, Some(payload(Rate::from_bps(9_900_000))));
        let other = &batches[2].samples[1];
        assert_eq!(other.downlink.served, Some(Rate::from_bps(1_000_000)));
        assert_eq!(second.uplink.served, Some(Rate::from_bps(400_000)));
        assert_eq!(second.downlink.unacknowledged, Some(ByteSize::from_bytes(4_500)));
        assert_eq!(batches[2].stamp.unwrap() - batches[1].stamp.unwrap(), 100_000);
        // CQI 15 at 10 % failing blocks, and another UE that wants its half.
        let alone = cell().ceiling(1_500, 1_000, 1).as_bps();
        assert_eq!(second.downlink.ceiling, Some(payload(Rate::from_bps(alone / 2))));
    }

    #[test]
    fn other_records_are_passed_over_and_damaged_ones_refused() {
        let mut format = SrsEnb::default();
        assert_eq!(format.read(br#"{"type":"event","name":"x"}"#), Ok(None));
        assert!(format.read(br#"{"type":"metrics","cell_list":[{}]}"#).is_err());
        assert!(format.read(b"{").is_err());
        // Numbers that are none are as if they were not there.
        let odd = br#"{"type":"metrics","timestamp":1.0,"cell_list":[{"cell_container":{"ue_list":
            [{"ue_container":{"ue_rnti":70,"dl_cqi":99.0,"dl_bitrate":-5.0,"dl_bler":null}}]}}]}"#;
        let batch = format.read(odd).unwrap().unwrap();
        assert_eq!(batch.samples[0].downlink, LinkReading::default());
    }

    /// The recording of a real base station: one UE over a software radio link of 10 MHz.
    #[test]
    fn a_real_base_stations_report_is_read() {
        let Some(text) = recording("clean") else { return };
        let batches = read(&text);
        assert_eq!(batches.len(), text.iter().filter(|byte| **byte == b'\n').count());
        let busy: Vec<f64> = batches
            .iter()
            .flat_map(|batch| &batch.samples)
            .filter_map(|sample| sample.downlink.served)
            .map(Rate::as_mbps)
            .filter(|rate| *rate > 5.0)
            .collect();
        // "About 28 - 36 Mbit/s, idle stretches at both ends".
        let mean = busy.iter().sum::<f64>() / busy.len() as f64;
        assert!(busy.len() > 50 && (25.0..37.0).contains(&mean), "{} {mean}", busy.len());
        let ceilings = batches.iter().flat_map(|batch| &batch.samples);
        let highest = ceilings.filter_map(|sample| sample.downlink.ceiling).max().unwrap();
        assert!((34.0..36.0).contains(&highest.as_mbps()));
    }

    /// A real bearer in acknowledged mode of a cell of 5 MHz. While it is sent all that it can be,
    /// that is its capacity, whatever the acknowledgements say; and while it is sent little,
    /// what is not acknowledged is in flight and says nothing.
    #[test]
    fn what_a_real_bearer_has_in_flight_does_not_wait() {
        use midspan_assist_proto::estimate::{EstimatorConfig, Evidence, UeEstimator};
        use midspan_assist_proto::{Causal, Reading};
        use midspan_units::Time;

        let Some(text) = recording("rlc-am") else { return };
        let window = Span::from_millis(100);
        let mut ue = UeEstimator::<Causal>::new(EstimatorConfig::default());
        let (mut now, mut full, mut little) = (Time::ZERO, 0, 0);
        let (mut told_full, mut told_little) = (Vec::new(), 0);
        for sample in read(&text).iter().flat_map(|batch| &batch.samples) {
            now += window;
            let link = LinkReading { ceiling: None, ..sample.downlink };
            ue.observe(&Reading::passed(now, window, link, sample.uplink), now);
            let served = link.served.unwrap_or_default().as_mbps();
            full = if served > 16.5 { full + 1 } else { 0 };
            little = if (0.3..2.5).contains(&served) { little + 1 } else { 0 };
            let estimate = ue.estimate(None);
            if full > 20 {
                told_full.push(estimate.map_or(0.0, |estimate| estimate.bandwidth.as_mbps()));
            }
            if little > 10 {
                let waits = estimate.is_some_and(|it| it.evidence == Evidence::Backlogged);
                told_little += u32::from(waits);
            }
        }
        told_full.sort_by(f64::total_cmp);
        assert!(told_full.len() > 300, "{}", told_full.len());
        // Less for a while, so that what waits goes: but by an eighth, and not what is acknowledged.
        assert!(told_full[0] > 14.0 && told_full[told_full.len() - 1] < 20.0, "{told_full:?}");
        assert_eq!(told_little, 0);
    }
}
