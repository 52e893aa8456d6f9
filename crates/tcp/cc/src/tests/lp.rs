use super::*;

const RTT: Span = Span::from_millis(100);

/// With an acknowledgement for every second packet.
fn new() -> Sender {
    let mut sender = Sender::new("lp", Config::default(), RTT);
    sender.sample.acked = 2;
    sender
}

/// In congestion avoidance at 100 packets, with delays from 100 to 200 ms seen.
fn lp() -> Sender {
    let mut sender = new();
    for millis in [200, 100] {
        sender.sample.rtt = Some(Span::from_millis(millis));
        for _ in 0..40 {
            sender.ack();
        }
    }
    sender.at(100)
}

fn ack_with_rtt(sender: &mut Sender, millis: u64, packets: u32) {
    sender.sample.rtt = Some(Span::from_millis(millis));
    for _ in 0..packets / sender.sample.acked {
        sender.ack();
    }
}

/// Section III.B: the indication is a smoothed delay beyond 15 % of the way from least to greatest,
/// here 115 ms. Below it LP is Reno.
#[test]
fn alone_it_is_reno() {
    let mut sender = lp();
    ack_with_rtt(&mut sender, 110, 100);
    assert_eq!(sender.control.cwnd(), 101);
}

/// Section III.C: halves at the first indication, holds for three round-trips, and falls to one packet
/// if it is indicated in that time again.
#[test]
fn it_gives_way() {
    let mut sender = lp();
    ack_with_rtt(&mut sender, 150, 10);
    assert_eq!(sender.control.cwnd(), 50);
    // Within a round-trip: packets from before the reduction.
    ack_with_rtt(&mut sender, 150, 30);
    assert_eq!(sender.control.cwnd(), 50);
    ack_with_rtt(&mut sender, 150, 40);
    assert!(sender.control.cwnd() <= 2, "{:?}", sender.control);
}

/// Its own queue, which a halved window drains, is above the threshold for a while yet: smoothed, it only follows.
/// That is not indicated twice.
#[test]
fn its_own_queue_halves_it_once() {
    let mut sender = lp();
    ack_with_rtt(&mut sender, 125, 20);
    assert_eq!(sender.control.cwnd(), 50);
    ack_with_rtt(&mut sender, 125, 60);
    ack_with_rtt(&mut sender, 118, 40);
    assert_eq!(sender.control.cwnd(), 50);
}

#[test]
fn it_holds_still_while_it_infers() {
    let mut sender = lp();
    ack_with_rtt(&mut sender, 150, 8);
    assert_eq!(sender.control.cwnd(), 50);
    ack_with_rtt(&mut sender, 100, 100);
    assert_eq!(sender.control.cwnd(), 50);
    ack_with_rtt(&mut sender, 100, 200);
    assert!((51..=55).contains(&sender.control.cwnd()), "{:?}", sender.control);
}

/// What it needs to know of the path it learns in slow start, and does not use yet.
#[test]
fn slow_start_is_not_touched() {
    let mut sender = new();
    ack_with_rtt(&mut sender, 100, 10);
    ack_with_rtt(&mut sender, 200, 20);
    assert_eq!(sender.control.cwnd(), 40);
}

/// An acknowledgement for one packet may have waited for a second one.
#[test]
fn a_delayed_acknowledgement_is_no_queue() {
    let mut sender = lp();
    sender.sample.acked = 1;
    ack_with_rtt(&mut sender, 200, 50);
    assert_eq!(sender.control.cwnd(), 100);
}

/// Nor are 5 ms, which is all that a queue should hold: of a path that never had one, 15 % of what varies
/// says nothing.
#[test]
fn five_milliseconds_are_no_queue() {
    let after = |micros| {
        let mut sender = new().at(100);
        for micros in [100_000, micros] {
            sender.sample.rtt = Some(Span::from_micros(micros));
            for _ in 0..40 {
                sender.ack();
            }
        }
        sender.control.cwnd()
    };
    assert_eq!(after(104_900), 101);
    assert!(after(106_000) <= 50);
}
