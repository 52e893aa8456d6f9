use super::*;

const RTT: Span = Span::from_millis(100);

/// In congestion avoidance at 100 packets, with delays from 100 to 200 ms seen.
fn lp() -> Sender {
    let mut sender = Sender::new("lp", Config::default(), RTT);
    for millis in [200, 100] {
        sender.sample.rtt = Some(Span::from_millis(millis));
        for _ in 0..40 {
            sender.ack();
        }
    }
    sender.at(100)
}

fn ack_with_rtt(sender: &mut Sender, millis: u64, times: u32) {
    sender.sample.rtt = Some(Span::from_millis(millis));
    for _ in 0..times {
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

#[test]
fn it_holds_still_while_it_infers() {
    let mut sender = lp();
    ack_with_rtt(&mut sender, 150, 4);
    assert_eq!(sender.control.cwnd(), 50);
    ack_with_rtt(&mut sender, 100, 100);
    assert_eq!(sender.control.cwnd(), 50);
    ack_with_rtt(&mut sender, 100, 200);
    assert!((51..=55).contains(&sender.control.cwnd()), "{:?}", sender.control);
}

/// What it needs to know of the path it learns in slow start, and does not use yet.
#[test]
fn slow_start_is_not_touched() {
    let mut sender = Sender::new("lp", Config::default(), RTT);
    sender.round();
    ack_with_rtt(&mut sender, 200, 20);
    assert_eq!(sender.control.cwnd(), 40);
}
