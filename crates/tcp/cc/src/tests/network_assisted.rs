//! NATCP and NACubic.

use midspan_units::{ByteSize, Rate};

use super::*;
use crate::{Feedback, Kind};

const RTT: Span = Span::from_millis(10);

/// 1500 bytes of IP packet a millisecond.
fn feedback(fairness: u32) -> Feedback {
    let bandwidth = Rate::from_bps(12_000_000);
    Feedback { bandwidth, min_rtt: RTT, fairness, queue: ByteSize::from_bytes(0), pace: 256 }
}

fn sender(name: &str) -> Sender {
    Sender::new(name, Config::default(), RTT).at(100)
}

/// Equation 1 with alpha = 2: 12 Mbit/s x 10 ms is ten packets, twice that the window. The pacing
/// rate is the bandwidth, in payload: 1448 of 1500 bytes.
#[test]
fn natcp_does_what_the_network_says() {
    let mut sender = sender("natcp");
    assert_eq!(sender.control.kind(), Kind::Rate);
    sender.sample.feedback = Some(feedback(256));
    sender.ack();
    assert_eq!(sender.control.cwnd(), 20);
    assert_eq!(sender.control.pacing_rate(), Some(Rate::from_bps(11_584_000)));
    // A new bandwidth holds at once.
    let doubled = Feedback { bandwidth: Rate::from_bps(24_000_000), ..feedback(256) };
    sender.sample.feedback = Some(doubled);
    sender.ack();
    assert_eq!(sender.control.cwnd(), 40);
}

/// 1/B: two flows have half of the window and of the rate each. No B is one flow, no minRTT the
/// connection's own.
#[test]
fn they_share() {
    for (feedback, window, rate) in [
        (feedback(512), 10, 5_792_000),
        (feedback(0), 20, 11_584_000),
        (Feedback { min_rtt: Span::ZERO, ..feedback(256) }, 20, 11_584_000),
        (feedback(256 * 1000), 2, 11_584),
    ] {
        for name in ["natcp", "nacubic"] {
            let mut sender = sender(name);
            sender.sample.feedback = Some(feedback);
            sender.ack();
            assert_eq!(sender.control.cwnd(), window, "{name}");
            assert_eq!(sender.control.pacing_rate(), Some(Rate::from_bps(rate)), "{name}");
        }
    }
}

/// Throughput guidance: the connection's own smoothed round trip, which has the queue in it.
#[test]
fn the_smoothed_round_trip_may_stand_in() {
    for name in ["natcp", "nacubic"] {
        let mut sender = sender(name);
        sender.sample.feedback = Some(Feedback { min_rtt: Feedback::SMOOTHED, ..feedback(256) });
        sender.connection.srtt = RTT * 3;
        sender.ack();
        assert_eq!(sender.control.cwnd(), 60, "{name}");
    }
}

/// What is to be in the bottleneck's queue comes on top, shared as well; the pace is a part or a multiple
/// of the bandwidth, and does not change the window.
#[test]
fn natcp_keeps_the_queue_that_is_wanted() {
    // 30,000 bytes are 20 packets.
    let queue = ByteSize::from_bytes(30_000);
    for (fairness, pace, window, rate) in
        [(256, 256, 40, 11_584_000), (512, 320, 20, 7_240_000), (256, 0, 40, 11_584_000)]
    {
        let mut sender = sender("natcp");
        sender.sample.feedback = Some(Feedback { queue, pace, ..feedback(fairness) });
        sender.ack();
        assert_eq!(sender.control.cwnd(), window);
        assert_eq!(sender.control.pacing_rate(), Some(Rate::from_bps(rate)));
    }
}

/// Feedback holds for what is sent next, before any acknowledgement, and packets go singly; without it
/// nothing changes, and they go as the stack likes.
#[test]
fn feedback_holds_from_the_next_packet_on() {
    for (name, window) in [("natcp", 20), ("nacubic", 20)] {
        let mut sender = sender(name);
        let before = sender.control.pacing_rate();
        sender.control.on_send(&sender.connection, None);
        assert_eq!((sender.control.cwnd(), sender.control.burst()), (100, Some(2)), "{name}");
        assert_eq!(sender.control.pacing_rate(), before, "{name}");
        sender.control.on_send(&sender.connection, Some(&feedback(256)));
        assert_eq!((sender.control.cwnd(), sender.control.burst()), (window, Some(1)), "{name}");
        assert_eq!(sender.control.pacing_rate(), Some(Rate::from_bps(11_584_000)), "{name}");
    }
    let mut cubic = sender("cubic");
    cubic.control.on_send(&cubic.connection, Some(&feedback(256)));
    assert_eq!((cubic.control.cwnd(), cubic.control.burst()), (100, None));
}

