//! What a worker measures of flows that have ended.

use midspan_observe::{Count, Histogram, LegStats, RATE, SHARE, TIME};
use midspan_split::PerLeg;

/// One worker's measurements.
#[derive(Debug)]
pub(crate) struct Measures {
    pub(crate) legs: PerLeg<LegMeasures>,
    /// How long servers took to answer the connect.
    pub(crate) connect: Histogram,
    /// How long flows lasted.
    pub(crate) duration: Histogram,
}

/// What is measured of one leg of each flow. What TCP never measured, or nothing was sent for, does not
/// count.
#[derive(Debug)]
pub(crate) struct LegMeasures {
    pub(crate) rtt: Histogram,
    pub(crate) min_rtt: Histogram,
    /// Of the bytes sent, how many were sent again.
    pub(crate) retransmitted: Histogram,
    pub(crate) delivery_rate: Histogram,
    pub(crate) retransmitted_bytes: Count,
    pub(crate) retransmitted_segments: Count,
}

impl Measures {
    pub(crate) const fn new() -> Self {
        Measures {
            legs: PerLeg { client: LegMeasures::new(), server: LegMeasures::new() },
            connect: Histogram::new(TIME),
            duration: Histogram::new(TIME),
        }
    }
}

impl LegMeasures {
    const fn new() -> Self {
        LegMeasures {
            rtt: Histogram::new(TIME),
            min_rtt: Histogram::new(TIME),
            retransmitted: Histogram::new(SHARE),
            delivery_rate: Histogram::new(RATE),
            retransmitted_bytes: Count::new(),
            retransmitted_segments: Count::new(),
        }
    }

    pub(crate) fn record(&self, leg: &LegStats) {
        if leg.rtt_us > 0 {
            self.rtt.record(leg.rtt_us.into());
        }
        if let Some(min_rtt) = leg.min_rtt_us {
            self.min_rtt.record(min_rtt.into());
        }
        if let Some(share) = leg.retransmitted_ppm() {
            self.retransmitted.record(share);
        }
        if leg.delivery_rate > 0 {
            self.delivery_rate.record(leg.delivery_rate);
        }
        self.retransmitted_bytes.add(leg.bytes_retransmitted);
        self.retransmitted_segments.add(leg.segments_retransmitted.into());
    }
}
