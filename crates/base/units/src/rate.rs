use std::fmt;
use std::str::FromStr;

use crate::parse::{self, ParseError, serde_as_text};
use crate::{ByteSize, Span};

const WANTED: &str = "a rate such as `384 kbit/s`, `100 Mbit/s` or `1 Gbit/s` (decimal units)";

/// A data rate in bits per second. Decimal units, as links are sold: 1 Mbit/s is 10^6 bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Rate {
    /// A rate of `bits` per second.
    pub const fn from_bps(bits: u64) -> Self {
        Rate(bits)
    }

    /// The mean rate of `bytes` moved in `span`; zero for an empty span.
    pub fn of(bytes: u64, span: Span) -> Self {
        if span == Span::ZERO {
            return Rate(0);
        }
        let bits = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(span.as_nanos());
        Rate(u64::try_from(bits).unwrap_or(u64::MAX))
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Millions of bits per second.
    pub fn as_mbps(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// How long `bytes` take to pass at this rate, rounded up to a nanosecond. A rate of zero
    /// passes nothing: the answer is [`Span::MAX`].
    pub fn time_for(self, bytes: u64) -> Span {
        if self.0 == 0 {
            return Span::MAX;
        }
        let nanos = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(u128::from(self.0));
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many whole bytes pass in `span`.
    pub fn bytes_in(self, span: Span) -> ByteSize {
        let bytes = u128::from(self.0) * u128::from(span.as_nanos()) / 8_000_000_000;
        ByteSize::from_bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl FromStr for Rate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let units = [("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)];
        parse::scaled(text, &units, WANTED).map(|bits| Rate(bits.round() as u64))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units =
            [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)];
        parse::print_exact(f, self.0, &units)
    }
}

serde_as_text!(Rate, WANTED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_packet_at_one_gigabit_takes_twelve_microseconds() {
        let rate: Rate = "1 Gbit/s".parse().unwrap();
        assert_eq!(rate.time_for(1500), Span::from_micros(12));
        assert_eq!(rate.bytes_in(Span::from_micros(12)).as_bytes(), 1500);
    }

    #[test]
    fn nothing_passes_at_rate_zero() {
        assert_eq!(Rate::from_bps(0).time_for(1), Span::MAX);
    }

    #[test]
    fn a_unit_is_required() {
        for text in ["100", "100 mbps", "-1 Mbit/s", "Mbit/s", "1 MB/s", ""] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }
}
