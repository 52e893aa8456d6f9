//! The BPF map between NetAssist's agent, which writes it, and the congestion controls of the host,
//! which read it: `algo/feedback.h`, in Rust.

use core::net::IpAddr;

use midspan_units::{ByteSize, Rate, Span, Time};
use zerocopy::{FromBytes, transmute};

use crate::{Feedback, ffi};

/// Entries that the map has room for; beyond, the one used least recently goes.
pub const ENTRIES: u32 = ffi::FEEDBACK_ENTRIES;
/// Bytes in a key.
pub const KEY_SIZE: usize = size_of::<ffi::FeedbackKey>();
/// Bytes in a value.
pub const VALUE_SIZE: usize = size_of::<ffi::FeedbackValue>();
/// Name of the map's pin, in the folder of the loaded controls.
pub const PIN: &str = "feedback";

/// The entry's key: the UE's address, IPv4 as IPv4-mapped IPv6.
pub fn key(ue: IpAddr) -> [u8; KEY_SIZE] {
    let address = match ue {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    transmute!(ffi::FeedbackKey { address })
}

/// What the network says about a UE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    /// Bottleneck, minimum round-trip time and fairness.
    pub feedback: Feedback,
    /// When it is written, on the clock of the kernel that reads it: CLOCK_MONOTONIC.
    pub updated: Time,
    /// After which it says nothing; at most 10 s count.
    pub timeout: Span,
    /// Of the message that it came in.
    pub sequence: u32,
}

impl Value {
    /// As the map holds it.
    pub fn to_bytes(&self) -> [u8; VALUE_SIZE] {
        transmute!(ffi::FeedbackValue::from(self))
    }

    /// What the map holds; none if that is of another size.
    pub fn from_bytes(bytes: &[u8]) -> Option<Value> {
        ffi::FeedbackValue::read_from_bytes(bytes).ok().map(|value| Value::from(&value))
    }

    /// What it says at `now`: nothing once it has timed out, or if the bandwidth is not known. The
    /// same as the kernel reads.
    pub fn at(&self, now: Time) -> Option<Feedback> {
        let said = ffi::feedback_at(&self.into(), now.as_nanos());
        (said.bandwidth > 0).then(|| Feedback::from(&said))
    }
}

impl From<&ffi::Feedback> for Feedback {
    fn from(said: &ffi::Feedback) -> Self {
        Feedback {
            bandwidth: Rate::from_bps(said.bandwidth.saturating_mul(8)),
            min_rtt: Span::from_micros(said.min_rtt_us.into()),
            fairness: said.fairness,
            queue: ByteSize::from_bytes(said.queue.into()),
            pace: said.pace,
        }
    }
}

impl From<&ffi::FeedbackValue> for Value {
    fn from(value: &ffi::FeedbackValue) -> Self {
        let &ffi::FeedbackValue { bandwidth, min_rtt_us, fairness, queue, pace, .. } = value;
        let feedback = ffi::Feedback { bandwidth, min_rtt_us, fairness, queue, pace };
        Value {
            feedback: Feedback::from(&feedback),
            updated: Time::from_nanos(value.updated_ns),
            timeout: Span::from_millis(value.timeout_ms.into()),
            sequence: value.sequence,
        }
    }
}

impl From<&Value> for ffi::FeedbackValue {
    fn from(value: &Value) -> Self {
        let feedback = ffi::Feedback::from(&value.feedback);
        ffi::FeedbackValue {
            updated_ns: value.updated.as_nanos(),
            bandwidth: feedback.bandwidth,
            min_rtt_us: feedback.min_rtt_us,
            fairness: feedback.fairness,
            timeout_ms: u32::try_from(value.timeout.as_nanos() / 1_000_000).unwrap_or(u32::MAX),
            sequence: value.sequence,
            queue: feedback.queue,
            pace: feedback.pace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> Value {
        Value {
            feedback: Feedback {
                bandwidth: Rate::from_bps(8_000_000),
                min_rtt: Span::from_millis(10),
                fairness: 512,
                queue: ByteSize::from_bytes(60_000),
                pace: 320,
            },
            updated: Time::from_nanos(1_000_000_000),
            timeout: Span::from_millis(200),
            sequence: 7,
        }
    }

    #[test]
    fn it_holds_until_its_timeout() {
        let said = value();
        assert_eq!(said.at(said.updated), Some(said.feedback));
        assert_eq!(said.at(said.updated + Span::from_nanos(199_999_999)), Some(said.feedback));
        assert_eq!(said.at(said.updated + Span::from_millis(200)), None);
        // Written on another processor, a little ahead.
        assert_eq!(said.at(Time::from_nanos(999_999_000)), Some(said.feedback));
    }

    #[test]
    fn nothing_is_believed_for_more_than_ten_seconds() {
        let said = Value { timeout: Span::from_secs(3600), ..value() };
        assert!(said.at(said.updated + Span::from_nanos(9_999_999_999)).is_some());
        assert_eq!(said.at(said.updated + Span::from_secs(10)), None);
    }

    #[test]
    fn what_the_map_holds_comes_back() {
        let bytes = value().to_bytes();
        assert_eq!(Value::from_bytes(&bytes), Some(value()));
        assert_eq!(Value::from_bytes(&bytes[1..]), None);
        assert_eq!(
            key("192.0.2.1".parse().unwrap()),
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]
        );
    }
}
