//! The plain feed: CSV with a heading, or one JSON object a line, of the same fields.
//!
//! ```text
//! time,ue,window_ms,downlink.capacity_bps,downlink.served_bps,downlink.backlog_bytes,...
//! {"time": 12.05, "ue": "10.45.0.2", "window_ms": 50, "downlink": {"capacity_bps": 12000000}}
//! ```

use midspan_assist_proto::estimate::Cell;
use midspan_assist_proto::{Blocks, LinkReading};
use midspan_units::{ByteSize, Rate, Span};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::record::whole;
use super::{Batch, Format, Sample, UeName, Unreadable};

/// Reads the plain feed. The first record decides which of the two it is.
#[derive(Debug, Default)]
pub struct Feed {
    cell: Option<Cell>,
    shape: Option<Shape>,
}

#[derive(Debug)]
enum Shape {
    Json,
    Csv { columns: Vec<String> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    time: Option<f64>,
    ue: UeName,
    window_ms: Option<f64>,
    #[serde(default)]
    downlink: LinkReadings,
    #[serde(default)]
    uplink: LinkReadings,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct LinkReadings {
    capacity_bps: Option<f64>,
    served_bps: Option<f64>,
    backlog_bytes: Option<f64>,
    unacknowledged_bytes: Option<f64>,
    blocks_used: Option<u32>,
    blocks_available: Option<u32>,
    cqi: Option<f64>,
    failing_percent: Option<f64>,
}

impl Feed {
    /// Of UEs in `cell`, if it is known: then a CQI bounds their capacity.
    pub fn new(cell: Option<Cell>) -> Feed {
        Feed { cell, shape: None }
    }

    fn line(&self, line: Line) -> Result<Batch, Unreadable> {
        let stamp = line.time.map(|time| whole(time * 1e6).ok_or_else(|| negative("time")));
        let window = match line.window_ms {
            Some(millis) => match whole(millis * 1e6) {
                Some(nanos) if (1_000_000..=10_000_000_000).contains(&nanos) => {
                    Some(Span::from_nanos(nanos))
                }
                _ => return Err(Unreadable("window_ms must be between 1 and 10000".into())),
            },
            None => None,
        };
        let downlink = self.link(line.downlink)?;
        let uplink = self.link(line.uplink)?;
        Ok(Batch {
            stamp: stamp.transpose()?,
            samples: vec![Sample { name: line.ue, window, downlink, uplink }],
        })
    }

    fn link(&self, link: LinkReadings) -> Result<LinkReading, Unreadable> {
        let number = |name: &str, value: Option<f64>| {
            value.map(|value| whole(value).ok_or_else(|| negative(name))).transpose()
        };
        let blocks = match (link.blocks_used, link.blocks_available) {
            (Some(used), Some(available)) if used <= available => Some(Blocks { used, available }),
            (None, None) => None,
            _ => {
                return Err(Unreadable("wanted blocks_used and blocks_available, not less".into()));
            }
        };
        let failing = whole(link.failing_percent.unwrap_or(0.0) * 100.0)
            .filter(|share| *share <= 10_000)
            .ok_or_else(|| Unreadable("failing_percent must be between 0 and 100".into()))?;
        let ceiling = match (link.cqi, &self.cell) {
            (Some(cqi), _) if !(0.0..=15.0).contains(&cqi) => {
                return Err(Unreadable("cqi must be between 0 and 15".into()));
            }
            (Some(cqi), Some(cell)) => Some(cell.ceiling((cqi * 100.0) as u32, failing as u32, 1)),
            _ => None,
        };
        let bytes = |name: &str, value| number(name, value).map(|it| it.map(ByteSize::from_bytes));
        Ok(LinkReading {
            capacity: number("capacity_bps", link.capacity_bps)?.map(Rate::from_bps),
            served: number("served_bps", link.served_bps)?.map(Rate::from_bps),
            backlog: bytes("backlog_bytes", link.backlog_bytes)?,
            unacknowledged: bytes("unacknowledged_bytes", link.unacknowledged_bytes)?,
            blocks,
            ceiling,
        })
    }
}

impl Format for Feed {
    fn read(&mut self, record: &[u8]) -> Result<Option<Batch>, Unreadable> {
        let record = record.trim_ascii();
        let shape = self.shape.get_or_insert_with(|| {
            if record.starts_with(b"{") { Shape::Json } else { Shape::Csv { columns: Vec::new() } }
        });
        let line = match shape {
            Shape::Json => serde_json::from_slice(record)?,
            Shape::Csv { columns } => {
                let text = std::str::from_utf8(record)
                    .map_err(|_| Unreadable("a line that is not UTF-8".into()))?;
                let fields = text.split(',').map(str::trim);
                if columns.is_empty() {
                    *columns = fields.map(str::to_owned).collect();
                    return Ok(None);
                }
                // A heading again: somebody began to write anew.
                if columns.iter().map(String::as_str).eq(fields.clone()) {
                    return Ok(None);
                }
                serde_json::from_value(object(columns, fields)?)?
            }
        };
        self.line(line).map(Some)
    }
}

/// A line of CSV as the object that it stands for: `a.b` is field `b` of object `a`.
fn object<'a>(
    columns: &[String],
    fields: impl Iterator<Item = &'a str>,
) -> Result<Value, Unreadable> {
    let fields: Vec<&str> = fields.collect();
    if fields.len() != columns.len() {
        let (found, wanted) = (fields.len(), columns.len());
        return Err(Unreadable(format!("{found} fields, wanted {wanted} as in the heading")));
    }
    let mut whole = Map::new();
    for (column, field) in columns.iter().zip(fields) {
        if field.is_empty() {
            continue;
        }
        let value = serde_json::from_str(field).unwrap_or_else(|_| Value::String(field.into()));
        match column.split_once('.') {
            None => {
                whole.insert(column.clone(), value);
            }
            Some((outer, inner)) => {
                let nested = whole.entry(outer).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(nested) = nested {
                    nested.insert(inner.to_owned(), value);
                }
            }
        }
    }
    Ok(Value::Object(whole))
}

fn negative(name: &str) -> Unreadable {
    Unreadable(format!("{name} must not be negative"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_all(text: &str) -> Vec<Result<Option<Batch>, Unreadable>> {
        let mut feed = Feed::default();
        text.lines().map(|line| feed.read(line.as_bytes())).collect()
    }

    #[test]
    fn csv_and_json_say_the_same() {
        let csv = read_all(
            "time,ue,window_ms,downlink.capacity_bps,downlink.backlog_bytes,uplink.served_bps\n\
             12.05,10.45.0.2,50,12000000,4500,\n12.1,70,50,,,800000\n",
        );
        let json = read_all(
            "{\"time\":12.05,\"ue\":\"10.45.0.2\",\"window_ms\":50,\
             \"downlink\":{\"capacity_bps\":12000000,\"backlog_bytes\":4500}}\n\
             {\"time\":12.1,\"ue\":70,\"window_ms\":50,\"uplink\":{\"served_bps\":800000}}\n",
        );
        assert_eq!(csv[0], Ok(None));
        assert_eq!(csv[1..], json);
        let batch = json[0].clone().unwrap().unwrap();
        assert_eq!(batch.stamp, Some(12_050_000));
        let sample = &batch.samples[0];
        assert_eq!(sample.name, UeName::Address("10.45.0.2".parse().unwrap()));
        assert_eq!(sample.window, Some(Span::from_millis(50)));
        assert_eq!(sample.downlink.capacity, Some(Rate::from_bps(12_000_000)));
        assert_eq!(json[1].clone().unwrap().unwrap().samples[0].name, UeName::Rnti(70));
    }

    #[test]
    fn a_line_that_makes_no_sense_says_why() {
        let refusal = |line: &str| Feed::default().read(line.as_bytes()).unwrap_err().to_string();
        assert!(refusal(r#"{"time":1}"#).contains("missing field `ue`"));
        assert!(refusal(r#"{"ue":1,"speed":1}"#).contains("unknown field `speed`"));
        assert!(refusal(r#"{"ue":1,"downlink":{"served_bps":-1}}"#).contains("negative"));
        assert!(refusal(r#"{"ue":1,"window_ms":0}"#).contains("window_ms must be"));
        assert!(refusal(r#"{"ue":1,"downlink":{"cqi":16}}"#).contains("cqi must be"));
        assert!(refusal(r#"{"ue":1,"downlink":{"blocks_used":3}}"#).contains("blocks_available"));
        let short = &read_all("ue,window_ms\n1\n")[1];
        assert!(short.as_ref().unwrap_err().to_string().contains("1 fields, wanted 2"));
    }

    proptest! {
        #[test]
        fn any_lines_are_survived(lines in prop::collection::vec("[ -~]{0,80}", 0..8)) {
            let mut feed = Feed::default();
            for line in lines {
                let _ = feed.read(line.as_bytes());
            }
        }
    }
}
