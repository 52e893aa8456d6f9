//! A receiver against a sender that is played by a script: what it acknowledges is what a Linux 6.18 was seen to answer, over a
//! TUN device, to the same segments.

#[path = "common/syn.rs"]
mod syn;

use midspan_cc::Control;
use midspan_tcp::{Config, Endpoint, Segment};
use midspan_units::{Span, Time};
use syn::syn;

const PACKET: u32 = 1000;

struct Receiver {
    endpoint: Endpoint,
    now: Time,
    /// Where its stream begins.
    ours: u32,
    /// Packets that came in order.
    came: u32,
}

impl Receiver {
    /// Has accepted a connection, and has long since had enough of the start to acknowledge every second packet.
    fn new() -> Receiver {
        let control = Control::new("reno", &midspan_cc::Config::default()).unwrap();
        let now = Time::ZERO + Span::from_secs(1);
        let mut endpoint = Endpoint::accept(Config::default(), control, now, u32::MAX, &syn());
        let ours = endpoint.poll_transmit(now).unwrap().segment.seq;
        let mut receiver = Receiver { endpoint, now, ours, came: 0 };
        receiver.after(Span::from_millis(70));
        let handshake = receiver.segment(0, 0);
        receiver.endpoint.receive(receiver.now, &handshake);
        for _ in 0..60 {
            receiver.after(Span::from_millis(20));
            receiver.take(0);
            receiver.came += 1;
            receiver.endpoint.read(receiver.now, u64::MAX);
        }
        receiver.after(Span::from_millis(300));
        receiver
    }

    fn segment(&self, packet: u32, payload: u32) -> Segment {
        let millis = (self.now.since(Time::ZERO).as_micros() / 1000) as u32;
        Segment {
            seq: 1 + (self.came + packet) * PACKET,
            ack: self.ours.wrapping_add(1),
            ack_flag: true,
            payload,
            window: 514,
            // The last that was heard, as if of now.
            timestamps: (millis, millis),
            ..Segment::default()
        }
    }

    /// Lets time pass, and answers the blocks of each acknowledgement that goes then: the first packet, and the one behind the last.
    fn after(&mut self, pause: Span) -> Vec<Vec<(u32, u32)>> {
        let end = self.now + pause;
        let mut sent = Vec::new();
        while let Some(timer) = self.endpoint.poll_timeout().filter(|timer| *timer <= end) {
            self.now = timer;
            self.endpoint.on_timer(timer);
            sent.extend(self.sent());
        }
        self.now = end;
        sent
    }

    fn sent(&mut self) -> Vec<Vec<(u32, u32)>> {
        let came = self.came;
        let packet = |at: u32| (at - 1) / PACKET - came;
        let mut sent = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(self.now) {
            let Segment { sack, sack_count, .. } = transmit.segment;
            let blocks = &sack[..usize::from(sack_count)];
            sent.push(blocks.iter().map(|&(start, end)| (packet(start), packet(end))).collect());
        }
        sent
    }

    /// The packet of this number, counted from the first that has not come, comes.
    fn take(&mut self, packet: u32) -> Vec<Vec<(u32, u32)>> {
        let segment = self.segment(packet, PACKET);
        self.endpoint.receive(self.now, &segment);
        self.sent()
    }

    /// Packets come one at once after the other, and then none for a while.
    fn answers(packets: &[u32]) -> Vec<Vec<(u32, u32)>> {
        let mut receiver = Receiver::new();
        let mut answers: Vec<_> =
            packets.iter().flat_map(|packet| receiver.take(*packet)).collect();
        answers.extend(receiver.after(Span::from_millis(50)));
        answers
    }
}

/// One block grows: the first three are told of at once, the others when a millisecond has passed.
#[test]
fn what_an_acknowledgement_can_tell_later_waits() {
    let packets: Vec<u32> = (1..=20).collect();
    assert_eq!(Receiver::answers(&packets), [[(1, 2)], [(1, 3)], [(1, 4)], [(1, 21)]]);
}

/// Every second packet is lost. What is held back would soon be more than an acknowledgement has room for, and is told of
/// before: nothing that came is taken for lost.
#[test]
fn every_block_is_told_of() {
    let answers = Receiver::answers(&[1, 3, 5, 7, 9, 11, 13, 15, 17]);
    let expected = [
        vec![(1, 2)],
        vec![(3, 4), (1, 2)],
        vec![(5, 6), (3, 4), (1, 2)],
        vec![(7, 8), (5, 6), (3, 4)],
        vec![(11, 12), (9, 10), (7, 8)],
        vec![(15, 16), (13, 14), (11, 12)],
    ];
    assert_eq!(answers, expected);
}

/// So is a block that was told of long since, and has grown.
#[test]
fn an_old_block_that_grows_is_told_of() {
    let answers = Receiver::answers(&[1, 5, 9, 10, 2, 3]);
    let expected = [
        vec![(1, 2)],
        vec![(5, 6), (1, 2)],
        vec![(9, 10), (5, 6), (1, 2)],
        vec![(9, 11), (5, 6), (1, 3)],
        vec![(1, 4), (9, 11), (5, 6)],
    ];
    assert_eq!(answers, expected);
}
