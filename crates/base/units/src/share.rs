use std::fmt;
use std::str::FromStr;

use crate::parse::{self, ParseError, serde_as_text};

const WANTED: &str = "a share between `0 %` and `100 %`, such as `0.5 %`";

/// A share of a whole, in parts per billion, so that comparing and hashing are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Share(u32);

impl Share {
    /// Nothing of it.
    pub const ZERO: Share = Share(0);
    /// All of it.
    pub const ONE: Share = Share(1_000_000_000);

    /// The share of `fraction`, rounded to a billionth; values outside `0.0..=1.0` are clamped and
    /// not-a-number is zero.
    pub fn from_fraction(fraction: f64) -> Self {
        Share((fraction.clamp(0.0, 1.0) * 1e9).round() as u32)
    }

    /// Between 0.0 and 1.0.
    pub fn as_fraction(self) -> f64 {
        f64::from(self.0) / 1e9
    }

    /// Whether a uniformly random 32-bit number falls into this share. Integer arithmetic, so the
    /// same draw decides the same on every machine.
    pub const fn takes(self, draw: u32) -> bool {
        // draw / 2^32 < ppb / 10^9
        (draw as u64) * 1_000_000_000 < (self.0 as u64) << 32
    }
}

impl FromStr for Share {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let fraction = parse::scaled(text, &[("%", 0.01)], WANTED)?;
        if fraction > 1.0 {
            return Err(ParseError::new(text, WANTED));
        }
        Ok(Share::from_fraction(fraction))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Parts per billion in per cent: seven decimals hold it exactly.
        let text = format!("{}.{:07}", self.0 / 10_000_000, self.0 % 10_000_000);
        f.pad(&format!("{} %", text.trim_end_matches('0').trim_end_matches('.')))
    }
}

serde_as_text!(Share, WANTED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_people_write_it() {
        for text in ["0 %", "0.05 %", "0.5 %", "1 %", "100 %"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn the_ends_take_nothing_and_everything() {
        assert!(!Share::ZERO.takes(0));
        assert!(Share::ONE.takes(u32::MAX));
    }

    #[test]
    fn more_than_the_whole_is_refused() {
        for text in ["101 %", "0.5", "-1 %", "%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
