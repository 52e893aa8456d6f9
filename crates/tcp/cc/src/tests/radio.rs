//! The control for a radio leg: losses without a queue, with one, and many of them.

use super::*;
use crate::HyStart;

const BASE: Span = Span::from_millis(10);

/// Past slow start at a window, with so long a round trip on a path of 10 ms without a queue.
fn sender(cwnd: u32, rtt: Span) -> Sender {
    sender_on(BASE, cwnd, rtt)
}

/// The same on a path of `base`.
fn sender_on(base: Span, cwnd: u32, rtt: Span) -> Sender {
    let mut sender = Sender::new("radio", Config::default(), rtt).at(cwnd);
    sender.connection.min_rtt = base;
    sender.round();
    sender.round();
    sender.at(cwnd)
}

/// A packet is held lost, the stack begins to repair it, and by the end of that the window is what it is to be.
fn lose(sender: &mut Sender) {
    sender.connection.lost += 1;
    sender.control.on_reduction(&sender.connection, State::Recovery);
    sender.connection.in_flight = sender.control.cwnd();
    sender.ack();
}

#[test]
fn a_loss_without_a_queue_takes_nothing() {
    let mut sender = sender(500, BASE);
    for _ in 0..20 {
        let before = sender.control.cwnd();
        lose(&mut sender);
        sender.round();
        sender.round();
        assert!(sender.control.cwnd() >= before);
    }
    // It grows while that is repaired, too.
    assert!(sender.control.cwnd() >= 510, "{}", sender.control.cwnd());
}

#[test]
fn a_loss_without_a_queue_does_not_end_slow_start() {
    let mut sender = Sender::new("radio", Config::default(), BASE);
    // Else the train of acknowledgements, spread over the round trip, ends it.
    sender.app_limited = true;
    sender.round();
    let before = sender.control.cwnd();
    lose(&mut sender);
    assert!(sender.control.in_slow_start());
    sender.round();
    assert!(sender.control.cwnd() >= before * 2);
}

/// What a paced server sends comes to a relay evenly, and its acknowledgements, closer than 2 ms, as evenly: a train as long
/// as the way there, of which CUBIC would hold that the path is full.
#[test]
fn data_that_come_evenly_do_not_end_slow_start() {
    let left_at = |name, app_limited| {
        let mut sender = Sender::new(name, Config::default(), Span::from_millis(100));
        sender.app_limited = app_limited;
        while sender.control.in_slow_start() && sender.control.cwnd() < 10_000 {
            sender.ack();
        }
        sender.control.cwnd()
    };
    assert_eq!(left_at("radio", true), 10_000);
    for (name, app_limited) in [("radio", false), ("cubic", true), ("cubic", false)] {
        let cwnd = left_at(name, app_limited);
        assert!((50..=200).contains(&cwnd), "{name} {cwnd}");
    }
}

/// While a loss is repaired acknowledgements come as evenly, and slow start goes on through that.
#[test]
fn a_train_while_a_loss_is_repaired_does_not_end_slow_start() {
    let left_at = |state| {
        let mut sender = Sender::new("radio", Config::default(), Span::from_millis(100));
        sender.control.set_state(&sender.connection, state);
        while sender.control.in_slow_start() && sender.control.cwnd() < 10_000 {
            sender.ack();
        }
        sender.control.cwnd()
    };
    assert_eq!(left_at(State::Recovery), 10_000);
    assert!((50..=200).contains(&left_at(State::Open)));
}

/// A link layer that delivers in order stalls for as long as it repairs a block. That is no queue: with the stall
/// over, slow start goes on. Acknowledgements are more than 2 ms apart, so that CUBIC sees no train, but it takes
/// the stall for a full path.
#[test]
fn a_stall_does_not_end_slow_start() {
    let stall = |cwnd: u32| Span::from_millis(if (150..450).contains(&cwnd) { 140 } else { 100 });
    let left_at = |name| slow_start_until(name, HyStart::Classic, 16, 700, stall);
    assert!(left_at("radio") >= 700);
    let cubic = left_at("cubic");
    assert!((150..=450).contains(&cubic), "{cubic}");
}

/// A peer that takes packets together acknowledges a round by fewer than HyStart++ asks of one that speaks of a queue; that
/// the delay has passed each of them shows.
#[test]
fn a_delay_that_passed_is_seen_in_rounds_of_few_acknowledgements() {
    let delay = |cwnd: u32| Span::from_millis(if (150..300).contains(&cwnd) { 140 } else { 100 });
    // By single packets until the delay is seen, then by so many at once.
    let left_at = |few| {
        let mut sender = Sender::new("radio", Config::default(), Span::from_millis(100));
        sender.app_limited = true;
        while sender.control.in_slow_start() && sender.control.cwnd() < 2000 {
            let cwnd = sender.control.cwnd();
            sender.sample.rtt = Some(delay(cwnd));
            sender.sample.acked = if cwnd < 200 { 1 } else { few };
            sender.ack();
        }
        sender.control.cwnd()
    };
    for few in [1, 64, 128] {
        assert!(left_at(few) >= 2000, "{few} {}", left_at(few));
    }
}

