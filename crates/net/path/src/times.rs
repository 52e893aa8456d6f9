use hdrhistogram::Histogram;
use midspan_units::Span;

/// A distribution of times: two significant digits, up to a minute, of fixed size. Longer times
/// count as a minute.
#[derive(Debug, Clone)]
pub struct Times(Histogram<u64>);

const LONGEST: Span = Span::from_secs(60);

impl Times {
    /// Empty.
    pub fn new() -> Times {
        let histogram = Histogram::new_with_bounds(1, LONGEST.as_nanos(), 2);
        Times(histogram.expect("the bounds are constants that the histogram accepts"))
    }

    /// One more. Does not allocate.
    pub fn record(&mut self, time: Span) {
        self.0.saturating_record(time.as_nanos());
    }

    /// All of another's as well.
    pub fn add(&mut self, other: &Times) {
        self.0.add(&other.0).expect("they have the same bounds");
    }

    /// Forgets all of them.
    pub fn reset(&mut self) {
        self.0.reset();
    }

    /// Those of them that are not in `earlier`, an earlier state of the same.
    pub fn since(&self, earlier: &Times) -> Times {
        let mut later = self.clone();
        // It fails only where `earlier` has some that this has not: then there were none since.
        if later.0.subtract(&earlier.0).is_err() {
            later.reset();
        }
        later
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Their mean; zero without any.
    pub fn mean(&self) -> Span {
        Span::from_nanos(self.0.mean() as u64)
    }

    /// What the share `quantile` of them does not exceed; zero without any.
    pub fn at(&self, quantile: f64) -> Span {
        Span::from_nanos(if self.0.is_empty() { 0 } else { self.0.value_at_quantile(quantile) })
    }

    /// The longest; zero without any.
    pub fn max(&self) -> Span {
        Span::from_nanos(self.0.max())
    }
}

impl Default for Times {
    fn default() -> Self {
        Times::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_digits_are_right_and_too_long_is_a_minute() {
        let mut times = Times::new();
        assert_eq!((times.count(), times.mean(), times.at(0.5)), (0, Span::ZERO, Span::ZERO));
        (1..=100).for_each(|millis| times.record(Span::from_millis(millis)));
        let near = |span: Span, millis: f64| (span.as_secs_f64() * 1e3 / millis - 1.0).abs() < 0.01;
        assert!(near(times.mean(), 50.5) && near(times.at(0.95), 95.0) && near(times.max(), 100.0));
        times.record(Span::from_secs(1_000));
        assert!(near(times.max(), 60_000.0));
        let mut others = Times::new();
        others.record(Span::from_millis(5));
        others.add(&times);
        assert_eq!(others.count(), 102);
        times.reset();
        assert_eq!(times.count(), 0);
    }

    #[test]
    fn what_came_later_is_told_from_what_came_before() {
        let mut times = Times::new();
        (1..=50).for_each(|millis| times.record(Span::from_millis(millis)));
        let earlier = times.clone();
        assert_eq!(times.since(&earlier).count(), 0);
        (1..=9).for_each(|_| times.record(Span::from_millis(7)));
        let later = times.since(&earlier);
        assert_eq!((later.count(), later.at(0.99)), (9, times.since(&earlier).max()));
        assert!((6.9..7.1).contains(&(later.mean().as_secs_f64() * 1e3)));
        assert_eq!(earlier.since(&times).count(), 0);
    }
}
