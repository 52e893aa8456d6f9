use std::fmt;
use std::str::FromStr;

use crate::parse::{self, ParseError, serde_as_text};

const WANTED: &str = "a factor between `0.01 x` and `100 x`, such as `1.4 x`";

/// How many times as much, above zero, in thousandths, so that comparing and hashing are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(u32);

impl Factor {
    /// As much.
    pub const ONE: Factor = Factor(1000);

    /// Rounded to a thousandth. Values outside `0.01..=100.0` are clamped; not-a-number is one.
    pub fn new(factor: f64) -> Self {
        if factor.is_nan() {
            return Factor::ONE;
        }
        Factor((factor.clamp(0.01, 100.0) * 1e3).round() as u32)
    }

    /// Between 0.01 and 100.0.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e3
    }
}

impl FromStr for Factor {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let factor = parse::scaled(text, &[("x", 1.0)], WANTED)?;
        if !(0.01..=100.0).contains(&factor) {
            return Err(ParseError::new(text, WANTED));
        }
        Ok(Factor::new(factor))
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1000, self.0 % 1000);
        f.pad(&format!("{} x", text.trim_end_matches('0').trim_end_matches('.')))
    }
}

serde_as_text!(Factor, WANTED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_people_write_it() {
        for text in ["0.01 x", "0.5 x", "1 x", "1.34 x", "100 x"] {
            assert_eq!(text.parse::<Factor>().unwrap().to_string(), text);
        }
        assert_eq!("1.4x".parse(), Ok(Factor::new(1.4)));
    }

    #[test]
    fn what_is_no_factor_is_refused() {
        for text in ["0 x", "101 x", "-1 x", "1.4", "140 %", "x"] {
            assert!(text.parse::<Factor>().is_err(), "{text}");
        }
    }
}
