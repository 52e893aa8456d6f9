//! Figures of a path from captured packets: near the UE, or at a box on the way.
//!
//! A box sees both ends' packets. Where it is on the path, the handshakes tell: from the SYN to its answer the way beyond it, from
//! there to the acknowledgement the way to the client. What was lost or late on the way *to* the box leaves a hole in the sequence
//! numbers that is filled later, by a retransmission or by itself; what is lost beyond it is seen twice.

mod connection;
mod packet;

use std::collections::HashMap;

use midspan_scenario::Direction;
use midspan_units::{Rate, Share, Span, Time};

use self::connection::{Connection, Seen};
pub use self::packet::LinkType;
use self::packet::{Ends, Packet, read};
use crate::figures::Known;

/// The connections of a capture, packet by packet.
#[derive(Debug, Default)]
pub struct Capture {
    connections: HashMap<Ends, Connection>,
    packets: u64,
    /// Packets of connections that are not known from their SYN, or too many.
    passed_over: u64,
    /// Bytes that came by in each direction, by the tenth of a second.
    carried: [HashMap<u64, u64>; 2],
}

/// More connections are passed over.
const MOST_CONNECTIONS: usize = 100_000;
/// A client that answers as fast is on the same machine as the capture, or next to it.
const AT_THE_CLIENT: Span = Span::from_micros(300);
/// Fewer packets say nothing of a share.
const ENOUGH_PACKETS: u64 = 1000;
/// Tenths of a second that make a busy one.
const BUSY: u64 = 10;

impl Capture {
    /// Takes a packet, as it was captured at `at` by a link of a type; `bytes` may be its headers alone. What is no TCP is
    /// passed over.
    pub fn add(&mut self, at: Time, link: LinkType, bytes: &[u8]) {
        let Some(packet) = read(link, bytes) else { return };
        self.packets += 1;
        let Some((ends, is_from_client)) = self.ends(&packet) else {
            self.passed_over += 1;
            return;
        };
        let connection = self.connections.entry(ends).or_default();
        connection.add(at, &packet, is_from_client);
        if packet.payload > 0 {
            let tenth = at.since(Time::ZERO).as_nanos() / 100_000_000;
            let carried = self.carried[usize::from(!is_from_client)].entry(tenth).or_default();
            *carried += u64::from(packet.payload) + u64::from(packet.headers);
        }
    }

    /// The connection of a packet, client first, and whether the client sent it.
    fn ends(&self, packet: &Packet) -> Option<(Ends, bool)> {
        let (there, back) = (packet.ends, packet.ends.turned());
        if packet.is_syn && !packet.is_ack {
            let has_room = self.connections.len() < MOST_CONNECTIONS;
            return (has_room || self.connections.contains_key(&there)).then_some((there, true));
        }
        if self.connections.contains_key(&there) {
            return Some((there, true));
        }
        self.connections.contains_key(&back).then_some((back, false))
    }

    /// Connections that it has seen open.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// What the capture says of the path. Round trips are medians over the handshakes that were answered at once.
    pub fn known(&self) -> Known {
        let mut known = Known::default();
        let of = |rtt: fn(&Connection) -> Option<Span>| {
            let mut spans: Vec<Span> = self.connections.values().filter_map(rtt).collect();
            spans.sort_unstable();
            spans.get(spans.len().saturating_sub(1) / 2).copied()
        };
        let (near, far) = (of(Connection::client_rtt), of(Connection::server_rtt));
        let is_at_client = near.is_some_and(|near| near < AT_THE_CLIENT);
        if let (Some(near), Some(far)) = (near, far) {
            // Packets are not stamped more exactly.
            let rounded = |span: Span| Span::from_micros(span.as_micros());
            known.rtt = Some(rounded(near + far));
            known.radio_rtt = (!is_at_client).then_some(rounded(near));
            known.notes.push(format!(
                "round trips are medians over the handshakes of {} connections{}",
                self.connections.len(),
                if is_at_client {
                    ", captured at the UE, so that its radio leg is not known"
                } else {
                    ""
                }
            ));
        }
        let bytes = |way: usize| self.carried[way].values().sum::<u64>();
        let way = match bytes(0).cmp(&bytes(1)) {
            std::cmp::Ordering::Equal => return known,
            order => usize::from(order.is_lt()),
        };
        known.direction = Some([Direction::Upload, Direction::Download][way]);
        if let Some(rate) = self.busiest(way) {
            known.rate = Some(rate);
            known
                .notes
                .push("the rate is that of the busiest second: the link's is at least that".into());
        }
        let mut seen = Seen::default();
        for connection in self.connections.values() {
            seen.add(connection.seen(way));
        }
        self.shares(&seen, is_at_client, &mut known);
        if self.passed_over > 0 {
            known.notes.push(format!(
                "{} of {} packets are of connections that the capture has not seen open, and do not count",
                self.passed_over, self.packets
            ));
        }
        known
    }