/// A queue that stays ends it as HyStart++ does, whatever CUBIC is configured to have.
#[test]
fn a_queue_that_stays_ends_slow_start() {
    let queue = |cwnd: u32| {
        Span::from_millis(100) + Span::from_micros(200) * u64::from(cwnd.saturating_sub(100))
    };
    let left_at = |name, hystart| slow_start_until(name, hystart, 32, 10_000, queue);
    let plus_plus = left_at("cubic", HyStart::PlusPlus);
    assert!((400..=1600).contains(&plus_plus), "{plus_plus}");
    for hystart in [HyStart::Off, HyStart::Classic, HyStart::PlusPlus] {
        assert_eq!(left_at("radio", hystart), plus_plus);
    }
}

/// RFC 9406, section 4.3: a threshold that a loss has taught is not lowered by a delay.
#[test]
fn only_the_first_slow_start_ends_by_delay() {
    let mut sender = sender(500, BASE);
    sender.control.set_cwnd(20);
    for _ in 0..5 {
        sender.round();
        sender.sample.rtt = Some(sender.sample.rtt.unwrap() * 2);
    }
    assert_eq!(sender.control.ssthresh(), 500);
}

/// RFC 9438, section 4.6: 0.7 of the window, once in a round trip.
#[test]
fn a_loss_with_a_queue_is_cubics() {
    let mut sender = sender(1000, Span::from_millis(60));
    lose(&mut sender);
    assert_eq!(sender.control.ssthresh(), 700);
    for _ in 0..400 {
        sender.connection.lost += 1;
        sender.control.on_ack(&sender.connection, &sender.sample);
    }
    assert_eq!(sender.control.ssthresh(), 700);
}

/// Who came into the queue of others takes a round trip of 12 ms for the path's. 4 ms more are no more than
/// tells of a queue, but the most that was seen: 800 packets in 16 ms are 600 in the 12 ms that the path
/// is held to take, and a burst of 44 more. CUBIC would leave 560.
/// Slow start's window is up to twice what path and queue hold. CUBIC's part of it would overflow the queue once more.
#[test]
fn slow_starts_overflow_leaves_a_part_of_what_was_held() {
    for cwnd in [500, 1000, 2000] {
        let mut sender = sender(500, Span::from_millis(60)).at(cwnd);
        sender.control.set_ssthresh(i32::MAX as u32);
        sender.connection.lost += 1;
        sender.control.on_reduction(&sender.connection, State::Recovery);
        // Delivered at the rate that 500 packets in a round trip are.
        sender.acknowledge(&Sample { rate: None, ..sender.sample });
        let left = sender.control.ssthresh();
        assert!((345..=355).contains(&left), "{cwnd} {left}");
    }
}

#[test]
fn a_loss_at_the_deepest_queue_leaves_what_the_path_carries() {
    let mut sender = sender_on(Span::from_millis(12), 800, Span::from_millis(16));
    lose(&mut sender);
    // The rounds before had a packet or two more.
    assert!((644..=650).contains(&sender.control.ssthresh()), "{}", sender.control.ssthresh());
}

/// Of a short window a third more, and never more than there was.
#[test]
fn a_short_window_keeps_room_for_a_short_burst() {
    let mut sender = sender_on(Span::from_millis(12), 60, Span::from_millis(16));
    lose(&mut sender);
    // 45 fit into 12 ms, and 15 more.
    assert!((59..=62).contains(&sender.control.ssthresh()), "{}", sender.control.ssthresh());
}

/// The same round trip where the queue was deeper a moment ago: it is chance.
#[test]
fn a_loss_far_from_the_deepest_queue_takes_nothing() {
    let mut sender = sender_on(Span::from_millis(12), 100, Span::from_millis(20));
    sender.rtt = Span::from_millis(16);
    sender.sample.rtt = Some(sender.rtt);
    sender.round();
    sender.round();
    let before = sender.control.ssthresh();
    lose(&mut sender);
    assert_eq!(sender.control.ssthresh(), before);
}

/// One in ten is no chance: it is CUBIC then, with a queue or without.
#[test]
fn who_loses_much_gives_way() {
    let mut sender = sender(100, BASE);
    let before = sender.control.cwnd();
    for _ in 0..20 {
        sender.connection.lost += 10;
        sender.round();
    }
    assert!(sender.control.ssthresh() < before * 9 / 10, "{}", sender.control.ssthresh());
}

/// Slow start fills a queue before a round's least round trip shows it, and loses a third of what it sends. The window falls once,
/// by no less than CUBIC's, and losses by chance after that take nothing, as they would where there is a policer.
#[test]
fn an_overflow_is_no_policer() {
    let mut sender = sender(300, BASE);
    sender.connection.lost += 100;
    sender.control.on_reduction(&sender.connection, State::Recovery);
    sender.round();
    let left = sender.control.ssthresh();
    assert!((200..=215).contains(&left), "{left}");
    for _ in 0..10 {
        sender.round();
    }
    for _ in 0..50 {
        lose(&mut sender);
        for _ in 0..5 {
            sender.round();
        }
    }
    assert_eq!(sender.control.ssthresh(), left);
}

