use midspan_units::{ByteSize, Share, Span, Time};

/// Fractional bits of the average.
const FRACTION: u32 = 16;
/// Fractional bits of weights.
const UNIT: u64 = 1 << 32;
/// Longest queue that the average tells apart, 64 TiB: leaves room for the fraction.
const LONGEST: u64 = 1 << 46;

/// Exponentially weighted moving average of a queue's length in bytes, updated at each arrival,
/// and for the time that the queue stood empty as if small packets had come and found it so
/// (Floyd and Jacobson 1993, section 4). Fixed point: the same on every machine.
pub(crate) struct Average {
    /// Bytes, with [`FRACTION`] fractional bits.
    value: u64,
    /// Weight of a new sample, in 2^-32.
    weight: u64,
    /// Time that the line takes for a typical packet.
    typical: Span,
    /// When the queue was last seen to be empty.
    empty_since: Time,
}

impl Average {
    pub(crate) fn new(weight: Share, typical: Span) -> Self {
        let weight = (weight.as_fraction() * UNIT as f64) as u64;
        Average { value: 0, weight, typical, empty_since: Time::ZERO }
    }

    /// Takes the queue's length in bytes before an arrival at `now` into account; returns the
    /// average, in bytes.
    pub(crate) fn arrival(&mut self, now: Time, queued: u64) -> u64 {
        if queued == 0 {
            let packets = now.since(self.empty_since).as_nanos() / self.typical.as_nanos().max(1);
            self.value = scale(self.value, power(UNIT - self.weight, packets));
            // Should this packet be dropped, the queue goes on standing empty.
            self.empty_since = now;
        } else {
            let sample = queued.min(LONGEST) << FRACTION;
            self.value = scale(self.value, UNIT - self.weight) + scale(sample, self.weight);
        }
        self.value >> FRACTION
    }

    /// The queue has become empty.
    pub(crate) fn emptied(&mut self, now: Time) {
        self.empty_since = now;
    }
}

/// `value` times a fraction in 2^-32.
fn scale(value: u64, fraction: u64) -> u64 {
    ((u128::from(value) * u128::from(fraction)) >> 32) as u64
}

/// A fraction in 2^-32 to the power of `exponent`, by squaring.
fn power(mut fraction: u64, mut exponent: u64) -> u64 {
    let mut result = UNIT;
    while exponent > 0 && result > 0 {
        if exponent & 1 == 1 {
            result = scale(result, fraction);
        }
        fraction = scale(fraction, fraction);
        exponent >>= 1;
    }
    result
}

/// Floyd and Jacobson's recommendation, section 6 of the same paper.
pub(crate) fn default_weight() -> Share {
    Share::from_fraction(0.002)
}

/// A full packet.
pub(crate) fn default_typical_packet() -> ByteSize {
    ByteSize::from_bytes(1500)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    #[test]
    fn approaches_the_queue_by_the_weight() {
        let mut average = Average::new(Share::from_fraction(0.25), Span::from_micros(12));
        let averages: Vec<u64> = (0..4).map(|_| average.arrival(at(0), 1 << 20)).collect();
        assert_eq!(averages, [262_144, 458_752, 606_208, 716_800]);
    }

    #[test]
    fn an_empty_queue_lowers_it_once_for_each_packet_that_could_have_passed() {
        let mut average = Average::new(Share::from_fraction(0.5), Span::from_nanos(1000));
        assert_eq!(average.arrival(at(0), 16_000), 8_000);
        average.emptied(at(10_000));
        assert_eq!(average.arrival(at(12_999), 0), 2_000);
        // The packet of that arrival was dropped: the queue went on being empty.
        assert_eq!(average.arrival(at(14_000), 0), 1_000);
        assert_eq!(average.arrival(at(u64::MAX), 0), 0);
    }

    #[test]
    fn powers_are_those_of_arithmetic() {
        for (fraction, exponent) in [(0.998f64, 0), (0.998, 1), (0.998, 1000), (0.5, 31)] {
            let exact = fraction.powi(exponent);
            let ours = power((fraction * UNIT as f64) as u64, exponent as u64) as f64 / UNIT as f64;
            assert!((ours - exact).abs() < 1e-6, "{fraction}^{exponent}: {ours}");
        }
    }
}
