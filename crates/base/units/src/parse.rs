//! "Number, optional space, unit", shared by every quantity.

use std::fmt;

/// Text that is not a quantity of the wanted kind. Prints what was read and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    text: String,
    wanted: &'static str,
}

impl ParseError {
    pub(crate) fn new(text: &str, wanted: &'static str) -> Self {
        ParseError { text: text.to_owned(), wanted }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not {}", self.text, self.wanted)
    }
}

impl std::error::Error for ParseError {}

/// Splits `text` into a finite, non-negative number and its unit, and scales the number by the
/// factor that `units` gives for the unit.
pub(crate) fn scaled(
    text: &str,
    units: &[(&str, f64)],
    wanted: &'static str,
) -> Result<f64, ParseError> {
    let error = || ParseError::new(text, wanted);
    let trimmed = text.trim();
    let unit_at = trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(trimmed.len());
    let (digits, unit) = trimmed.split_at(unit_at);
    let number: f64 = digits.replace('_', "").parse().map_err(|_| error())?;
    let unit = unit.trim();
    let factor = units.iter().find(|(name, _)| *name == unit).ok_or_else(error)?.1;
    Ok(number * factor)
}

/// Prints `value` in the largest unit that keeps it exact, or the base unit.
pub(crate) fn print_exact(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    units: &[(&str, u64)],
) -> fmt::Result {
    let (name, factor) = units
        .iter()
        .find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor))
        .or(units.last())
        .copied()
        .unwrap_or(("", 1));
    f.pad(&format!("{} {}", value / factor, name))
}

/// Serde through `FromStr` and `Display`, so that files hold what people write.
macro_rules! serde_as_text {
    ($type:ty, $wanted:expr) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($wanted)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Visitor)
            }
        }
    };
}
pub(crate) use serde_as_text;