    /// What of the data was lost, and what was late.
    fn shares(&self, seen: &Seen, is_at_client: bool, known: &mut Known) {
        if seen.packets < ENOUGH_PACKETS {
            known.notes.push(format!(
                "{} packets with data are too few to say what is lost or late: give `--loss`, `--late`",
                seen.packets
            ));
            return;
        }
        // To a thousandth of a percent: more is not known from any capture.
        let share = |count: u64| {
            Share::from_fraction((count as f64 / seen.packets as f64 * 1e5).round() / 1e5)
        };
        let is_download = known.direction == Some(Direction::Download);
        // Of an upload that is captured at a box, and of a download at the UE, the radio leg is before the capture.
        let is_radio_before = is_download == is_at_client;
        let lost_before = seen.filled_again;
        let lost_behind = seen.twice.saturating_sub(seen.needless);
        let (radio, wide) =
            if is_radio_before { (lost_before, lost_behind) } else { (lost_behind, lost_before) };
        if is_at_client {
            // The whole way is on one side of it.
            known.loss = Some(share(radio + wide));
            known.notes.push("which part of the way loses is not seen from the UE: all of it is taken for the radio leg's".into());
        } else {
            known.loss = Some(share(radio));
            if wide > 0 {
                known.notes.push(format!(
                    "{} of the data's packets are lost on the way between box and server, which is not in the figures",
                    share(wide)
                ));
            }
        }
        if known.loss.is_some_and(|loss| loss > Share::ZERO) {
            known.notes.push(
                "what queues dropped is in the loss, which is too high by that: where flows are short or few, give `--loss`"
                    .into(),
            );
        }
        let late = is_radio_before.then(|| seen.late_by()).flatten();
        if let Some(by) = late {
            known.late = Some((share(seen.filled_late), by));
            known.notes.push(format!(
                "{} packets filled holes by themselves; half of them came more than {by} after what overtook them",
                seen.filled_late
            ));
        } else if !is_radio_before && seen.needless > 0 {
            known.notes.push(format!(
                "{} packets were sent again although they had arrived: some packets are late beyond the capture, how much is not seen \
                 from it: give `--late`, `--late-by`",
                seen.needless
            ));
        }
    }

    /// What came by in the busiest second, headers included.
    fn busiest(&self, way: usize) -> Option<Rate> {
        let carried = &self.carried[way];
        let second = |first: &u64| {
            let tenths =
                (*first..first.saturating_add(BUSY)).filter_map(|tenth| carried.get(&tenth));
            tenths.sum::<u64>()
        };
        let bytes = carried.keys().map(second).max()?;
        Some(Rate::from_bps(bytes.saturating_mul(8)))
    }
}

#[cfg(test)]
mod tests {
    use etherparse::TcpOptionElement::{SelectiveAcknowledgement, Timestamp};

    use super::packet::tests::segment;
    use super::*;

    /// Ports of a client and its server.
    const THERE: (u16, u16) = (1, 2);
    const BACK: (u16, u16) = (2, 1);
    const SEGMENT: u32 = 1000;

    /// A capture that is `near_us` from the client and `far_us` from the server, round trips both, with a connection open.
    fn opened(near_us: u64, far_us: u64) -> Capture {
        let mut capture = Capture::default();
        syn(&mut capture, THERE, 0, false);
        syn(&mut capture, BACK, far_us, true);
        let ack = segment(THERE, |header| header.ack = true, 0);
        capture.add(at(far_us + near_us), LinkType::Raw, &ack);
        capture
    }

