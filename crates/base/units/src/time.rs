use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use crate::Span;

/// A point in time: nanoseconds since the start of the caller's clock, real or virtual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Time = Time(0);
    /// Never.
    pub const MAX: Time = Time(u64::MAX);

    /// `nanos` nanoseconds after the start of the clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// Nanoseconds since the start of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`, or zero if that is in the future.
    pub const fn since(self, earlier: Time) -> Span {
        Span::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.as_nanos()))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Time> for Time {
    type Output = Span;
    fn sub(self, earlier: Time) -> Span {
        Span::from_nanos(self.0 - earlier.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Span::from_nanos(self.0), f)
    }
}
