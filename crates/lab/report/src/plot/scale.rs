//! From values to places on an axis, and the ticks on the way.

/// A linear axis from zero, or a logarithmic one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    /// From 0 to `top`.
    Linear {
        /// The value at the far end.
        top: f64,
        /// Between two ticks.
        step: f64,
    },
    /// From `bottom` to `top`, both above zero.
    Log {
        /// The value at the near end.
        bottom: f64,
        /// The value at the far end.
        top: f64,
    },
}

/// A mark on an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tick {
    /// Its value.
    pub(crate) value: f64,
    /// Whether it is worth a label and a full line.
    pub(crate) major: bool,
}

/// Values further apart than this are unreadable on a linear axis.
const LINEAR_RANGE: f64 = 40.0;

impl Scale {
    /// Covers `values`: linear, unless the smallest above zero would vanish beside the greatest.
    pub(crate) fn covering(values: impl IntoIterator<Item = f64>) -> Self {
        match extent(values) {
            Some((least, greatest)) if greatest / least > LINEAR_RANGE => {
                // A bar of no height would look like none at all.
                Self::log(least * 0.8, greatest)
            }
            Some((_, greatest)) => Self::linear(greatest),
            None => Self::linear(1.0),
        }
    }

    /// Covers `values` on a linear axis, whatever their range.
    pub(crate) fn covering_linear(values: impl IntoIterator<Item = f64>) -> Self {
        Self::linear(extent(values).map_or(1.0, |(_, greatest)| greatest))
    }

    /// Covers `values` on a logarithmic axis, whatever their range.
    pub(crate) fn covering_log(values: impl IntoIterator<Item = f64>) -> Self {
        let (least, greatest) = extent(values).unwrap_or((1.0, 10.0));
        Self::log(least, greatest)
    }

    /// Covers factors and 1, on a logarithmic axis: closely where all are near 1.
    pub(crate) fn covering_factors(values: impl IntoIterator<Item = f64>) -> Self {
        let (least, greatest) = extent(values.into_iter().chain([1.0])).unwrap_or((1.0, 1.0));
        // One per cent is as close as anybody asks.
        let (least, greatest) = (least.min(0.99), greatest.max(1.01));
        let step = fine_step(least, greatest);
        let (bottom, top) = ((least / step).floor() * step, (greatest / step).ceil() * step);
        if bottom > 0.0 && top < bottom * NARROW {
            Scale::Log { bottom, top }
        } else {
            Self::log(least, greatest)
        }
    }

    fn linear(greatest: f64) -> Self {
        let step = step_above(greatest / 5.0);
        Scale::Linear { top: (greatest / step).ceil() * step, step }
    }

    /// Whole decades where the range is wide, else the nearest 1, 2 or 5 of a decade.
    fn log(least: f64, greatest: f64) -> Self {
        let wide = greatest / least > 300.0;
        let (mut bottom, mut top) = if wide {
            (10f64.powf(least.log10().floor()), 10f64.powf(greatest.log10().ceil()))
        } else {
            (floor_125(least), ceil_125(greatest))
        };
        if top < bottom * 1.5 {
            (bottom, top) = (bottom / 2.0, top * 2.0);
        }
        Scale::Log { bottom, top }
    }

    /// Where `value` lies, 0 at the near end and 1 at the far end; what is outside goes to the
    /// nearer end, and what is not a number to the near one.
    pub(crate) fn place(self, value: f64) -> f64 {
        let place = match self {
            Scale::Linear { top, .. } => value / top,
            Scale::Log { bottom, .. } if value <= bottom => 0.0,
            Scale::Log { bottom, top } => (value / bottom).ln() / (top / bottom).ln(),
        };
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// Ticks from the near end to the far end.
    pub(crate) fn ticks(self) -> Vec<Tick> {
        match self {
            Scale::Linear { top, step } => (0..=(top / step).round() as u32)
                .map(|index| Tick { value: f64::from(index) * step, major: true })
                .collect(),
            Scale::Log { bottom, top } => log_ticks(bottom, top),
        }
    }

    /// The values at the near and the far end.
    pub(crate) fn ends(self) -> (f64, f64) {
        match self {
            Scale::Linear { top, .. } => (0.0, top),
            Scale::Log { bottom, top } => (bottom, top),
        }
    }

    /// Whether equal steps are equal factors.
    pub(crate) fn is_log(self) -> bool {
        matches!(self, Scale::Log { .. })
    }
}

/// A logarithmic axis up to this factor has ticks at equal steps: 1, 2 and 5 are too far apart.
const NARROW: f64 = 1.99;

/// Between two ticks of a narrow axis.
fn fine_step(bottom: f64, top: f64) -> f64 {
    step_above((top - bottom) / 5.0)
}

/// The least 1, 2, 2.5 or 5 times a power of ten that is not below `rough`.
fn step_above(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|multiple| multiple * power)
        .find(|step| rough <= step * 1.000_001)
        .unwrap_or(10.0 * power)
}

