//! What a paper states, as it is written: a number, a range or a bound, with its unit.

use midspan_units::number::{factor, shortest};

/// A statement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stated {
    kind: Kind,
    pub(super) unit: Unit,
}

/// In the unit.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Number(f64),
    Range(f64, f64),
    Above(f64),
    Below(f64),
}

/// In what a number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Of a quotient: itself.
    Factor,
    /// Of a quotient: by how much it is more than 1.
    Percent,
    Mbit,
    Kbit,
    Seconds,
    Millis,
    Plain,
}

/// A number of ours is the paper's if it is so many times the paper's at most, or one over it at least.
const CLOSE: f64 = 1.25;
/// A change of ours is the paper's if it is so far from it at most, as a part of 1: a factor would let pass what is small.
const CLOSE_POINTS: f64 = 0.1;

impl Stated {
    /// Reads `949 Mbit/s`, `-33.7 %`, `7 x`, `2 to 17 %`, `> 60 %`, `< 1 x`, `0.96`.
    pub(super) fn parse(text: &str) -> Result<Stated, String> {
        let wrong = || {
            format!(
                "`{text}` must be a number, `A to B`, `> A` or `< A`, and a unit: x, %, Mbit/s, kbit/s, s, ms or none"
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (numbers, unit) = match words.split_last() {
            Some((last, numbers)) => match Unit::parse(last) {
                Some(unit) => (numbers, unit),
                None => (&words[..], Unit::Plain),
            },
            None => return Err(wrong()),
        };
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let kind = match numbers {
            [one] => number(one).map(Kind::Number),
            [">", least] => number(least).map(Kind::Above),
            ["<", most] => number(most).map(Kind::Below),
            [least, "to", most] => number(least).zip(number(most)).map(|(a, b)| Kind::Range(a, b)),
            _ => None,
        };
        Ok(Stated { kind: kind.ok_or_else(wrong)?, unit })
    }

    /// The number, in base units, where it is one.
    pub(super) fn value(self) -> Option<f64> {
        match self.kind {
            Kind::Number(number) => Some(self.unit.to_base(number)),
            _ => None,
        }
    }

    /// Whether ours, in base units, is what is stated.
    pub(super) fn agrees(self, ours: f64) -> bool {
        match self.kind {
            Kind::Number(number) if self.unit == Unit::Percent => {
                (ours - self.unit.to_base(number)).abs() <= CLOSE_POINTS
            }
            Kind::Number(number) => {
                let factor = ours / self.unit.to_base(number);
                (1.0 / CLOSE..=CLOSE).contains(&factor)
            }
            Kind::Range(least, most) => {
                (self.unit.to_base(least)..=self.unit.to_base(most)).contains(&ours)
            }
            Kind::Above(least) => ours > self.unit.to_base(least),
            Kind::Below(most) => ours < self.unit.to_base(most),
        }
    }

    /// Ours beside the paper's number: over it, or of changes by how many points more; none beside a range or a bound.
    pub(super) fn beside(self, ours: f64) -> Option<String> {
        let theirs = self.value()?;
        if self.unit == Unit::Percent {
            return Some(format!("{:+.1} points", (ours - theirs) * 100.0));
        }
        (theirs > 0.0).then(|| factor(ours / theirs))
    }
}

impl Unit {
    fn parse(word: &str) -> Option<Unit> {
        Some(match word {
            "x" => Unit::Factor,
            "%" => Unit::Percent,
            "Mbit/s" => Unit::Mbit,
            "kbit/s" => Unit::Kbit,
            "s" => Unit::Seconds,
            "ms" => Unit::Millis,
            _ => return None,
        })
    }

    fn to_base(self, number: f64) -> f64 {
        match self {
            Unit::Factor | Unit::Seconds | Unit::Plain => number,
            Unit::Percent => 1.0 + number / 100.0,
            Unit::Mbit => number * 1e6,
            Unit::Kbit => number * 1e3,
            Unit::Millis => number / 1e3,
        }
    }

    /// A number in base units as it is written in this one.
    pub(super) fn written(self, base: f64) -> String {
        let digits = |value: f64| match value.abs() {
            v if v >= 99.95 => format!("{value:.0}"),
            v if v >= 9.995 => format!("{value:.1}"),
            v if v >= 0.995 || v == 0.0 => format!("{value:.2}"),
            _ => format!("{value:.3}"),
        };
        match self {
            Unit::Factor => format!("{} x", factor(base)),
            Unit::Percent => format!("{} %", shortest(((base - 1.0) * 1000.0).round() / 10.0)),
            Unit::Mbit => format!("{} Mbit/s", digits(base / 1e6)),
            Unit::Kbit => format!("{:.0} kbit/s", base / 1e3),
            Unit::Seconds => format!("{} s", digits(base)),
            Unit::Millis => format!("{} ms", digits(base * 1e3)),
            Unit::Plain => digits(base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(text: &str) -> Stated {
        Stated::parse(text).unwrap()
    }

    #[test]
    fn numbers_ranges_and_bounds_are_read_in_their_units() {
        assert_eq!(stated("949 Mbit/s").value(), Some(949e6));
        assert!(stated("949 Mbit/s").agrees(800e6) && !stated("949 Mbit/s").agrees(700e6));
        assert!(stated("2 to 17 %").agrees(1.1) && !stated("2 to 17 %").agrees(1.19));
        assert!(stated("> 60 %").agrees(1.62) && !stated("> 60 %").agrees(1.57));
        assert!(stated("< 1 x").agrees(0.9) && !stated("< 1 x").agrees(1.0));
        assert!(stated("> 0.96").agrees(0.97));
        for text in ["", "x", "about 7 x", "> Mbit/s", "7 8 x", "NaN s"] {
            assert!(Stated::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn of_a_change_the_points_are_compared() {
        // A third less against a half less, and against a quarter less.
        let loss = stated("-34 %");
        assert_eq!(loss.beside(0.5).unwrap(), "-16.0 points");
        assert!(!loss.agrees(0.5) && loss.agrees(0.75));
        // Seven per cent less are not 16 more, though 1.16 is 1.25 times 0.93.
        assert!(!stated("-7 %").agrees(1.16));
        assert_eq!(Unit::Percent.written(0.663), "-33.7 %");
    }
}
