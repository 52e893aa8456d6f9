//! A receiver's script, and who it is played to.

use std::collections::BTreeMap;

use midspan_tcp::Segment;
use midspan_units::Span;

/// Bytes of a packet's payload.
pub(crate) const PACKET: u32 = 1000;
/// A round trip, as the handshake and the first flight have it.
pub(crate) const ROUND_TRIP: Span = Span::from_millis(20);
/// The receiver's own sequence number.
pub(crate) const INITIAL: u32 = 1000;
/// So many packets are there to be sent.
pub(crate) const PACKETS: u32 = 100;
/// `tcp_tso_win_divisor`, with which no packet waits for company: what does depends on how the kernel's application wrote.
pub(crate) const WIN_DIVISOR: u32 = 255;
const FIRST_FLIGHT: u32 = 10;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// So many milliseconds pass.
    Pause(u64),
    /// The receiver acknowledges all before packet `next`, and these ranges of packets beyond.
    Ack { next: u32, sack: Vec<(u32, u32)>, echo: Echo },
}

/// The timestamp that an acknowledgement echoes: that of a packet, and of which of its transmissions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Echo(pub(crate) u32, pub(crate) usize);

/// A packet that was sent: its position from the first byte on, and its timestamp.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) position: u32,
    pub(crate) stamp: u32,
}

/// A sender with a connection on which it may send, as much as it will.
pub(crate) trait Sender {
    /// The sequence number of its first byte.
    fn first(&self) -> u32;
    /// A segment reaches it.
    fn take(&mut self, segment: &Segment);
    /// Time passes. Answers what it sends meanwhile, in order.
    fn pass(&mut self, time: Span) -> Vec<Sent>;
}

/// The segment that opens the connection.
pub(crate) fn syn() -> Segment {
    Segment {
        seq: INITIAL,
        syn: true,
        mss: PACKET as u16,
        window: 65_535,
        window_scale: 7,
        timestamps: (1, 0),
        sack_permitted: true,
        ..Segment::default()
    }
}

/// The one that completes it, `stamp` being the answer's timestamp.
pub(crate) fn handshake(first: u32, stamp: u32) -> Segment {
    acknowledgement(first, 2, stamp)
}

fn acknowledgement(ack: u32, stamp: u32, echo: u32) -> Segment {
    Segment {
        seq: INITIAL + 1,
        ack,
        ack_flag: true,
        window: 65_535,
        timestamps: (stamp, echo),
        ..Segment::default()
    }
}

/// A sender, and what it has sent.
pub(crate) struct Player<S> {
    sender: S,
    /// Of each transmission of each packet.
    stamps: BTreeMap<u32, Vec<u32>>,
    clock: u32,
}

impl<S: Sender> Player<S> {
    /// Has the first flight sent, and acknowledged packet by packet, and twice as much sent.
    pub(crate) fn new(sender: S) -> Player<S> {
        let mut player = Player { sender, stamps: BTreeMap::new(), clock: 10 };
        let round_trip = Step::Pause(ROUND_TRIP.as_micros() / 1000);
        player.step(&round_trip);
        for next in 1..=FIRST_FLIGHT {
            player.step(&Step::Ack { next, sack: Vec::new(), echo: Echo(next - 1, 0) });
        }
        player.step(&round_trip);
        player
    }

    /// Plays a step. Answers which packets were sent in it, in order, where it is a pause.
    pub(crate) fn step(&mut self, step: &Step) -> Option<Vec<u32>> {
        match step {
            &Step::Pause(millis) => {
                let mut packets = Vec::new();
                for Sent { position, stamp } in self.sender.pass(Span::from_millis(millis)) {
                    self.stamps.entry(position / PACKET).or_default().push(stamp);
                    packets.push(position / PACKET);
                }
                self.clock += millis as u32;
                Some(packets)
            }
            Step::Ack { next, sack, echo } => {
                let first = self.sender.first();
                let at = |packet: u32| first.wrapping_add(packet * PACKET);
                let stamps = self.stamps.get(&echo.0);
                let echo = stamps.and_then(|stamps| stamps.get(echo.1)).copied().unwrap_or(1);
                let mut segment = acknowledgement(at(*next), self.clock, echo);
                for (place, &(start, end)) in segment.sack.iter_mut().zip(sack) {
                    *place = (at(start), at(end));
                    segment.sack_count += 1;
                }
                self.sender.take(&segment);
                None
            }
        }
    }
}

/// Answers what is sent in each of the steps that are pauses.
pub(crate) fn play(sender: impl Sender, steps: &[Step]) -> Vec<Vec<u32>> {
    let mut player = Player::new(sender);
    steps.iter().filter_map(|step| player.step(step)).collect()
}
