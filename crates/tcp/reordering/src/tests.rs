use super::*;
use proptest::prelude::*;

const MSS: u32 = 1000;
const STEP: Span = Span::from_micros(ffi::LATENESS_STEP as u64);

/// A sender and a receiver of segments of [`MSS`] bytes that are numbered from 0.
struct Upload {
    holes: Holes,
    lateness: Lateness,
    network: Lateness,
    first: u32,
}

fn at(millis: f64) -> Time {
    Time::ZERO + Span::from_micros((millis * 1000.0) as u64)
}

impl Upload {
    fn new(first: u32) -> Upload {
        Upload::in_network(first, Lateness::default())
    }

    /// Of a sender of whom nothing is known, in a network of which something is.
    fn in_network(first: u32, network: Lateness) -> Upload {
        let lateness = Lateness::of_network(&network);
        Upload { holes: Holes::default(), lateness, network, first }
    }

    fn number(&self, segment: u32) -> u32 {
        self.first.wrapping_add(segment * MSS)
    }

    /// A segment comes that was sent at `sent` ms.
    fn come(&mut self, segment: u32, sent: u32, now: f64) {
        let data = (self.number(segment), self.number(segment + 1));
        self.holes.came((&mut self.lateness, &mut self.network), data, sent, at(now));
    }

    /// What is told while nothing is known: whether it is everything.
    fn tells_all(&mut self, number: u32, sack: &[(u32, u32)], now: f64) -> bool {
        let blocks: Vec<_> =
            sack.iter().map(|(from, to)| (self.number(*from), self.number(*to))).collect();
        let ack = Acknowledgement { number: self.number(number), window: 100, sack: &blocks };
        let Lateness(ffi::Lateness { judged: 0, .. }) = self.lateness else { panic!("known") };
        let telling =
            self.holes.tell((self.lateness.hold(), self.lateness.is_known()), ack, at(now));
        telling == Telling::Whole
    }

    fn tell(&mut self, hold: u64, number: u32, sack: &[(u32, u32)], now: f64) -> Vec<u32> {
        let blocks: Vec<_> =
            sack.iter().map(|(from, to)| (self.number(*from), self.number(*to))).collect();
        let ack = Acknowledgement { number: self.number(number), window: 100, sack: &blocks };
        let back = |number: u32| number.wrapping_sub(self.first) / MSS;
        match self.holes.tell((Span::from_millis(hold), true), ack, at(now)) {
            Telling::Whole => vec![u32::MAX],
            Telling::Blocks(blocks, count) => blocks[..count]
                .iter()
                .flat_map(|(left, right)| [back(*left), back(*right)])
                .collect(),
            Telling::Nothing => vec![u32::MAX - 1],
        }
    }
}

const WHOLE: [u32; 1] = [u32::MAX];
const NOTHING: [u32; 1] = [u32::MAX - 1];

/// Segment 1 is overtaken by 2 to 4, and comes 10 ms late.
fn one_late(upload: &mut Upload, from: u32, now: f64) {
    for (place, late) in [(0, 0.0), (2, 0.2), (3, 0.3), (1, 10.0), (4, 10.1)] {
        upload.come(from + place, now as u32, now + late);
    }
}

#[test]
fn holes_that_fill_by_themselves_are_kept_for_as_long_as_they_take() {
    let mut upload = Upload::new(u32::MAX - 50_000);
    upload.come(0, 0, 0.0);
    assert_eq!(upload.lateness.hold(), HOLD_MOST, "nothing is known");
    one_late(&mut upload, 1, 20.0);
    // 9.8 ms are in the tenth step, and the acknowledgement takes one more.
    assert_eq!(upload.lateness.hold(), STEP * 11);
}

#[test]
fn holes_that_retransmissions_fill_are_told_at_once() {
    let mut upload = Upload::new(7);
    for round in 0..100 {
        let now = f64::from(round) * 300.0;
        let sent = now as u32;
        for (place, stamp, late) in
            [(0, 0, 0.0), (2, 0, 0.2), (3, 0, 0.3), (1, 2, 2.0), (4, 3, 3.0)]
        {
            upload.come(round * 5 + place, sent + stamp, now + late);
        }
    }
    assert_eq!(upload.lateness.hold(), Span::ZERO);
}

/// Segments of five that are sent at once, of which one is lost, every 300 ms.
fn losses(upload: &mut Upload, from: u32, count: u32, now: f64) {
    for round in 0..count {
        let (now, first) = (now + f64::from(round) * 300.0, from + round * 5);
        let sent = now as u32;
        for (place, stamp, late) in
            [(0, 0, 0.0), (2, 0, 0.2), (3, 0, 0.3), (1, 2, 2.0), (4, 3, 3.0)]
        {
            upload.come(first + place, sent + stamp, now + late);
        }
    }
}

