use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::str::FromStr;
use std::time::Duration;

use crate::parse::{self, ParseError, serde_as_text};

const WANTED: &str = "a time such as `0.5 ms`, `50 ms`, `10 s`, `20 us` or `2 min`";

/// A length of time in nanoseconds: eight bytes and integer arithmetic where
/// [`std::time::Duration`] takes sixteen, for the packet paths. Additions saturate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than any run: "never".
    pub const MAX: Span = Span(u64::MAX);

    /// `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Span(nanos)
    }

    /// `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Span(micros * 1_000)
    }

    /// `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Span(millis * 1_000_000)
    }

    /// `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Span(secs * 1_000_000_000)
    }

    /// In nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// In microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// In seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// In milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// This much less `other`, or zero.
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0 - other.0)
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, times: u64) -> Span {
        Span(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Span {
    type Output = Span;
    fn div(self, parts: u64) -> Span {
        Span(self.0 / parts)
    }
}

impl Sum for Span {
    fn sum<I: Iterator<Item = Span>>(spans: I) -> Span {
        spans.fold(Span::ZERO, Add::add)
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Duration::from_nanos(span.0)
    }
}

impl FromStr for Span {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let units =
            [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)];
        parse::scaled(text, &units, WANTED).map(|nanos| Span(nanos.round() as u64))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (factor, unit) = match self.0 {
            0 | 1_000_000_000.. => (1_000_000_000, "s"),
            1_000_000.. => (1_000_000, "ms"),
            1_000.. => (1_000, "us"),
            _ => (1, "ns"),
        };
        let (whole, rest) = (self.0 / factor, self.0 % factor);
        if rest == 0 {
            return f.pad(&format!("{whole} {unit}"));
        }
        let places = factor.ilog10() as usize;
        let text = format!("{whole}.{rest:0places$}");
        f.pad(&format!("{} {unit}", text.trim_end_matches('0')))
    }
}

serde_as_text!(Span, WANTED);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prints_as_people_write_it() {
        for text in ["0.5 ms", "50 ms", "10 s", "1.5 s", "20 us"] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        }
        assert_eq!("0.5 ms".parse::<Span>().unwrap().to_string(), "500 us");
        assert_eq!(Span::from_millis(50).to_string(), "50 ms");
    }

    proptest! {
        #[test]
        fn text_round_trips(nanos in 0u64..1 << 50) {
            let span = Span::from_nanos(nanos);
            prop_assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        }
    }
}
