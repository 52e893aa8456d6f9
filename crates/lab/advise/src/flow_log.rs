//! Figures of a path from the flow log of a relay on it (docs/reference/flow-log.md).

use midspan_scenario::Direction;
use midspan_units::{Rate, Share, Span};
use serde::Deserialize;

use crate::figures::Known;

/// What was read of a flow log, line by line.
#[derive(Debug, Default)]
pub struct FlowLog {
    client_rtts_us: Vec<u64>,
    server_rtts_us: Vec<u64>,
    /// Bytes per second at which flows' bytes arrived at clients, of those that were long enough.
    rates: Vec<u64>,
    sent: u64,
    again: u64,
    up: u64,
    down: u64,
}

#[derive(Debug, Deserialize)]
struct Line {
    kind: String,
    client_leg: Option<Leg>,
    server_leg: Option<Leg>,
    bytes_to_server: Option<u64>,
    bytes_to_client: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Leg {
    min_rtt_us: Option<u64>,
    segments_sent: u64,
    segments_retransmitted: u64,
    delivery_rate: u64,
}

/// Flows that sent less have hardly left slow start: their delivery rate is not the link's.
const LONG: u64 = 1_000_000;
/// Fewer segments say nothing of a share.
const ENOUGH_SEGMENTS: u64 = 1000;

impl FlowLog {
    /// Takes a line; lines of other kinds than `split` are passed over.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add(&mut self, line: &str) -> Result<(), String> {
        let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if line.kind != "split" {
            return Ok(());
        }
        let (Some(client), Some(server)) = (line.client_leg, line.server_leg) else {
            return Ok(());
        };
        // Without both round trips the one would be of other flows than the other.
        if let (Some(near), Some(far)) = (client.min_rtt_us, server.min_rtt_us) {
            self.client_rtts_us.push(near);
            self.server_rtts_us.push(far);
        }
        let down = line.bytes_to_client.unwrap_or(0);
        self.down = self.down.saturating_add(down);
        self.up = self.up.saturating_add(line.bytes_to_server.unwrap_or(0));
        self.sent = self.sent.saturating_add(client.segments_sent);
        self.again = self.again.saturating_add(client.segments_retransmitted);
        if down >= LONG {
            self.rates.push(client.delivery_rate);
        }
        Ok(())
    }

    /// What the log says of the path. Round trips are medians over flows of the least that each saw.
    pub fn known(mut self) -> Known {
        let mut known = Known::default();
        let flows = self.client_rtts_us.len();
        if let (Some(near), Some(far)) =
            (quantile(&mut self.client_rtts_us, 50), quantile(&mut self.server_rtts_us, 50))
        {
            known.radio_rtt = Some(Span::from_micros(near));
            known.rtt = Some(Span::from_micros(near.saturating_add(far)));
            known.notes.push(format!("round trips are medians over {flows} flows"));
        }
        let is_upload = self.up > self.down;
        if self.up != self.down {
            let direction = if is_upload { Direction::Upload } else { Direction::Download };
            known.direction = Some(direction);
        }
        if let Some(rate) = quantile(&mut self.rates, 90).filter(|rate| *rate > 0) {
            known.rate = Some(Rate::from_bps(rate.saturating_mul(8)));
            known.notes.push(format!(
                "the rate is what a tenth of {} downloads of 1 MB and more had or exceeded: the link's is at least that",
                self.rates.len()
            ));
        }
        if is_upload {
            known.notes.push("a log does not say what is lost of uploads".into());
        } else if self.sent >= ENOUGH_SEGMENTS {
            known.loss = Some(Share::from_fraction(self.again as f64 / self.sent as f64));
            known.notes.push(
                "the loss is the share of segments towards UEs that were sent again: what queues dropped, and what was late and taken \
                 for lost, is in it"
                    .into(),
            );
        }
        known
    }
}

/// The value that so many of a hundred do not exceed.
fn quantile(values: &mut [u64], percent: usize) -> Option<u64> {
    values.sort_unstable();
    let last = values.len().checked_sub(1)?;
    values.get((last * percent + 50) / 100).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn line(near_us: u64, far_us: u64, down: u64, [sent, again]: [u64; 2]) -> String {
        let leg = |rtt: u64| {
            json!({
                "min_rtt_us": rtt, "segments_sent": sent, "segments_retransmitted": again,
                "delivery_rate": 1_250_000, "more": true,
            })
        };
        json!({
            "schema": 1, "kind": "split", "bytes_to_client": down, "bytes_to_server": 300,
            "client_leg": leg(near_us), "server_leg": leg(far_us),
        })
        .to_string()
    }

    #[test]
    fn both_legs_make_the_path() {
        let mut log = FlowLog::default();
        for near in [9_000, 10_000, 50_000] {
            log.add(&line(near, near * 4, 2_000_000, [1000, 5])).unwrap();
        }
        log.add(r#"{"kind":"path","schema":1}"#).unwrap();
        log.add(r#"{"kind":"split","client_leg":null,"server_leg":null}"#).unwrap();
        let known = log.known();
        assert_eq!(known.radio_rtt, Some(Span::from_millis(10)));
        assert_eq!(known.rtt, Some(Span::from_millis(50)));
        assert_eq!(known.rate, Some(Rate::from_bps(10_000_000)));
        assert_eq!(known.loss, Some(Share::from_fraction(0.005)));
        assert_eq!((known.direction, known.late), (Some(Direction::Download), None));
        assert_eq!(known.notes.len(), 3);
    }

    #[test]
    fn what_is_too_little_says_nothing() {
        assert_eq!(FlowLog::default().known(), Known::default());
        let mut log = FlowLog::default();
        log.add(&line(1_000, 2_000, 10_000, [20, 1])).unwrap();
        let known = log.known();
        assert_eq!((known.rate, known.loss), (None, None));
        let mut log = FlowLog::default();
        log.add(&line(1_000, 2_000, 0, [2000, 1000])).unwrap();
        let known = log.known();
        assert_eq!((known.direction, known.loss), (Some(Direction::Upload), None));
        assert!(FlowLog::default().add("no line").is_err());
    }

    proptest! {
        #[test]
        fn no_number_breaks_it(near: u64, far: u64, down: u64, sent: u64, again: u64) {
            let mut log = FlowLog::default();
            (0..2).try_for_each(|_| log.add(&line(near, far, down, [sent, again]))).unwrap();
            let _ = log.known();
        }
    }
}
