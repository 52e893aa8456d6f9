use midspan_units::{Rate, Span, Time};

/// Radio slots, which begin at multiples of their length, and what a block in one carries.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    length: Span,
    rate: Rate,
    /// The fraction of a byte that the rate allowed and a block did not carry, in bits per second
    /// times nanoseconds: the next one may carry it.
    rest: u64,
}

impl Slots {
    pub(crate) fn new(length: Span, rate: Rate) -> Self {
        Slots { length, rate, rest: 0 }
    }

    /// How many bytes the next new block carries.
    pub(crate) fn block_bytes(&mut self) -> u64 {
        const BYTE: u128 = 8_000_000_000;
        let work = u128::from(self.rate.as_bps()) * u128::from(self.length.as_nanos())
            + u128::from(self.rest);
        self.rest = (work % BYTE) as u64;
        u64::try_from(work / BYTE).unwrap_or(u64::MAX)
    }

    /// The first slot that begins at `at` or later.
    pub(crate) fn from(&self, at: Time) -> Time {
        let length = self.length.as_nanos();
        Time::from_nanos(at.as_nanos().div_ceil(length).saturating_mul(length))
    }

    /// The first slot that begins later than `at`: what comes the very moment in which one begins is
    /// too late for it.
    pub(crate) fn after(&self, at: Time) -> Time {
        self.from(at + Span::from_nanos(1))
    }
}

/// Why slots of this length and rate cannot be, if so.
pub(crate) fn check(length: Span, rate: Rate) -> Result<(), String> {
    if length == Span::ZERO || !FRAME.as_nanos().is_multiple_of(length.as_nanos()) {
        return Err(format!(
            "a frame of {FRAME} is not a whole number of slots of {length}: \
             give a slot such as `1 ms`, `0.5 ms` or `0.125 ms`"
        ));
    }
    if rate.bytes_in(length).as_bytes() == 0 {
        return Err(format!(
            "at {rate} a slot of {length} carries less than a byte: raise the rate or the slot"
        ));
    }
    Ok(())
}

/// LTE's and NR's.
pub(crate) const FRAME: Span = Span::from_millis(10);