/// The first packets of a burst into an empty queue are the least of their round, and tell of none. The one delivered last does.
#[test]
fn an_overflow_behind_a_burst_leaves_a_part_of_what_was_held() {
    let full = Span::from_millis(60);
    for (last, left) in [(BASE, 60..75), (full, 200..215)] {
        let mut sender = sender(300, full);
        sender.sample.rtt = Some(BASE);
        sender.round();
        sender.round();
        sender.connection.lost += 200;
        sender.control.on_reduction(&sender.connection, State::Recovery);
        sender.sample.rtt = Some(last);
        sender.ack();
        assert!(left.contains(&sender.control.ssthresh()), "{}", sender.control.ssthresh());
    }
}

/// The acknowledgement that begins a reduction tells of a third of what was in flight as lost. None of that was sent since,
/// and the first retransmission goes at once (RFC 9937, section 6).
#[test]
fn what_was_lost_is_not_held_sent() {
    let mut sender = sender(300, BASE);
    sender.connection.lost += 100;
    sender.connection.in_flight = 199;
    sender.sample.prior_in_flight = 300;
    sender.control.on_reduction(&sender.connection, State::Recovery);
    sender.control.on_ack(&sender.connection, &sender.sample);
    assert!(sender.control.cwnd() > 199, "{}", sender.control.cwnd());
}

/// What is lost to a queue that is seen, however much, tells of no policer.
#[test]
fn what_a_full_queue_drops_is_no_policers() {
    let mut sender = sender(1000, Span::from_millis(60));
    for _ in 0..20 {
        sender.connection.lost += 200;
        sender.round();
    }
    sender.rtt = BASE;
    sender.sample.rtt = Some(BASE);
    let mut sender = sender.at(1000);
    sender.round();
    sender.round();
    sender.round();
    let before = sender.control.ssthresh();
    lose(&mut sender);
    assert_eq!(sender.control.ssthresh(), before);
}

/// And for ten seconds after that each loss is congestion. Then it is chance again.
#[test]
fn who_lost_much_gives_way_for_some_time() {
    let mut sender = sender(1000, BASE);
    for _ in 0..60 {
        sender.connection.lost += 100;
        sender.round();
    }
    let mut sender = sender.at(1000);
    lose(&mut sender);
    assert_eq!(sender.control.ssthresh(), 700);
    sender.connection.now += Span::from_secs(11);
    // What was counted up to then is forgotten with the first loss.
    lose(&mut sender);
    let mut sender = sender.at(1000);
    sender.round();
    sender.round();
    let before = sender.control.ssthresh();
    lose(&mut sender);
    assert_eq!(sender.control.ssthresh(), before);
}

/// Marks are no chance either.
#[test]
fn marked_congestion_is_cubics() {
    let mut sender = sender(1000, BASE);
    sender.connection.delivered_ce += 1;
    sender.control.on_reduction(&sender.connection, State::Cwr);
    sender.control.on_ack(&sender.connection, &sender.sample);
    assert_eq!(sender.control.ssthresh(), 700);
    // Once in a round trip.
    sender.connection.delivered_ce += 1;
    sender.control.on_ack(&sender.connection, &sender.sample);
    assert_eq!(sender.control.ssthresh(), 700);
}

/// RFC 8985, 7.4.2: the stack reduces when a tail loss probe has repaired the tail. Without a queue that was chance.
#[test]
fn a_lost_tail_without_a_queue_takes_nothing() {
    let tail_lost = |rtt| {
        let mut sender = sender(1000, rtt);
        sender.control.on_reduction(&sender.connection, State::Cwr);
        sender.control.on_reduced(&sender.connection, State::Open);
        (sender.control.cwnd(), sender.control.ssthresh())
    };
    let (cwnd, ssthresh) = tail_lost(BASE);
    assert!(cwnd >= 1000 && ssthresh >= 1000, "{cwnd}, {ssthresh}");
    assert_eq!(tail_lost(Span::from_millis(60)).1, 700);
}

#[test]
fn a_mistake_is_undone() {
    let mut sender = sender(1000, Span::from_millis(60));
    lose(&mut sender);
    assert_eq!(sender.control.ssthresh(), 700);
    assert!(sender.control.on_undo(&sender.connection, State::Open) >= 1000);
    // What was no reduction cannot be undone, nor what was undone.
    sender.control.set_cwnd(400);
    assert_eq!(sender.control.on_undo(&sender.connection, State::Open), 400);
}

#[test]
fn a_timeout_starts_slowly_up_to_where_it_was() {
    let mut sender = sender(1000, Span::from_millis(60));
    sender.control.on_reduction(&sender.connection, State::Loss);
    sender.control.set_cwnd(1);
    assert_eq!(sender.control.ssthresh(), 700);
    assert!(sender.control.in_slow_start());
    sender.ack();
    assert_eq!(sender.control.cwnd(), 2);
    // It was needless.
    assert!(sender.control.on_undo(&sender.connection, State::Open) >= 1000);
}
