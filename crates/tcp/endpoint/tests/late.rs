//! A receiver, and data whose timestamps are older than what is in order (RFC 7323, 5.3), as those of late originals are
//! once a retransmission has filled the hole before them.

#[path = "common/syn.rs"]
mod syn;

use midspan_cc::Control;
use midspan_tcp::{Config, Endpoint, Segment};
use midspan_units::{Span, Time};
use syn::syn;

const LENGTH: u32 = 1000;

/// What is acknowledged in order, in packets, the SACK blocks, likewise, and the timestamp echoed.
type Answer = (u32, Vec<(u32, u32)>, u32);

struct Receiver {
    endpoint: Endpoint,
    now: Time,
}

impl Receiver {
    fn new() -> Receiver {
        let now = Time::ZERO + Span::from_secs(1);
        let control = Control::new("cubic", &midspan_cc::Config::default()).unwrap();
        let endpoint = Endpoint::accept(Config::default(), control, now, u32::MAX, &syn());
        let mut receiver = Receiver { endpoint, now };
        receiver.answer();
        receiver
    }

    fn answer(&mut self) -> Option<Answer> {
        let mut last = None;
        while let Some(transmit) = self.endpoint.poll_transmit(self.now) {
            last = Some(transmit.segment);
        }
        let packet = |seq: u32| (seq - 1) / LENGTH;
        last.map(|segment| {
            let sack = segment.sack[..usize::from(segment.sack_count)].iter();
            let blocks = sack.map(|&(start, end)| (packet(start), packet(end))).collect();
            (packet(segment.ack.max(1)), blocks, segment.timestamps.1)
        })
    }

    /// The packet of this number comes, sent at `stamp` ms.
    fn packet(&mut self, number: u32, stamp: u32) -> Option<Answer> {
        self.now += Span::from_millis(1);
        let segment = Segment {
            seq: 1 + number * LENGTH,
            payload: LENGTH,
            ack: 0,
            ack_flag: true,
            window: 514,
            timestamps: (stamp, 0),
            ..Segment::default()
        };
        self.endpoint.receive(self.now, &segment);
        self.answer()
    }
}

#[test]
fn a_late_original_is_refused_once_a_retransmission_was_in_order() {
    let mut receiver = Receiver::new();
    receiver.packet(0, 10);
    assert_eq!(receiver.packet(2, 12), Some((1, vec![(2, 3)], 10)));
    assert_eq!(receiver.packet(1, 50), Some((3, vec![], 50)));
    // Sent behind the hole, before it was filled.
    assert_eq!(receiver.packet(4, 14), Some((3, vec![], 50)));
    assert_eq!(receiver.packet(3, 13), Some((3, vec![], 50)));
    // By no more than a millisecond.
    assert_eq!(receiver.packet(5, 49), Some((3, vec![(5, 6)], 50)));
    assert_eq!(receiver.packet(3, 70), Some((4, vec![(5, 6)], 70)));
}

#[test]
fn what_lies_before_the_window_makes_nothing_old() {
    let mut receiver = Receiver::new();
    receiver.packet(0, 10);
    receiver.packet(1, 11);
    // Came twice, and is told as that (RFC 2883).
    assert_eq!(receiver.packet(0, 50), Some((2, vec![(0, 1)], 11)));
    assert_eq!(receiver.packet(3, 13), Some((2, vec![(3, 4)], 11)));
    assert_eq!(receiver.packet(2, 12), Some((4, vec![], 12)));
}

/// What is refused and was here before is told as that too.
#[test]
fn a_duplicate_that_is_refused_is_told() {
    let mut receiver = Receiver::new();
    receiver.packet(1, 11);
    receiver.packet(0, 50);
    assert_eq!(receiver.packet(1, 11), Some((2, vec![(1, 2)], 50)));
}