#[test]
fn a_new_sender_begins_with_what_its_network_knows() {
    let mut first = Upload::new(7);
    first.come(0, 0, 0.0);
    one_late(&mut first, 1, 20.0);
    let mut second = Upload::in_network(9, first.network.clone());
    assert_eq!(second.lateness.hold(), STEP * 11, "before anything has come");
    // Its own losses soon outweigh that: one of the network's is worth sixteen of its own, and an event of loss four of these.
    losses(&mut second, 0, 5, 100.0);
    assert_eq!(
        second.lateness.hold(),
        STEP * 11,
        "four of them are judged: the last may yet be late"
    );
    losses(&mut second, 25, 1, 1600.0);
    assert_eq!(second.lateness.hold(), Span::ZERO);
}

#[test]
fn where_nothing_is_known_the_first_loss_is_waited_for() {
    let mut upload = Upload::new(7);
    losses(&mut upload, 0, 1, 0.0);
    assert_eq!(upload.lateness.hold(), HOLD_MOST, "it may yet be late");
    losses(&mut upload, 5, 1, 300.0);
    assert_eq!(upload.lateness.hold(), Span::ZERO);
    assert_eq!(Upload::in_network(9, upload.network).lateness.hold(), Span::ZERO);
    // Once it was, there is no doubt.
    let mut upload = Upload::new(7);
    for (segment, sent, now) in [(0, 0, 0.0), (2, 0, 0.2), (3, 51, 51.0), (1, 52, 52.0)] {
        upload.come(segment, sent, now);
    }
    assert_eq!(upload.lateness.hold(), Span::ZERO);
    assert_eq!(Upload::in_network(9, upload.network).lateness.hold(), Span::ZERO);
}

#[test]
fn losses_of_others_teach_nothing() {
    let mut lossy = Upload::new(7);
    losses(&mut lossy, 0, 50, 0.0);
    let mut next = Upload::in_network(9, lossy.network.clone());
    next.come(0, 0, 0.0);
    one_late(&mut next, 1, 20.0);
    assert_eq!(next.lateness.hold(), STEP * 11, "its own is all that counts");
}

#[test]
fn no_sender_speaks_for_its_network() {
    let mut network = Lateness::default();
    for sender in 0..30 {
        let mut usual = Upload::in_network(sender, network);
        usual.come(0, 0, 0.0);
        for round in 0..4 {
            one_late(&mut usual, 1 + round * 5, f64::from(round) * 300.0);
        }
        network = usual.network;
    }
    let mut lossy = Upload::in_network(9, network);
    losses(&mut lossy, 0, 1000, 0.0);
    assert_eq!(lossy.lateness.hold(), Span::ZERO);
    assert_eq!(Lateness::of_network(&lossy.network).hold(), STEP * 11);
}

/// A sender that has sent all that it may sends nothing that would be acknowledged.
#[test]
fn what_is_kept_is_due_when_more_of_it_may_be_told() {
    let mut upload = Upload::new(u32::MAX - 3000);
    let due = |upload: &Upload, now: f64| {
        upload.holes.due(at(now)).map(|due| due.as_micros() as f64 / 1000.0)
    };
    upload.come(0, 0, 0.0);
    assert_eq!(upload.tell(20, 1, &[], 0.0), WHOLE);
    assert_eq!(due(&upload, 0.0), None);
    upload.come(2, 0, 1.0);
    assert_eq!(upload.tell(20, 1, &[(2, 3)], 1.0), NOTHING);
    assert_eq!(due(&upload, 1.0), Some(20.0));
    upload.come(5, 0, 10.0);
    assert_eq!(upload.tell(20, 1, &[(5, 6), (2, 3)], 10.0), NOTHING);
    assert_eq!(due(&upload, 10.0), Some(11.0), "of the older hole");
    assert_eq!(upload.tell(20, 1, &[(5, 6), (2, 3)], 21.0), [2, 3]);
    assert_eq!(due(&upload, 21.0), Some(9.0), "of the younger");
    assert_eq!(due(&upload, 40.0), Some(0.0));
    upload.come(1, 0, 22.0);
    upload.come(3, 0, 22.0);
    upload.come(4, 0, 22.0);
    assert_eq!(upload.tell(20, 6, &[], 22.0), WHOLE);
    assert_eq!(due(&upload, 22.0), None);
    // Of the oldest of three, in whatever order they are remembered.
    upload.come(7, 0, 30.0);
    upload.come(9, 0, 35.0);
    upload.come(6, 0, 36.0);
    upload.come(11, 0, 40.0);
    assert_eq!(upload.tell(20, 8, &[(11, 12), (9, 10)], 40.0), [] as [u32; 0]);
    assert_eq!(due(&upload, 40.0), Some(15.0));
    // One is kept, and nothing was to be told behind it.
    assert_eq!(upload.tell(20, 8, &[(9, 10)], 56.0), WHOLE);
    assert_eq!(due(&upload, 56.0), None);
}