#[test]
fn with_feedback_a_loss_takes_nothing() {
    let mut sender = sender("natcp");
    sender.sample.feedback = Some(feedback(256));
    sender.ack();
    sender.reduce(State::Recovery);
    sender.ack();
    assert_eq!(sender.control.cwnd(), 20);
    sender.control.on_reduction(&sender.connection, State::Loss);
    sender.control.set_cwnd(1);
    sender.ack();
    assert_eq!(sender.control.cwnd(), 20);
}

/// Section 2.4: without feedback it is CUBIC: it grows and yields as that does, from where it is.
#[test]
fn natcp_without_feedback_is_cubic() {
    let mut assisted = sender("natcp");
    assisted.sample.feedback = Some(feedback(256));
    for _ in 0..200 {
        assisted.ack();
    }
    assisted.sample.feedback = None;
    let mut cubic = Sender { control: sender("cubic").at(20).control, ..sender("cubic") };
    cubic.connection = assisted.connection;
    for _ in 0..20 {
        assisted.round();
        cubic.round();
    }
    assert!(assisted.control.cwnd() > 25);
    assert!(assisted.control.cwnd().abs_diff(cubic.control.cwnd()) <= 1);
    // It is not paced, whatever round trips an outage has left it with.
    assert_eq!(assisted.control.pacing_rate(), None);
}

/// Where feedback ends in an outage, the window that the link lately carried is slow start's to
/// reach; but not one of long ago.
#[test]
fn out_of_an_outage_natcp_grows_as_far_as_the_link_was_wide() {
    let narrow = Feedback { bandwidth: Rate::from_bps(1_200_000), ..feedback(256) };
    for (rounds_of_outage, wide) in [(100, true), (2_000, false)] {
        let mut sender = sender("natcp");
        sender.sample.feedback = Some(feedback(256));
        (0..100).for_each(|_| sender.round());
        sender.sample.feedback = Some(narrow);
        (0..rounds_of_outage).for_each(|_| sender.round());
        assert_eq!(sender.control.cwnd(), 2);
        sender.sample.feedback = None;
        (0..5).for_each(|_| sender.round());
        let window = sender.control.cwnd();
        assert_eq!((10..16).contains(&window), wide, "{window} after {rounds_of_outage} rounds");
    }
}

/// Its own proportional rate reduction, as nobody else does it: RFC 6937, section 3.1, the example of
/// one loss of 20 packets in flight. Of Reno's half there, pipe goes 19 19 18 18 ... 10; here the
/// threshold is CUBIC's, 14.
#[test]
fn without_feedback_natcp_reduces_in_proportion() {
    let mut sender = sender("natcp");
    sender.control.set_cwnd(20);
    sender.control.set_ssthresh(20);
    let mut pipe = 19;
    sender.connection.in_flight = pipe;
    sender.connection.lost = 1;
    assert_eq!(sender.control.on_reduction(&sender.connection, State::Recovery), 14);
    let mut sent = 0;
    let mut windows = Vec::new();
    for _ in 0..19 {
        sender.sample.prior_in_flight = pipe;
        pipe -= 1;
        sender.connection.in_flight = pipe;
        sender.connection.delivered += 1;
        let sample = sender.sample;
        sender.acknowledge(&sample);
        // It sends what the window allows.
        sent += sender.control.cwnd() - pipe;
        pipe = sender.control.cwnd();
        windows.push(pipe);
    }
    assert!(windows.is_sorted_by(|a, b| a >= b), "{windows:?}");
    assert_eq!(windows.last(), Some(&14), "{windows:?}");
    // Seven tenths of what was delivered.
    assert!((13..=15).contains(&sent), "{sent}: {windows:?}");
    sender.control.on_reduced(&sender.connection, State::Open);
    assert_eq!(sender.control.cwnd(), 14);
}

/// Section 2.2.2: NACubic is CUBIC under a cap.
#[test]
fn nacubic_caps_cubic() {
    let mut capped = sender("nacubic");
    capped.sample.feedback = Some(feedback(256));
    capped.ack();
    assert_eq!(capped.control.cwnd(), 20);
    assert_eq!(capped.control.pacing_rate(), Some(Rate::from_bps(11_584_000)));
    // Below the cap nothing is different, nor without feedback.
    for said in
        [Some(Feedback { bandwidth: Rate::from_bps(12_000_000_000), ..feedback(256) }), None]
    {
        let (mut ours, mut cubic) = (sender("nacubic"), sender("cubic"));
        ours.sample.feedback = said;
        for sender in [&mut ours, &mut cubic] {
            sender.lose();
            for _ in 0..30 {
                sender.round();
            }
        }
        assert_eq!(ours.control.cwnd(), cubic.control.cwnd());
        assert_eq!(ours.control.pacing_rate().is_some(), said.is_some());
    }
}
