//! The metrics of srsRAN's 5G base station: JSON over a WebSocket, after `metrics_subscribe`.

use midspan_assist_proto::LinkReading;
use midspan_assist_proto::estimate::Cell;
use midspan_units::{ByteSize, Rate};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::record::whole;
use super::{Batch, Format, Sample, UeName, Unreadable};

/// What to say first.
pub(super) const SUBSCRIBE: &str = r#"{"cmd":"metrics_subscribe"}"#;

/// Reads the metrics: what was served (`dl_brate`), what waits (`dl_bs`), channel quality, and how
/// many transport blocks came through (`dl_nof_ok`, `dl_nof_nok`). The layout has changed over the
/// program's releases; all that are known are read: UEs at the top or under `cells`, bare or in a
/// `ue_container`, RNTIs as numbers or hexadecimal text.
#[derive(Debug, Default)]
pub struct SrsGnb {
    cell: Option<Cell>,
}

#[derive(Deserialize)]
struct Message {
    cmd: Option<String>,
    error: Option<Value>,
    timestamp: Option<Value>,
    ue_list: Option<Vec<UeItem>>,
    cells: Option<Vec<CellItem>>,
}

#[derive(Deserialize)]
struct CellItem {
    #[serde(default)]
    ue_list: Vec<UeItem>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum UeItem {
    Wrapped { ue_container: Ue },
    Bare(Ue),
}

#[derive(Deserialize)]
struct Ue {
    #[serde(deserialize_with = "rnti")]
    rnti: u32,
    cqi: Option<f64>,
    dl_brate: Option<f64>,
    dl_nof_ok: Option<f64>,
    dl_nof_nok: Option<f64>,
    dl_bs: Option<f64>,
    ul_brate: Option<f64>,
    bsr: Option<f64>,
}

fn rnti<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Rnti {
        Number(u32),
        Text(String),
    }
    match Rnti::deserialize(deserializer)? {
        Rnti::Number(number) => Ok(number),
        Rnti::Text(text) => u32::from_str_radix(text.trim_start_matches("0x"), 16)
            .map_err(|_| serde::de::Error::custom(format!("`{text}` is not an RNTI"))),
    }
}

impl Ue {
    fn wants_blocks(&self) -> bool {
        [self.dl_brate, self.dl_bs].iter().flatten().any(|value| *value > 0.0)
    }

    /// In 1/100 percent.
    fn failing(&self) -> u32 {
        let (ok, failed) = (self.dl_nof_ok.unwrap_or(0.0), self.dl_nof_nok.unwrap_or(0.0));
        let share = failed / (ok + failed);
        if share.is_finite() { (share.clamp(0.0, 1.0) * 10_000.0) as u32 } else { 0 }
    }

    fn sample(&self, cell: Option<Cell>, sharers: u32) -> Sample {
        let rate = |value: Option<f64>| value.and_then(whole).map(Rate::from_bps);
        let size = |value: Option<f64>| value.and_then(whole).map(ByteSize::from_bytes);
        // Not reported yet: -1, in some releases 0.
        let cqi = self.cqi.filter(|cqi| (1.0..=15.0).contains(cqi));
        let ceiling = cqi
            .zip(cell)
            .map(|(cqi, cell)| cell.ceiling((cqi * 100.0) as u32, self.failing(), sharers));
        Sample {
            name: UeName::Rnti(self.rnti),
            window: None,
            downlink: LinkReading {
                served: rate(self.dl_brate),
                backlog: size(self.dl_bs),
                ceiling,
                ..LinkReading::default()
            },
            uplink: LinkReading {
                served: rate(self.ul_brate),
                backlog: size(self.bsr),
                ..LinkReading::default()
            },
        }
    }
}

impl SrsGnb {
    /// Of `cell`, if it is known.
    pub fn new(cell: Option<Cell>) -> SrsGnb {
        SrsGnb { cell }
    }
}