#[test]
fn where_nothing_is_known_a_sender_that_has_overflowed_a_queue_is_told() {
    let mut upload = Upload::new(u32::MAX - 3000);
    upload.come(0, 0, 0.0);
    upload.come(2, 0, 1.0);
    assert!(!upload.tells_all(1, &[(2, 3)], 1.0));
    (3..7).for_each(|segment| upload.come(segment, 0, 1.1));
    upload.come(8, 0, 1.2);
    assert!(!upload.tells_all(1, &[(8, 9), (2, 7)], 1.2), "the holes are far from each other");
    upload.come(12, 0, 1.3);
    assert!(upload.tells_all(1, &[(12, 13), (8, 9), (2, 7)], 1.3));
}

/// Slow start has overflowed a queue: every second of sixty segments is missing, all sent before the first of them is sent
/// again, over 20 ms.
fn an_overflow(upload: &mut Upload, from: u32, now: f64) {
    for place in (0..60).step_by(2) {
        upload.come(from + place, now as u32, now + f64::from(place) / 3.0);
    }
    for place in (1..60).step_by(2) {
        upload.come(from + place, now as u32 + 25, now + 25.0 + f64::from(place) / 3.0);
    }
    // What comes twice later says nothing but that time has passed.
    for later in 0..50 {
        upload.come(from, now as u32 + 100, now + 100.0 + f64::from(later));
    }
}

#[test]
fn what_is_lost_before_the_sender_recovers_is_one_event() {
    let mut upload = Upload::new(u32::MAX - 90_000);
    upload.come(0, 0, 0.0);
    for round in 0..8 {
        one_late(&mut upload, 1 + round * 5, f64::from(round) * 20.0);
    }
    an_overflow(&mut upload, 41, 200.0);
    assert!(upload.lateness.hold() > Span::ZERO, "eight late, one event");
    an_overflow(&mut upload, 101, 500.0);
    assert!(upload.lateness.hold() > Span::ZERO, "two");
    an_overflow(&mut upload, 161, 800.0);
    assert_eq!(upload.lateness.hold(), Span::ZERO, "three");
}

/// On a leg of a millisecond what comes 10 ms late was sent again long before.
#[test]
fn an_original_that_comes_after_its_retransmission_was_late() {
    let mut upload = Upload::new(7);
    for round in 0..20 {
        let now = f64::from(round) * 300.0;
        let sent = now as u32;
        for (place, stamp, late) in
            [(0, 0, 0.0), (2, 0, 0.2), (1, 2, 2.0), (3, 3, 3.0), (1, 0, 10.0)]
        {
            upload.come(round * 4 + place, sent + stamp, now + late);
        }
    }
    assert_eq!(upload.lateness.hold(), STEP * 11);
}

#[test]
fn acknowledgements_say_nothing_beyond_a_young_hole() {
    let mut upload = Upload::new(u32::MAX - 3000);
    upload.come(0, 0, 0.0);
    assert_eq!(upload.tell(10, 1, &[], 0.0), WHOLE);
    // 1 is missing from 1 ms on, 4 from 8 ms on.
    upload.come(2, 0, 1.0);
    assert_eq!(upload.tell(10, 1, &[(2, 3)], 1.0), NOTHING);
    upload.come(3, 0, 2.0);
    upload.come(5, 0, 8.0);
    assert_eq!(upload.tell(10, 1, &[(5, 6), (2, 4)], 8.0), NOTHING);
    // The first is old: of the second nothing is said.
    assert_eq!(upload.tell(10, 1, &[(5, 6), (2, 4)], 11.5), [2, 4]);
    assert_eq!(upload.tell(10, 1, &[(5, 6), (2, 4)], 18.5), WHOLE);
    // What came twice is told, and what moves goes on.
    upload.come(7, 0, 19.0);
    assert_eq!(upload.tell(10, 1, &[(0, 1), (7, 8)], 19.0), [0, 1]);
    upload.come(1, 0, 20.0);
    assert_eq!(upload.tell(10, 4, &[(7, 8), (5, 6)], 20.0), [5, 6]);
    assert_eq!(upload.tell(0, 4, &[(7, 8), (5, 6)], 20.0), WHOLE, "nothing is to be kept");
}

