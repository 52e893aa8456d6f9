//! Delivery rate samples (draft-cheng-iccrg-delivery-rate-estimation, sections 3.1 to 3.3).

use midspan_cc::RateSample;
use midspan_units::{Span, Time};

use super::scoreboard::Sent;

/// What is noted when a segment is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stamp {
    /// Segments delivered by then.
    delivered: u32,
    /// When the last of them was.
    delivered_at: Time,
    /// When the segment was sent whose delivery began this flight.
    first_sent: Time,
    /// In flight then, this one counted.
    in_flight: u32,
    /// Segments ever held lost by then.
    ever_lost: u64,
    app_limited: bool,
}

/// Counts what is delivered.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    /// Segments delivered since the start of the connection.
    total: u32,
    at: Time,
    first_sent: Time,
    /// The count up to which samples are limited by the application; zero if none is.
    app_limited_until: u32,
    /// The segment sent last among those that the present acknowledgement delivers.
    latest: Option<(Time, u64, Stamp)>,
    /// The last sample.
    rate: Option<(u32, Span)>,
}

impl Deliveries {
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Segments of the last sample, and in how long they were delivered.
    pub(crate) fn last_rate(&self) -> Option<(u32, Span)> {
        self.rate
    }

    /// What had been delivered when the segment was sent that was sent last of those that the present acknowledgement delivers.
    pub(crate) fn latest_sent_at(&self) -> Option<u32> {
        self.latest.map(|(_, _, stamp)| stamp.delivered)
    }

    /// A segment is sent while `in_flight` others are.
    pub(crate) fn stamp(&mut self, now: Time, in_flight: u32, ever_lost: u64) -> Stamp {
        if in_flight == 0 {
            self.first_sent = now;
            self.at = now;
        }
        Stamp {
            delivered: self.total,
            delivered_at: self.at,
            first_sent: self.first_sent,
            in_flight: in_flight + 1,
            ever_lost,
            app_limited: self.app_limited_until > 0,
        }
    }

    /// There is nothing to send although `in_flight` leaves room.
    pub(crate) fn app_limited(&mut self, in_flight: u32) {
        self.app_limited_until = (self.total + in_flight).max(1);
    }

    /// A segment is delivered.
    pub(crate) fn deliver(&mut self, segment: &Sent) {
        self.total += 1;
        if self.latest.is_none_or(|(_, order, _)| segment.order > order) {
            self.latest = Some((segment.at, segment.order, segment.stamp));
        }
    }

    /// So many segments are delivered, and which is not known.
    pub(crate) fn count(&mut self, segments: u32) {
        self.total += segments;
    }

    /// So many of those that were delivered had been counted before.
    pub(crate) fn count_less(&mut self, segments: u32) {
        self.total -= segments;
    }

    /// The sample of the acknowledgement whose segments have been told. Intervals below `min_rtt`
    /// are no samples: the segment was acknowledged for another reason.
    pub(crate) fn sample(
        &mut self,
        now: Time,
        min_rtt: Span,
        ever_lost: u64,
    ) -> Option<RateSample> {
        if self.app_limited_until > 0 && self.total > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let (sent, _, stamp) = self.latest.take()?;
        self.at = now;
        self.first_sent = sent;
        let interval = sent.since(stamp.first_sent).max(now.since(stamp.delivered_at));
        if interval < min_rtt || interval == Span::ZERO {
            return None;
        }
        self.rate = Some((self.total - stamp.delivered, interval));
        Some(RateSample {
            delivered: self.total - stamp.delivered,
            interval,
            prior_delivered: stamp.delivered,
            tx_in_flight: stamp.in_flight,
            tx_lost: (ever_lost - stamp.ever_lost) as u32,
            app_limited: stamp.app_limited,
        })
    }
}
