//! What legs and queues did over time.

use std::collections::BTreeMap;

use midspan_units::Span;
use serde::{Deserialize, Serialize};

use super::LegRecord;

/// Legs and queues as they stood at each look, from before the flows connected to the end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SeriesRecord {
    /// Every TCP leg of the traffic's, in the order in which they were seen first.
    pub legs: Vec<LegSeries>,
    /// Both directions of every link.
    pub links: Vec<LinkSeries>,
}

/// One leg: an entry in each list for every look at which it stood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LegSeries {
    /// As [`LegRecord::host`].
    pub host: String,
    /// As [`LegRecord::leg`].
    pub leg: String,
    /// Which of the legs of this host and kind, in the order in which they were seen first.
    pub number: u32,
    /// When, in seconds from the run's beginning.
    pub at_s: Vec<f64>,
    /// Congestion window, segments.
    pub cwnd: Vec<u32>,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: Vec<u32>,
    /// Most recent delivery rate, bit/s.
    pub delivery_rate_bps: Vec<f64>,
    /// Segments retransmitted so far.
    pub retransmits: Vec<u32>,
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkSeries {
    /// As [`LinkRecord::link`](super::LinkRecord::link).
    pub link: String,
    /// `up` or `down`.
    pub way: String,
    /// When, in seconds from the run's beginning.
    pub at_s: Vec<f64>,
    /// Bytes that wait in queues and other elements; not those under way in a fixed delay.
    pub waiting_bytes: Vec<u64>,
}

/// Collects looks. `K` tells the legs apart.
#[derive(Debug, Clone)]
pub struct SeriesWatch<K> {
    known: BTreeMap<K, usize>,
    record: SeriesRecord,
}

impl<K: Ord> SeriesWatch<K> {
    /// `at`, from the run's beginning, the leg `key` stood like that.
    pub fn leg(&mut self, at: Span, key: K, leg: &LegRecord) {
        let legs = &mut self.record.legs;
        let index = *self.known.entry(key).or_insert_with(|| {
            let same = legs.iter().filter(|known| known.host == leg.host && known.leg == leg.leg);
            // Sockets are fewer.
            let number = u32::try_from(same.count()).unwrap_or(u32::MAX);
            legs.push(LegSeries {
                host: leg.host.clone(),
                leg: leg.leg.clone(),
                number,
                at_s: Vec::new(),
                cwnd: Vec::new(),
                rtt_us: Vec::new(),
                delivery_rate_bps: Vec::new(),
                retransmits: Vec::new(),
            });
            legs.len() - 1
        });
        let series = &mut legs[index];
        series.at_s.push(at.as_secs_f64());
        series.cwnd.push(leg.cwnd);
        series.rtt_us.push(leg.rtt_us);
        series.delivery_rate_bps.push(leg.delivery_rate_bps);
        series.retransmits.push(leg.retransmits);
    }

    /// `at`, from the run's beginning, so many bytes waited on a link, up and down.
    pub fn link(&mut self, at: Span, name: &str, waiting: [u64; 2]) {
        for (way, bytes) in ["up", "down"].into_iter().zip(waiting) {
            let links = &mut self.record.links;
            let known = links.iter().position(|known| known.link == name && known.way == way);
            let index = known.unwrap_or_else(|| {
                links.push(LinkSeries {
                    link: name.to_owned(),
                    way: way.to_owned(),
                    at_s: Vec::new(),
                    waiting_bytes: Vec::new(),
                });
                links.len() - 1
            });
            links[index].at_s.push(at.as_secs_f64());
            links[index].waiting_bytes.push(bytes);
        }
    }

    /// All that was seen.
    pub fn record(self) -> SeriesRecord {
        self.record
    }
}

impl<K> Default for SeriesWatch<K> {
    fn default() -> Self {
        SeriesWatch { known: BTreeMap::new(), record: SeriesRecord::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(host: &str, cwnd: u32) -> LegRecord {
        LegRecord {
            host: host.into(),
            leg: "client".into(),
            congestion_control: "cubic".into(),
            rtt_us: 1000,
            min_rtt_us: 900,
            cwnd,
            retransmits: 0,
            bytes_acked: 0,
            bytes_received: 0,
            delivery_rate_bps: 1e6,
            dsack_dups: 0,
            reord_seen: 0,
            busy: None,
        }
    }

    #[test]
    fn legs_are_told_apart_and_counted_by_host_and_kind() {
        let mut watch = SeriesWatch::default();
        watch.leg(Span::from_millis(10), 7, &leg("ue", 10));
        watch.leg(Span::from_millis(10), 9, &leg("mec", 11));
        watch.leg(Span::from_millis(20), 8, &leg("ue", 12));
        watch.leg(Span::from_millis(20), 7, &leg("ue", 13));
        watch.link(Span::from_millis(20), "access", [0, 1500]);
        let record = watch.record();
        let legs: Vec<_> =
            record.legs.iter().map(|leg| (&*leg.host, leg.number, leg.cwnd.clone())).collect();
        assert_eq!(legs, [("ue", 0, vec![10, 13]), ("mec", 0, vec![11]), ("ue", 1, vec![12])]);
        assert_eq!(record.legs[0].at_s, [0.01, 0.02]);
        let ways: Vec<_> =
            record.links.iter().map(|link| (&*link.way, link.waiting_bytes[0])).collect();
        assert_eq!(ways, [("up", 0), ("down", 1500)]);
    }
}