    fn syn(capture: &mut Capture, ports: (u16, u16), us: u64, is_answer: bool) {
        let bytes = segment(
            ports,
            |header| {
                header.syn = true;
                header.ack = is_answer;
                // So that the numbers pass their end.
                header.sequence_number = u32::MAX - 10_000;
            },
            0,
        );
        capture.add(at(us), LinkType::Raw, &bytes);
    }

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_micros(us)
    }

    /// A segment of the server's, by its number, with a timestamp in milliseconds.
    fn data(capture: &mut Capture, number: u32, us: u64, stamp: Option<u32>) {
        let bytes = segment(
            BACK,
            |header| {
                header.ack = true;
                header.sequence_number = (u32::MAX - 9_999).wrapping_add(number * SEGMENT);
                if let Some(stamp) = stamp {
                    header.set_options(&[Timestamp(stamp, 0)]).unwrap();
                }
            },
            SEGMENT as usize,
        );
        capture.add(at(us), LinkType::Raw, &bytes);
    }

    /// 2000 segments, one each 100 us from a second on; of `lost` ones the first copy does not come, and the second comes
    /// 50 ms later; `late` ones come 5 ms later.
    fn download(capture: &mut Capture, lost: &[u32], late: &[u32], with_stamps: bool) {
        let mut events: Vec<(u64, u32, u64)> = (0..2000)
            .map(|number| {
                let sent = 1_000_000 + u64::from(number) * 100;
                match (lost.contains(&number), late.contains(&number)) {
                    (true, _) => (sent + 50_000, number, sent + 50_000),
                    (_, true) => (sent + 5_000, number, sent),
                    _ => (sent, number, sent),
                }
            })
            .collect();
        events.sort_unstable();
        for (us, number, sent) in events {
            data(capture, number, us, with_stamps.then_some((sent / 1000) as u32));
        }
    }

    #[test]
    fn handshakes_tell_where_the_box_is() {
        let known = opened(10_000, 40_000).known();
        assert_eq!(known.rtt, Some(Span::from_millis(50)));
        assert_eq!(known.radio_rtt, Some(Span::from_millis(10)));
        let known = opened(50, 40_000).known();
        assert_eq!((known.rtt, known.radio_rtt), (Some(Span::from_micros(40_050)), None));
        assert!(known.notes[0].contains("captured at the UE"));
        // A SYN that was sent again may have been answered either time.
        let mut again = Capture::default();
        syn(&mut again, THERE, 0, false);
        syn(&mut again, THERE, 1_000_000, false);
        syn(&mut again, BACK, 1_010_000, true);
        assert_eq!(again.known().rtt, None);
        // What began before the capture has no beginning.
        let mut capture = Capture::default();
        data(&mut capture, 0, 0, None);
        assert_eq!((capture.connections(), capture.passed_over), (0, 1));
    }

    #[test]
    fn lost_packets_are_told_from_late_ones() {
        let (lost, late) = ([100, 500, 501, 1500], [200, 300, 700]);
        for with_stamps in [true, false] {
            let mut capture = opened(50, 40_000);
            download(&mut capture, &lost, &late, with_stamps);
            let known = capture.known();
            assert_eq!(known.direction, Some(Direction::Download));
            assert_eq!(known.loss, Some(Share::from_fraction(4.0 / 2000.0)), "{known:?}");
            let (share, by) = known.late.unwrap();
            assert_eq!(share, Share::from_fraction(3.0 / 2000.0));
            // Less the gap to what told of the hole.
            assert_eq!(by, Span::from_micros(4_900));
        }
    }

    #[test]
    fn a_clean_download_has_the_rate_it_had_and_nothing_is_lost() {
        let mut capture = opened(50, 40_000);
        download(&mut capture, &[], &[], true);
        let known = capture.known();
        assert_eq!((known.loss, known.late), (Some(Share::ZERO), None));
        // 2000 packets of 1052 bytes in less than a second.
        assert_eq!(known.rate, Some(Rate::from_bps(2000 * 1052 * 8)));
    }

    #[test]
    fn before_the_radio_leg_a_loss_is_seen_twice() {
        let mut capture = opened(10_000, 40_000);
        download(&mut capture, &[], &[], true);
        for number in [100, 200, 300] {
            data(&mut capture, number, 2_000_000 + u64::from(number), Some(2000));
        }
        // Of these one had arrived: the client says so.
        let first = (u32::MAX - 9_999).wrapping_add(100 * SEGMENT);
        let ack = segment(
            THERE,
            |header| {
                header.ack = true;
                header.acknowledgment_number = first.wrapping_add(1000 * SEGMENT);
                let block = (first, first.wrapping_add(SEGMENT));
                header.set_options(&[SelectiveAcknowledgement(block, [None; 3])]).unwrap();
            },
            0,
        );
        capture.add(at(2_100_000), LinkType::Raw, &ack);
        let known = capture.known();
        assert_eq!(known.loss, Some(Share::from_fraction(0.001)), "{known:?}");
        assert_eq!(known.late, None);
        assert!(known.notes.iter().any(|note| note.contains("--late-by")), "{known:?}");
    }

    #[test]
    fn too_few_packets_say_nothing_of_shares() {
        let mut capture = opened(50, 40_000);
        (0..10).for_each(|number| data(&mut capture, number, 1_000_000, None));
        let known = capture.known();
        assert_eq!((known.loss, known.late), (None, None));
        assert!(known.notes.iter().any(|note| note.contains("too few")));
    }

    proptest::proptest! {
        #[test]
        fn no_order_of_packets_breaks_it(
            numbers in proptest::collection::vec((0..70_u32, 0..5_000_000_u64, 0..3_u32), 0..400),
        ) {
            let mut capture = opened(1_000, 9_000);
            for (number, us, stamp) in numbers {
                data(&mut capture, number * 61_000, us, (stamp > 0).then_some(stamp));
            }
            let _ = capture.known();
            for connection in capture.connections.values() {
                let seen = connection.seen(1);
                proptest::prop_assert!(seen.filled_again + seen.filled_late + seen.twice <= 2 * seen.packets + 2);
            }
        }
    }
}