/// One of many that are late by 10 ms makes holds of 11 STEP.
fn late_network() -> Lateness {
    let mut first = Upload::new(7);
    first.come(0, 0, 0.0);
    (0..4).for_each(|round| one_late(&mut first, 1 + round * 5, f64::from(round) * 20.0));
    first.network
}

/// The sender takes for lost what it has not heard of and has sent before a retransmission that it hears of.
#[test]
fn a_repair_is_told_when_all_has_come_that_was_late_before_it() {
    let upload = || {
        let mut upload = Upload::in_network(u32::MAX - 3000, late_network());
        upload.come(0, 0, 0.0);
        assert_eq!(upload.tell(12, 1, &[], 0.0), WHOLE);
        // 1 is lost, and told after 12 ms; 4 is late.
        upload.come(2, 0, 1.0);
        upload.come(3, 0, 13.5);
        assert_eq!(upload.tell(12, 1, &[(2, 4)], 13.5), WHOLE);
        upload
    };
    let mut waits = upload();
    waits.come(5, 0, 28.0);
    waits.come(1, 14, 30.0);
    assert_eq!(waits.tell(12, 4, &[(5, 6)], 30.0), NOTHING);
    assert_eq!(waits.holes.due(at(30.0)), Some(Span::from_millis(10)), "4 is missing since 28");
    waits.come(7, 0, 31.0);
    assert_eq!(waits.tell(12, 4, &[(7, 8), (5, 6)], 31.0), NOTHING);
    waits.come(4, 0, 38.0);
    assert_eq!(waits.tell(12, 6, &[(7, 8)], 38.0), [] as [u32; 0], "6 is missing since");

    let mut again = upload();
    again.come(5, 0, 28.0);
    again.come(1, 14, 30.0);
    assert_eq!(again.tell(12, 4, &[(5, 6)], 30.0), NOTHING);
    assert_eq!(again.tell(12, 4, &[(5, 6)], 40.5), WHOLE, "it is old by now");

    let mut soon = upload();
    soon.come(5, 0, 14.0);
    soon.come(1, 14, 15.0);
    assert_eq!(soon.tell(12, 4, &[(5, 6)], 15.0), [] as [u32; 0], "nothing may come any more");
}

#[test]
fn a_repair_is_not_hidden_for_longer_than_its_bound() {
    let mut upload = Upload::in_network(7, late_network());
    upload.come(0, 0, 0.0);
    upload.come(200, 0, 1.0);
    for repair in 1..=60 {
        let now = 30.0 + f64::from(repair) * 2.0;
        // There is always one that will come late, by 8 ms.
        upload.come(200 + 2 * repair, 0, now - 0.5);
        if repair > 4 {
            upload.come(199 + 2 * (repair - 4), 0, now - 0.4);
        }
        upload.come(repair, 30, now);
        let told = upload.tell(12, repair + 1, &[], now);
        assert_eq!(told == NOTHING, repair != 51, "{repair}: the first has come 100 ms ago");
    }
}

/// A queue has dropped more segments than holes can be remembered, one after the other.
#[test]
fn a_repair_of_many_segments_leaves_room_for_holes() {
    let mut upload = Upload::in_network(u32::MAX - 9000, late_network());
    upload.come(0, 0, 0.0);
    upload.come(201, 0, 1.0);
    for repair in 1..=100 {
        upload.come(repair, 20, 20.0 + f64::from(repair) / 100.0);
    }
    upload.come(203, 20, 21.5);
    assert_eq!(upload.tell(12, 101, &[(203, 204), (201, 202)], 21.5), [201, 202]);
}

