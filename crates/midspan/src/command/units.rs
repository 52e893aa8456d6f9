//! Numbers as people read them at a glance.

/// Bytes, in decimal units.
pub(crate) fn bytes(bytes: f64) -> String {
    scaled(bytes, "B")
}

/// Bytes per second, as bits.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    scaled(bytes_per_second * 8.0, "bit")
}

fn scaled(value: f64, unit: &str) -> String {
    let mut value = value;
    for prefix in ["", "k", "M", "G"] {
        if value < 999.5 {
            let digits = if prefix.is_empty() || value >= 99.95 { 0 } else { 1 };
            return format!("{value:.digits$} {prefix}{unit}");
        }
        value /= 1e3;
    }
    format!("{value:.1} T{unit}")
}

/// A time in its two greatest units.
pub(crate) fn age(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0 => format!("{:.0} ms", seconds.max(0.0) * 1e3),
        1..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        3600..86400 => format!("{} h {} min", whole / 3600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86400, whole / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_or_three_digits_and_a_unit() {
        let texts = [0.0, 999.0, 999.9, 1234.0, 99_960.0, 1e6, 2.5e12, 5e15].map(bytes);
        assert_eq!(
            texts,
            ["0 B", "999 B", "1.0 kB", "1.2 kB", "100 kB", "1.0 MB", "2.5 TB", "5000.0 TB"]
        );
        assert_eq!(rate(125_000.0), "1.0 Mbit");
        assert_eq!(
            [0.25, 59.9, 61.0, 7260.0, 90_000.0].map(age),
            ["250 ms", "59 s", "1 min 1 s", "2 h 1 min", "1 d 1 h"]
        );
    }
}
