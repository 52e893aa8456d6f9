//! Quantities of radio: power, gain, frequency, distance, speed.

use std::fmt;
use std::str::FromStr;

use crate::parse::{self, ParseError, serde_as_text};

/// Reads a number with a sign, in hundredths of `unit`.
fn hundredths(text: &str, unit: &str, wanted: &'static str) -> Result<i32, ParseError> {
    let trimmed = text.trim();
    let (sign, number) = trimmed.strip_prefix('-').map_or((1.0, trimmed), |rest| (-1.0, rest));
    let value = parse::scaled(number, &[(unit, 100.0)], wanted)? * sign;
    if value.abs() > f64::from(MOST_HUNDREDTHS) {
        return Err(ParseError::new(text, wanted));
    }
    Ok(value.round() as i32)
}

/// Beyond 1000 dB there is nothing.
const MOST_HUNDREDTHS: i32 = 100_000;

fn print_hundredths(f: &mut fmt::Formatter<'_>, value: i32, unit: &str) -> fmt::Result {
    let sign = if value < 0 { "-" } else { "" };
    let (whole, rest) = (value.unsigned_abs() / 100, value.unsigned_abs() % 100);
    let text = format!("{whole}.{rest:02}");
    f.pad(&format!("{sign}{} {unit}", text.trim_end_matches('0').trim_end_matches('.')))
}

const POWER_WANTED: &str = "a power in decibels over a milliwatt, such as `43 dBm`";

/// A power, in hundredths of a decibel over one milliwatt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Power(i32);

impl Power {
    /// Of so many hundredths of a dBm.
    pub const fn from_hundredths(hundredths: i32) -> Self {
        Power(hundredths)
    }

    /// In hundredths of a dBm.
    pub const fn as_hundredths(self) -> i32 {
        self.0
    }
}

impl FromStr for Power {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        hundredths(text, "dBm", POWER_WANTED).map(Power)
    }
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_hundredths(f, self.0, "dBm")
    }
}

serde_as_text!(Power, POWER_WANTED);

const DECIBELS_WANTED: &str = "a ratio in decibels, such as `7 dB`";

/// A ratio of powers, in hundredths of a decibel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Decibels(i32);

impl Decibels {
    /// Of so many hundredths of a decibel.
    pub const fn from_hundredths(hundredths: i32) -> Self {
        Decibels(hundredths)
    }

    /// In hundredths of a decibel.
    pub const fn as_hundredths(self) -> i32 {
        self.0
    }
}

impl FromStr for Decibels {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        hundredths(text, "dB", DECIBELS_WANTED).map(Decibels)
    }
}

impl fmt::Display for Decibels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_hundredths(f, self.0, "dB")
    }
}

serde_as_text!(Decibels, DECIBELS_WANTED);

const FREQUENCY_WANTED: &str = "a frequency such as `2.5 GHz` or `180 kHz`";

/// A frequency in hertz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Frequency(u64);

impl Frequency {
    /// Of so many hertz.
    pub const fn from_hz(hertz: u64) -> Self {
        Frequency(hertz)
    }

    /// In hertz.
    pub const fn as_hz(self) -> u64 {
        self.0
    }
}

impl FromStr for Frequency {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let units = [("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)];
        parse::scaled(text, &units, FREQUENCY_WANTED).map(|hertz| Frequency(hertz.round() as u64))
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GHz", 1_000_000_000), ("MHz", 1_000_000), ("kHz", 1_000), ("Hz", 1)];
        parse::print_exact(f, self.0, &units)
    }
}

serde_as_text!(Frequency, FREQUENCY_WANTED);

const DISTANCE_WANTED: &str = "a distance such as `800 m` or `2 km`";

/// A distance in millimetres.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Distance(u64);

impl Distance {
    /// Of so many metres.
    pub const fn from_metres(metres: u64) -> Self {
        Distance(metres * 1000)
    }

    /// In metres.
    pub fn as_metres(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

impl FromStr for Distance {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let units = [("mm", 1.0), ("m", 1e3), ("km", 1e6)];
        parse::scaled(text, &units, DISTANCE_WANTED).map(|length| Distance(length.round() as u64))
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        parse::print_exact(f, self.0, &[("km", 1_000_000), ("m", 1_000), ("mm", 1)])
    }
}

serde_as_text!(Distance, DISTANCE_WANTED);

const SPEED_WANTED: &str = "a speed such as `3 km/h` or `10 m/s`";

/// A speed in metres per hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Speed(u64);

impl Speed {
    /// Of so many metres per hour.
    pub const fn from_metres_per_hour(metres: u64) -> Self {
        Speed(metres)
    }

    /// In metres per second.
    pub fn as_metres_per_second(self) -> f64 {
        self.0 as f64 / 3600.0
    }
}

impl FromStr for Speed {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let units = [("m/h", 1.0), ("km/h", 1e3), ("m/s", 3600.0)];
        parse::scaled(text, &units, SPEED_WANTED).map(|speed| Speed(speed.round() as u64))
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        parse::print_exact(f, self.0, &[("km/h", 1_000), ("m/h", 1)])
    }
}

serde_as_text!(Speed, SPEED_WANTED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_print_as_people_write_them() {
        for text in ["43 dBm", "-107.25 dBm", "0 dBm", "-0.5 dBm"] {
            assert_eq!(text.parse::<Power>().unwrap().to_string(), text);
        }
        assert_eq!("7 dB".parse::<Decibels>().unwrap().to_string(), "7 dB");
        assert_eq!("2.5 GHz".parse::<Frequency>().unwrap().to_string(), "2500 MHz");
        assert_eq!("1500 m".parse::<Distance>().unwrap().to_string(), "1500 m");
        assert_eq!("3 km/h".parse::<Speed>().unwrap().to_string(), "3 km/h");
        assert_eq!("10 m/s".parse::<Speed>().unwrap().to_string(), "36 km/h");
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        assert!("43 dB".parse::<Power>().is_err());
        assert!("--1 dBm".parse::<Power>().is_err());
        assert!("5000 dB".parse::<Decibels>().is_err());
        assert!("2.5".parse::<Frequency>().is_err());
        assert!("-2 m".parse::<Distance>().is_err());
        assert!("3 mph".parse::<Speed>().is_err());
    }
}