impl Format for SrsGnb {
    fn read(&mut self, record: &[u8]) -> Result<Option<Batch>, Unreadable> {
        let message: Message = serde_json::from_slice(record)?;
        if let Some(error) = message.error {
            let command = message.cmd.unwrap_or_default();
            return Err(Unreadable(format!("the base station refuses `{command}`: {error}")));
        }
        let cells: Vec<Vec<UeItem>> = match (message.ue_list, message.cells) {
            (Some(ues), _) => vec![ues],
            (None, Some(cells)) => cells.into_iter().map(|cell| cell.ue_list).collect(),
            // About something else: the answer to a command, or of another layer.
            (None, None) => return Ok(None),
        };
        let stamp = message.timestamp.as_ref().and_then(stamp);
        let mut samples = Vec::new();
        for items in &cells {
            let ues: Vec<&Ue> = items
                .iter()
                .map(|item| match item {
                    UeItem::Wrapped { ue_container: ue } | UeItem::Bare(ue) => ue,
                })
                .collect();
            let wanting = ues.iter().filter(|ue| ue.wants_blocks()).count() as u32;
            for ue in &ues {
                let sharers = wanting + u32::from(!ue.wants_blocks());
                samples.push(ue.sample(self.cell, sharers));
            }
        }
        Ok(Some(Batch { stamp, samples }))
    }
}

/// Seconds as a number, or a date and time as text, in microseconds.
fn stamp(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => whole(number.as_f64()? * 1e6),
        Value::String(text) => {
            let time = text.parse::<jiff::Timestamp>().or_else(|_| {
                text.parse::<jiff::civil::DateTime>()
                    .and_then(|local| local.to_zoned(jiff::tz::TimeZone::UTC))
                    .map(|zoned| zoned.timestamp())
            });
            u64::try_from(time.ok()?.as_microsecond()).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After "JSON Metrics" in srsRAN Project's documentation, as of its releases 24.10 (UEs at the
    /// top, in containers) and 25.10 (under `cells`, bare, with a date as text).
    const OLD: &str = include_str!("../../samples/srsgnb-24.10.json");
    const NEW: &str = include_str!("../../samples/srsgnb-25.10.json");

    #[test]
    fn both_layouts_say_the_same() {
        let read = |text: &str| SrsGnb::default().read(text.as_bytes()).unwrap().unwrap();
        let (old, new) = (read(OLD), read(NEW));
        assert_eq!(old, new);
        assert_eq!(old.stamp, Some(1_700_000_000_250_000));
        let ue = &old.samples[0];
        assert_eq!(ue.name, UeName::Rnti(0x4601));
        assert_eq!(ue.downlink.served, Some(Rate::from_bps(17_000_000)));
        assert_eq!(ue.downlink.backlog, Some(ByteSize::from_bytes(44_000)));
        assert_eq!(ue.uplink.served, Some(Rate::from_bps(18_000_000)));
        assert_eq!(ue.uplink.backlog, Some(ByteSize::from_bytes(39_800)));
    }

    #[test]
    fn a_known_cell_bounds_capacity_by_quality_failures_and_company() {
        let cell = Cell {
            technology: midspan_assist_proto::estimate::Technology::Nr,
            blocks: 106,
            layers: 1,
            slots_per_ms: 2,
            downlink_percent: 70,
        };
        let mut format = SrsGnb::new(Some(cell));
        let batch = format.read(OLD.as_bytes()).unwrap().unwrap();
        // 908 blocks came through and 92 did not; the second UE wants nothing.
        let expected = cell.ceiling(1_500, 920, 1);
        assert_eq!(batch.samples[0].downlink.ceiling, Some(expected));
        assert_eq!(batch.samples[1].downlink.ceiling, None);
    }

    #[test]
    fn answers_are_passed_over_and_refusals_told() {
        let mut format = SrsGnb::default();
        assert_eq!(format.read(SUBSCRIBE.as_bytes()), Ok(None));
        assert_eq!(format.read(br#"{"app_resource_usage":{"cpu":1.5}}"#), Ok(None));
        let refused = format.read(br#"{"cmd":"metrics_subscribe","error":"unknown"}"#);
        assert!(refused.unwrap_err().to_string().contains("refuses `metrics_subscribe`"));
        assert!(format.read(br#"{"ue_list":[{"cqi":3}]}"#).is_err());
        assert!(format.read(br#"{"ue_list":[{"rnti":"zz"}]}"#).is_err());
    }
}