fn log_ticks(bottom: f64, top: f64) -> Vec<Tick> {
    if top < bottom * NARROW {
        let step = fine_step(bottom, top);
        let first = (bottom / step * 0.999_999).ceil() as u32;
        let last = (top / step * 1.000_001).floor() as u32;
        let tick = |number| Tick { value: f64::from(number) * step, major: true };
        return (first..=last).map(tick).collect();
    }
    let decades = (top / bottom).log10();
    let labelled: &[f64] = if decades <= 2.01 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let within = |value: f64| value >= bottom * 0.999_999 && value <= top * 1.000_001;
    let first = bottom.log10().floor() as i32;
    let last = top.log10().ceil() as i32;
    (first..=last)
        .flat_map(|decade| (1..10).map(move |digit| (f64::from(digit), 10f64.powi(decade))))
        .map(|(digit, decade)| Tick { value: digit * decade, major: labelled.contains(&digit) })
        .filter(|tick| within(tick.value))
        .collect()
}

/// The greatest 1, 2 or 5 times a power of ten that is not above `value`.
fn floor_125(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let multiple = [5.0, 2.0].into_iter().find(|step| step * power <= value * 1.000_001);
    multiple.unwrap_or(1.0) * power
}

/// The least 1, 2 or 5 times a power of ten that is not below `value`.
fn ceil_125(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let multiple = [1.0, 2.0, 5.0].into_iter().find(|step| step * power >= value * 0.999_999);
    multiple.unwrap_or(10.0) * power
}

/// The least and the greatest of the values that a measurement could give: no axis needs to show
/// less than a picosecond or more than an exabit per second.
fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .into_iter()
        .filter(|value| (1e-12..=1e18).contains(value))
        .map(|value| (value, value))
        .reduce(|(least, greatest), (value, _)| (least.min(value), greatest.max(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_range_is_logarithmic_and_a_narrow_one_starts_at_zero() {
        assert_eq!(Scale::covering([940.0, 470.0]), Scale::Linear { top: 1000.0, step: 200.0 });
        assert_eq!(Scale::covering([949.0, 0.8]), Scale::Log { bottom: 0.1, top: 1000.0 });
    }

    #[test]
    fn nothing_to_show_still_has_an_axis() {
        for values in [vec![], vec![0.0], vec![f64::NAN, f64::INFINITY, f64::MAX, -1.0]] {
            let scale = Scale::covering(values);
            assert!(!scale.ticks().is_empty());
            assert_eq!(scale.place(f64::NAN), 0.0);
        }
    }

    #[test]
    fn places_run_from_end_to_end() {
        let scale = Scale::Log { bottom: 0.1, top: 1000.0 };
        assert_eq!(scale.place(0.0), 0.0);
        assert_eq!(scale.place(0.1), 0.0);
        assert!((scale.place(10.0) - 0.5).abs() < 1e-9);
        assert_eq!(scale.place(1e9), 1.0);
    }

    #[test]
    fn one_value_gets_an_axis_around_it() {
        for value in [1e-6, 0.001, 1.0, 5.0, 1e9] {
            let scale = Scale::covering_log([value]);
            assert!(scale.place(value) > 0.0 && scale.ticks().len() > 1, "{value}: {scale:?}");
            let scale = Scale::covering([value]);
            assert!(scale.place(value) > 0.5 && scale.ticks().len() > 3, "{value}: {scale:?}");
        }
    }

    #[test]
    fn factors_near_one_are_seen_closely_and_one_is_always_there() {
        for (least, greatest) in [(1.0, 1.0), (0.98, 1.03), (1.2, 1.45), (0.3, 0.8), (0.1, 60.0)] {
            let scale = Scale::covering_factors([least, greatest]);
            let (bottom, top) = scale.ends();
            assert!(bottom <= least.min(0.99) && greatest.max(1.01) <= top, "{scale:?}");
            let ticks = scale.ticks();
            let labels = ticks.iter().filter(|tick| tick.major).count();
            assert!((3..=9).contains(&labels), "{least} to {greatest}: {ticks:?}");
            assert!(ticks.iter().any(|tick| (tick.value - 1.0).abs() < 1e-9), "{ticks:?}");
        }
        let close = Scale::covering_factors([0.98, 1.03]);
        assert!(close.place(1.03) - close.place(0.98) > 0.7, "{close:?}");
    }

    #[test]
    fn labels_stay_few() {
        for (least, greatest) in [(1.0, 2.0), (1.0, 99.0), (0.001, 1e4), (0.3, 949.0)] {
            let scale = Scale::covering_log([least, greatest]);
            let labels = scale.ticks().iter().filter(|tick| tick.major).count();
            assert!((2..=8).contains(&labels), "{least} to {greatest}: {labels}");
        }
    }
}