/// A tail loss probe is sent while all waits for a hole that is kept: it is answered when the hole has filled.
#[test]
fn what_came_twice_behind_a_hole_is_told_once_the_hole_has_filled() {
    let mut upload = Upload::new(u32::MAX - 3000);
    upload.come(0, 0, 0.0);
    assert_eq!(upload.tell(10, 1, &[], 0.0), WHOLE);
    upload.come(2, 0, 1.0);
    upload.come(3, 0, 1.0);
    assert_eq!(upload.tell(10, 1, &[(2, 4)], 1.0), NOTHING);
    upload.come(3, 5, 5.0);
    assert_eq!(upload.tell(10, 1, &[(3, 4), (2, 4)], 5.0), NOTHING);
    upload.come(1, 0, 9.0);
    assert_eq!(upload.tell(10, 4, &[], 9.0), [3, 4]);
    assert_eq!(upload.tell(10, 4, &[], 9.1), WHOLE, "once");
    // With other blocks: in front of them, and not before what lies behind it all is acknowledged.
    upload.come(5, 9, 11.0);
    upload.come(5, 9, 12.0);
    assert_eq!(upload.tell(10, 4, &[(5, 6), (5, 6)], 12.0), NOTHING);
    upload.come(7, 9, 13.0);
    upload.come(4, 9, 14.0);
    assert_eq!(upload.tell(0, 6, &[(7, 8)], 14.0), [5, 6]);
    // What the sender was told of is not told again.
    upload.come(9, 9, 15.0);
    assert_eq!(upload.tell(0, 6, &[(9, 10), (9, 10), (7, 8)], 15.0), WHOLE);
    upload.come(6, 9, 16.0);
    assert_eq!(upload.tell(0, 8, &[(9, 10)], 16.0), WHOLE);
}

#[test]
fn a_window_that_changes_is_told_without_blocks() {
    let mut upload = Upload::new(9);
    upload.come(0, 0, 0.0);
    upload.come(2, 0, 1.0);
    assert_eq!(upload.tell(10, 1, &[(2, 3)], 1.0), [] as [u32; 0]);
    assert_eq!(upload.tell(10, 1, &[(2, 3)], 1.1), NOTHING);
    let sack = [(upload.number(2), upload.number(3))];
    let ack = Acknowledgement { number: upload.number(1), window: 0, sack: &sack };
    let telling = upload.holes.tell((Span::from_millis(10), true), ack, at(1.2));
    assert!(matches!(telling, Telling::Blocks(_, 0)), "{telling:?}");
}

proptest! {
    /// Whatever comes: nothing is told that was not, blocks stay within those that there were, and once nothing has come for
    /// longer than the hold all is told.
    #[test]
    fn nothing_is_made_up_and_nothing_is_kept_for_ever(
        first: u32,
        hold in 0u64..=50,
        steps in proptest::collection::vec((0u32..60, 0u32..3, 0u32..40, 0u32..8), 1..200),
    ) {
        let mut upload = Upload::new(first);
        let mut got = std::collections::BTreeSet::from([0]);
        upload.come(0, 0, 0.0);
        let (mut now, mut told, mut hidden) = (0.0, 0, None);
        for (segment, length, stamp, wait) in steps {
            now += f64::from(wait);
            let data = (upload.number(segment), upload.number(segment + 1 + length));
            upload.holes.came((&mut upload.lateness, &mut upload.network), data, stamp, at(now));
            got.extend(segment..=segment + length);
            let mut blocks: Vec<(u32, u32)> = Vec::new();
            let number = (0..).find(|segment| !got.contains(segment)).unwrap();
            for segment in got.range(number..) {
                match blocks.last_mut() {
                    Some(last) if last.1 == *segment => last.1 += 1,
                    _ => blocks.push((*segment, segment + 1)),
                }
            }
            blocks.reverse();
            blocks.truncate(3);
            let said = upload.tell(hold, number, &blocks, now);
            let due = upload.holes.due(at(now));
            prop_assert!(due.is_none_or(|due| due > Span::ZERO && due <= Span::from_millis(hold)));
            prop_assert!(due.is_some() || said != NOTHING, "nothing would ever tell of it");
            if said == NOTHING {
                let since = *hidden.get_or_insert(now);
                prop_assert!(hold > 0 && (number == told || now - since <= 100.0), "{} {}", number, told);
                if number == told {
                    hidden = None;
                }
            } else {
                (told, hidden) = (number, None);
                if said != WHOLE {
                    for block in said.chunks(2) {
                        prop_assert!(blocks.iter().any(|(from, to)| *from <= block[0] && block[1] <= *to));
                    }
                }
            }
            if !blocks.is_empty() {
                let mut later = upload.holes.clone();
                let blocks: Vec<_> =
                    blocks.iter().map(|(a, b)| (upload.number(*a), upload.number(*b))).collect();
                let ack = Acknowledgement { number: upload.number(number), window: 100, sack: &blocks };
                let telling = later.tell((Span::from_millis(hold), true), ack, at(now + hold as f64 + 0.1));
                prop_assert_eq!(telling, Telling::Whole);
            }
        }
    }
}
