use midspan_units::{ByteSize, Rate, Span, Time};

use crate::ffi;

/// What the stack knows of the connection whenever it asks the control something. Counters and
/// sequence numbers wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// On any clock that does not go back, the same for all calls.
    pub now: Time,
    /// Bytes of payload in a full packet.
    pub mss: u32,
    /// Packets sent, and neither delivered nor held lost.
    pub in_flight: u32,
    /// Packets delivered since the connection began, this acknowledgement included.
    pub delivered: u32,
    /// Of these, how many had met CE, as the receiver says by ECN-Echo.
    pub delivered_ce: u32,
    /// Packets held lost since the connection began, each time counted.
    pub lost: u32,
    /// First byte not acknowledged.
    pub snd_una: u32,
    /// Next byte to send.
    pub snd_nxt: u32,
    /// Smoothed round-trip time (RFC 6298); zero before the first sample.
    pub srtt: Span,
    /// Least round-trip time of the last minutes; zero before the first sample.
    pub min_rtt: Span,
}

/// An acknowledgement that acknowledged something. [`Default`] is one that says nothing: set what
/// is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// Packets that it delivered, cumulatively or by SACK.
    pub acked: u32,
    /// Packets that it acknowledged cumulatively, whether they were SACKed before or not.
    pub advanced: u32,
    /// Round-trip time of the packet sent last among those acknowledged; `None` if none was
    /// measured (Karn's algorithm).
    pub rtt: Option<Span>,
    /// Packets in flight before it.
    pub prior_in_flight: u32,
    /// Delivery rate; `None` if there is no sample.
    pub rate: Option<RateSample>,
    /// It carries ECN-Echo (RFC 3168).
    pub ece: bool,
    /// A base station has marked it: wireless loss alarm (TCP-ME, section II.1).
    pub wla: bool,
    /// The window was what limited sending (RFC 7661). Only then may it grow.
    pub cwnd_limited: bool,
    /// What NetAssist says about the bottleneck, while that is valid.
    pub feedback: Option<Feedback>,
}

/// A sample of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSample {
    /// Packets delivered ...
    pub delivered: u32,
    /// ... in so long, the longer of the sending and the acknowledging interval.
    pub interval: Span,
    /// `Connection::delivered` when the packet that gave the sample was sent.
    pub prior_delivered: u32,
    /// Packets in flight when it was sent, itself counted; 0 if not known.
    pub tx_in_flight: u32,
    /// Packets held lost since it was sent.
    pub tx_lost: u32,
    /// The application had too little to send.
    pub app_limited: bool,
}

/// What NetAssist says about the bottleneck of a connection (`algo/feedback.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feedback {
    /// Of the bottleneck, in bits of IP packets.
    pub bandwidth: Rate,
    /// Round-trip time without any queue; zero if not known, and the least that the connection has measured stands
    /// in; or [`SMOOTHED`](Feedback::SMOOTHED).
    pub min_rtt: Span,
    /// NATCP's fairness coefficient B in 256ths: 256 times the number of competing flows.
    pub fairness: u32,
    /// What all competing flows together are to keep in the bottleneck's queue, beside what NATCP has
    /// in flight anyway. Nothing in the paper.
    pub queue: ByteSize,
    /// The rate to send at, in 256ths of the bandwidth: 256 in the paper, which 0 is taken for.
    pub pace: u32,
}

impl Feedback {
    /// As [`min_rtt`](Feedback::min_rtt): the connection's own smoothed round-trip time stands in.
    pub const SMOOTHED: Span = Span::from_micros(ffi::CC_RTT_SMOOTHED as u64);
}

fn micros(span: Span) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

/// A measured time of less than a microsecond is one: 0 says that there was none.
fn measured_micros(span: Option<Span>) -> u32 {
    span.map_or(0, |span| micros(span).max(1))
}

impl Connection {
    pub(crate) fn write_to(&self, cc: &mut ffi::Cc) {
        cc.now_ns = self.now.as_nanos();
        cc.mss = self.mss;
        cc.in_flight = self.in_flight;
        cc.delivered = self.delivered;
        cc.delivered_ce = self.delivered_ce;
        cc.lost = self.lost;
        cc.snd_una = self.snd_una;
        cc.snd_nxt = self.snd_nxt;
        cc.srtt_us = micros(self.srtt);
        cc.min_rtt_us = micros(self.min_rtt);
    }
}

impl From<&Sample> for ffi::Sample {
    fn from(sample: &Sample) -> Self {
        let rate = sample.rate;
        ffi::Sample {
            acked: sample.acked,
            advanced: sample.advanced,
            rtt_us: measured_micros(sample.rtt),
            prior_in_flight: sample.prior_in_flight,
            rate_delivered: rate.map_or(0, |rate| rate.delivered),
            rate_interval_us: measured_micros(rate.map(|rate| rate.interval)),
            prior_delivered: rate.map_or(0, |rate| rate.prior_delivered),
            tx_in_flight: rate.map_or(0, |rate| rate.tx_in_flight),
            tx_lost: rate.map_or(0, |rate| rate.tx_lost),
            ece: sample.ece.into(),
            wla: sample.wla.into(),
            app_limited: rate.is_some_and(|rate| rate.app_limited).into(),
            cwnd_limited: sample.cwnd_limited.into(),
            feedback: sample.feedback.as_ref().map_or(ffi::NO_FEEDBACK, Into::into),
        }
    }
}

impl From<&Feedback> for ffi::Feedback {
    fn from(feedback: &Feedback) -> Self {
        ffi::Feedback {
            bandwidth: feedback.bandwidth.as_bps() / 8,
            min_rtt_us: micros(feedback.min_rtt),
            fairness: feedback.fairness,
            queue: u32::try_from(feedback.queue.as_bytes()).unwrap_or(u32::MAX),
            pace: feedback.pace,
        }
    }
}
