//! Radio Network Information of ETSI MEC 012: `GET .../queries/layer2_meas`, polled.

use std::net::IpAddr;

use midspan_assist_proto::LinkReading;
use midspan_units::Rate;
use serde::Deserialize;

use super::{Batch, Format, Sample, UeName, Unreadable};

/// Reads a `L2Meas` (ETSI GS MEC 012 V2.2.1, section 6.2.2). The scheduled IP throughput in it (3GPP
/// TS 36.314, section 4.1.6, in kbit/s) leaves out the times when nothing waited and the last piece
/// of each burst: it is capacity, as far as anything is said. UEs come with their addresses.
#[derive(Debug, Default)]
pub struct Rni;

#[derive(Deserialize)]
#[serde(untagged)]
enum Body {
    /// As the first version of the standard has it.
    Wrapped {
        #[serde(rename = "L2Meas")]
        inner: Measurements,
    },
    Bare(Measurements),
}

#[derive(Deserialize)]
struct Measurements {
    #[serde(rename = "timeStamp")]
    time: Option<TimeStamp>,
    #[serde(default, rename = "cellUEInfo")]
    ues: Vec<Ue>,
    /// Nothing else tells an answer without UEs from something else.
    #[serde(rename = "cellInfo")]
    cells: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct TimeStamp {
    seconds: u64,
    #[serde(default, rename = "nanoSeconds")]
    nanoseconds: u64,
}

#[derive(Deserialize)]
struct Ue {
    #[serde(rename = "associateId")]
    ids: Associates,
    dl_gbr_throughput_ue: Option<u64>,
    dl_nongbr_throughput_ue: Option<u64>,
    ul_gbr_throughput_ue: Option<u64>,
    ul_nongbr_throughput_ue: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Associates {
    Many(Vec<Associate>),
    One(Associate),
}

#[derive(Deserialize)]
struct Associate {
    #[serde(rename = "type")]
    kind: Kind,
    value: String,
}

/// By name, or by number as the protocol buffers of the standard have it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kind {
    Number(u32),
    Name(String),
}

impl Associate {
    /// The UE's address as its senders see it: the one after translation, if there is one.
    fn address(&self) -> Option<(bool, IpAddr)> {
        let translated = match &self.kind {
            Kind::Number(1 | 2) => false,
            Kind::Number(3) => true,
            Kind::Name(name) if name == "UE_IPV4_ADDRESS" || name == "UE_IPv4_ADDRESS" => false,
            Kind::Name(name) if name == "UE_IPV6_ADDRESS" || name == "UE_IPv6_ADDRESS" => false,
            Kind::Name(name) if name == "NATED_IP_ADDRESS" => true,
            _ => return None,
        };
        Some((translated, self.value.parse().ok()?))
    }
}

impl Ue {
    fn sample(&self) -> Option<Sample> {
        let ids = match &self.ids {
            Associates::Many(many) => &many[..],
            Associates::One(one) => std::slice::from_ref(one),
        };
        let addresses = ids.iter().filter_map(Associate::address);
        let (_, address) = addresses.max_by_key(|(translated, _)| *translated)?;
        // Zero is said when nothing was sent, and then says nothing.
        let link = |gbr: Option<u64>, other: Option<u64>| {
            let kbps = gbr.unwrap_or(0).saturating_add(other.unwrap_or(0));
            let rate = Rate::from_bps(kbps.saturating_mul(1_000));
            LinkReading { capacity: (kbps > 0).then_some(rate), ..LinkReading::default() }
        };
        Some(Sample {
            name: UeName::Address(address),
            window: None,
            downlink: link(self.dl_gbr_throughput_ue, self.dl_nongbr_throughput_ue),
            uplink: link(self.ul_gbr_throughput_ue, self.ul_nongbr_throughput_ue),
        })
    }
}

impl Format for Rni {
    fn read(&mut self, record: &[u8]) -> Result<Option<Batch>, Unreadable> {
        let body: Body = serde_json::from_slice(record)?;
        let (Body::Wrapped { inner } | Body::Bare(inner)) = body;
        if inner.ues.is_empty() && inner.cells.is_none() && inner.time.is_none() {
            return Err(Unreadable("no layer 2 measurements (L2Meas)".into()));
        }
        let stamp = inner.time.map(|time| {
            time.seconds.saturating_mul(1_000_000).saturating_add(time.nanoseconds / 1_000)
        });
        let samples = inner.ues.iter().filter_map(Ue::sample).collect();
        Ok(Some(Batch { stamp, samples }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After the attributes of ETSI GS MEC 012 V2.2.1, table 6.2.2-1.
    const SAMPLE: &str = include_str!("../../samples/rni-l2meas.json");

    #[test]
    fn scheduled_throughput_is_capacity_and_zero_says_nothing() {
        let batch = Rni.read(SAMPLE.as_bytes()).unwrap().unwrap();
        assert_eq!(batch.stamp, Some(1_577_836_800_500_000));
        let [first, second] = &batch.samples[..] else { panic!("{batch:?}") };
        assert_eq!(first.name, UeName::Address("10.45.0.2".parse().unwrap()));
        assert_eq!(first.downlink.capacity, Some(Rate::from_bps(25_000_000)));
        assert_eq!(first.uplink.capacity, Some(Rate::from_bps(6_000_000)));
        // The address that its servers see.
        assert_eq!(second.name, UeName::Address("203.0.113.7".parse().unwrap()));
        assert_eq!(second.downlink.capacity, None);
    }

    #[test]
    fn both_ways_to_write_it_are_read_and_nothing_else() {
        let wrapped = format!("{{\"L2Meas\": {SAMPLE}}}");
        assert_eq!(Rni.read(wrapped.as_bytes()), Rni.read(SAMPLE.as_bytes()));
        let one = br#"{"cellUEInfo":[{"associateId":{"type":1,"value":"10.0.0.1"},
            "dl_nongbr_throughput_ue":100}]}"#;
        assert_eq!(Rni.read(one).unwrap().unwrap().samples.len(), 1);
        assert!(Rni.read(br#"{"title":"Not found","status":404}"#).is_err());
        assert!(Rni.read(b"<html>").is_err());
    }
}
