//! How numbers are written: three or four digits that mean something, and a unit.

/// What a number measures, and hence how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Bits per second, written in Mbit/s.
    Rate,
    /// Seconds, each written in the unit that suits it.
    Duration,
    /// Bytes, each written in the unit that suits it.
    Size,
    /// How many, on the mean.
    Count,
    /// Something from 0 to 1, of which the third digit counts.
    Index,
}

impl Quantity {
    /// The number alone, in the unit that [`Quantity::unit_of`] gives for it.
    pub fn digits(self, value: f64) -> String {
        let scaled = value / self.scale_of(value);
        fixed(scaled, self.decimals(scaled))
    }

    /// A spread, to as many decimals as the mean that it belongs to, and in its unit.
    pub fn spread(self, spread: f64, mean: f64) -> String {
        let scale = self.scale_of(mean);
        fixed(spread / scale, self.decimals(mean / scale))
    }

    fn decimals(self, scaled: f64) -> usize {
        if self == Quantity::Index { 3 } else { decimals(scaled) }
    }

    /// The number and its unit.
    pub fn with_unit(self, value: f64) -> String {
        format!("{} {}", self.digits(value), self.unit_of(value)).trim_end().to_owned()
    }

    /// The unit in which `value` is written.
    pub fn unit_of(self, value: f64) -> &'static str {
        match self {
            Quantity::Rate => "Mbit/s",
            Quantity::Duration => duration_unit(value).0,
            Quantity::Size => size_unit(value).0,
            Quantity::Count | Quantity::Index => "",
        }
    }

    /// The label of a tick at `value`: rates alone, durations with their unit.
    pub fn tick(self, value: f64) -> String {
        match self {
            Quantity::Rate => shortest(value / 1e6),
            Quantity::Count | Quantity::Index => shortest(value),
            Quantity::Size => {
                let (unit, scale) = size_unit(value * 1.000_001);
                format!("{} {unit}", shortest(value / scale))
            }
            Quantity::Duration => {
                let (unit, scale) = duration_unit(value * 1.000_001);
                format!("{} {unit}", shortest(value / scale))
            }
        }
    }

    /// What to put after an axis' title: the unit, where the ticks do not carry it.
    pub fn axis_unit(self) -> &'static str {
        match self {
            Quantity::Rate => ", Mbit/s",
            Quantity::Duration | Quantity::Size | Quantity::Count | Quantity::Index => "",
        }
    }

    fn scale_of(self, value: f64) -> f64 {
        match self {
            Quantity::Rate => 1e6,
            Quantity::Duration => duration_unit(value).1,
            Quantity::Size => size_unit(value).1,
            Quantity::Count | Quantity::Index => 1.0,
        }
    }
}

/// What a table is sorted by where this is shown; none for what is no number, which comes last.
pub fn sort_key(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// A factor: `1.00`, `7.06`, `23.4`, `115.5`, `1042`.
pub fn factor(value: f64) -> String {
    let places = match value.abs() {
        v if v >= 999.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.0995 || v == 0.0 => 2,
        _ => 4,
    };
    fixed(value, places)
}

/// A share as a percentage with its sign kept: `15.0 %`, `-3.2 %`.
pub fn percent(fraction: f64) -> String {
    let value = fraction * 100.0;
    let places = if value.abs() >= 99.95 { 0 } else { 1 };
    format!("{} %", fixed(value, places))
}

/// A whole number with its thousands set apart by thin spaces: `1 204 311`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push('\u{2009}');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number of bytes in decimal units: `64 KB`, `1.5 MB`.
pub fn bytes(value: f64) -> String {
    let (unit, scale) = size_unit(value);
    let scaled = value / scale;
    let places = if scaled.fract().abs() < 0.005 || scaled >= 100.0 { 0 } else { 1 };
    format!("{} {unit}", fixed(scaled, places))
}

/// To at most six decimals, without zeros at the end: as others wrote it, no digit added or lost.
pub fn shortest(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// To `places` decimals; a dash for what is no number.
fn fixed(value: f64, places: usize) -> String {
    if value.is_finite() { format!("{value:.places$}") } else { "–".to_owned() }
}

fn decimals(scaled: f64) -> usize {
    match scaled.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 || v == 0.0 => 2,
        v if v >= 0.0995 => 3,
        _ => 5,
    }
}

fn duration_unit(seconds: f64) -> (&'static str, f64) {
    match seconds.abs() {
        v if v >= 1.0 || v == 0.0 => ("s", 1.0),
        v if v >= 1e-3 => ("ms", 1e-3),
        _ => ("us", 1e-6),
    }
}

fn size_unit(bytes: f64) -> (&'static str, f64) {
    let units = [("GB", 1e9), ("MB", 1e6), ("KB", 1e3)];
    units.into_iter().find(|(_, scale)| bytes >= *scale).unwrap_or(("B", 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_keep_the_digits_that_mean_something() {
        let text = |bps| Quantity::Rate.with_unit(bps);
        assert_eq!(text(949.04e6), "949.0 Mbit/s");
        assert_eq!(text(4.04e6), "4.04 Mbit/s");
        assert_eq!(text(0.3841e6), "0.384 Mbit/s");
        assert_eq!(text(9_150.3e6), "9150 Mbit/s");
        assert_eq!(text(0.0), "0.00 Mbit/s");
    }

    #[test]
    fn durations_choose_their_unit_and_spreads_follow_the_mean() {
        assert_eq!(Quantity::Duration.with_unit(0.001_23), "1.23 ms");
        assert_eq!(Quantity::Duration.with_unit(12.34), "12.3 s");
        assert_eq!(Quantity::Duration.with_unit(4e-5), "40.0 us");
        assert_eq!(Quantity::Duration.spread(0.4, 12.34), "0.4");
        assert_eq!(Quantity::Rate.spread(250_000.0, 4.04e6), "0.25");
    }

    #[test]
    fn counts_and_sizes_read_easily() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_204_311), "1\u{2009}204\u{2009}311");
        assert_eq!(bytes(1_000.0), "1 KB");
        assert_eq!(bytes(65_536.0), "65.5 KB");
        assert_eq!(bytes(1e9), "1 GB");
        assert_eq!(
            [0.0, 2.5e5, 1e6].map(|size| Quantity::Size.tick(size)),
            ["0 B", "250 KB", "1 MB"]
        );
        assert_eq!(factor(115.46), "115.5");
        assert_eq!(percent(-0.337), "-33.7 %");
    }
}
