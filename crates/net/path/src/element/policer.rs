use midspan_units::{ByteSize, Rate, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use crate::{Counters, Packet};

/// A token bucket that drops what exceeds it and delays nothing: what a mobile gateway does to
/// traffic above the agreed rate (3GPP TS 23.107, annex B; TS 23.203). Over any time `t` at most
/// `bucket + rate x t` passes. The bucket starts full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicerSpec {
    /// Rate at which tokens flow in, counted on IP packets with their headers.
    pub rate: Rate,
    /// Most tokens that the bucket holds. A packet larger than this never passes.
    pub bucket: ByteSize,
}

impl PolicerSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.rate == Rate::from_bps(0) {
            return Err("the rate must be above zero, such as `384 kbit/s`".to_owned());
        }
        if self.bucket.as_bytes() == 0 {
            return Err("the bucket must hold at least one packet, such as `1500 B`".to_owned());
        }
        Ok(())
    }
}

/// Tokens in one byte: with a token a bit and a nanosecond, refilling needs no division.
const BYTE: u128 = 8_000_000_000;

pub(crate) struct Policer {
    spec: PolicerSpec,
    tokens: u128,
    refilled: Time,
    dropped: u64,
}

impl Policer {
    pub(crate) fn new(spec: PolicerSpec) -> Self {
        let tokens = u128::from(spec.bucket.as_bytes()) * BYTE;
        Policer { spec, tokens, refilled: Time::ZERO, dropped: 0 }
    }

    fn refill(&mut self, now: Time) {
        let elapsed = u128::from(now.since(self.refilled).as_nanos());
        let flown = u128::from(self.spec.rate.as_bps()) * elapsed;
        let full = u128::from(self.spec.bucket.as_bytes()) * BYTE;
        self.tokens = full.min(self.tokens.saturating_add(flown));
        self.refilled = now;
    }
}

impl<P: Packet> Element<P> for Policer {
    fn enter(&mut self, now: Time, packet: P) -> Option<P> {
        self.refill(now);
        match self.tokens.checked_sub(u128::from(packet.wire_bytes()) * BYTE) {
            Some(rest) => {
                self.tokens = rest;
                Some(packet)
            }
            None => {
                self.dropped += 1;
                None
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        counters.add_dropped("policer", self.dropped);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{cross, direction, refusal};

    #[test]
    fn a_burst_of_a_bucket_passes_and_then_the_rate() {
        // 12 Mbit/s fill 1500 bytes in 1 ms.
        let mut link = direction("{ policer = { rate = '12 Mbit/s', bucket = '3000 B' } }");
        let arrivals =
            [(0, 1500), (0, 1500), (0, 40), (999, 1500), (1000, 1500), (9000, 3001), (9000, 3000)];
        let out = cross(&mut link, &arrivals);
        assert_eq!(out, [(0, 0), (0, 1), (1000, 4), (9000, 6)]);
        assert_eq!(link.counters().dropped["policer"], 3);
    }

    #[test]
    fn a_bucket_or_rate_of_nothing_is_refused() {
        let error = refusal("{ policer = { rate = '1 Mbit/s', bucket = '0 B' } }");
        assert!(error.contains("at least one packet"), "{error}");
        let error = refusal("{ policer = { rate = '0 bit/s', bucket = '1500 B' } }");
        assert!(error.contains("the rate must be above zero"), "{error}");
    }
}
