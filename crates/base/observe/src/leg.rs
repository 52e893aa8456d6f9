//! What TCP knows of one leg.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What the kernel's TCP knew of a leg (TCP_INFO) when it was asked. Times are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LegStats {
    /// `TCP_CONGESTION`. Empty if it was not asked for.
    pub congestion_control: Algorithm,
    /// Smoothed round-trip time; 0 if none was measured.
    pub rtt_us: u32,
    /// Its mean deviation.
    pub rtt_var_us: u32,
    /// The least that was measured in the kernel's window (`net.ipv4.tcp_min_rtt_wlen`). None if
    /// none was.
    pub min_rtt_us: Option<u32>,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Largest segment that is sent, in bytes.
    pub mss: u32,
    /// Bytes sent, each time that they were.
    pub bytes_sent: u64,
    /// Bytes of these that were sent again.
    pub bytes_retransmitted: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Segments with data sent, each time that they were.
    pub segments_sent: u32,
    /// Segments sent again.
    pub segments_retransmitted: u32,
    /// What arrived at the peer per second, in bytes, when it was last measured (or the most, where
    /// there was too little to send); 0 if it never was.
    pub delivery_rate: u64,
    /// How long there was something to send, or unacknowledged.
    pub busy_us: u64,
    /// How long of that the peer's window was in the way.
    pub rwnd_limited_us: u64,
    /// How long of that the send buffer was.
    pub sndbuf_limited_us: u64,
}

impl LegStats {
    /// Bytes of a million sent that were sent again; none if nothing was sent.
    pub fn retransmitted_ppm(&self) -> Option<u64> {
        let ppm = u128::from(self.bytes_retransmitted) * 1_000_000;
        ppm.checked_div(self.bytes_sent.into()).map(|ppm| ppm as u64)
    }
}

/// The name of a congestion control. At most 16 bytes, so that it can be copied about.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Algorithm([u8; 16]);

impl Algorithm {
    /// From what the kernel says, which ends at the first zero.
    pub const fn new(name: [u8; 16]) -> Self {
        Algorithm(name)
    }

    /// As text; empty if it is none.
    pub fn as_str(&self) -> &str {
        let name = self.0.split(|&byte| byte == 0).next().unwrap_or_default();
        std::str::from_utf8(name).unwrap_or_default()
    }
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl Serialize for Algorithm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Algorithm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut name = [0; 16];
        let place = name.get_mut(..text.len());
        let place = place.ok_or_else(|| de::Error::custom("a name of more than 16 bytes"))?;
        place.copy_from_slice(text.as_bytes());
        Ok(Algorithm(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_again_is_a_share_of_what_was_sent() {
        let leg = LegStats { bytes_sent: 3000, bytes_retransmitted: 30, ..LegStats::default() };
        assert_eq!(leg.retransmitted_ppm(), Some(10_000));
        assert_eq!(LegStats::default().retransmitted_ppm(), None);
    }

    #[test]
    fn an_algorithm_ends_at_the_first_zero() {
        assert_eq!(Algorithm::new(*b"cubic\0\0\0\0\0\0\0\0\0\0x").as_str(), "cubic");
        assert_eq!(Algorithm::new(*b"sixteen_letters!").as_str(), "sixteen_letters!");
        assert_eq!(Algorithm::default().as_str(), "");
    }
}
