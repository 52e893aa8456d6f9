use super::*;

const BASE: u64 = 100;

/// At a window of 200 packets, after rounds that establish a base of 100 ms and a greatest delay of
/// 200 ms, round-trips of `rtt_ms`: by how many packets the window grows in one of them, and what a
/// loss leaves of it.
fn at_delay(rtt_ms: u64) -> (f64, f64) {
    let mut sender = Sender::new("illinois", Config::default(), Span::from_millis(BASE)).at(200);
    sender.sample.cwnd_limited = false;
    for rtt in [BASE, 2 * BASE] {
        sender.sample.rtt = Some(Span::from_millis(rtt));
        sender.round();
    }
    sender.sample.rtt = Some(Span::from_millis(rtt_ms));
    for _ in 0..10 {
        sender.round();
    }
    sender.sample.cwnd_limited = true;
    let before = sender.control.cwnd();
    for _ in 0..20 * 200 {
        sender.ack();
    }
    // 20 windows of 200 packets, of which later ones are more than the window.
    let grown = f64::from(sender.control.cwnd() - before) / 20.0;
    let cwnd = f64::from(sender.control.cwnd());
    let left = sender.control.on_reduction(&sender.connection, State::Recovery);
    (grown, f64::from(left) / cwnd)
}

/// f_1 (section 3.1) with alpha_min 0.3, alpha_max 10, d1 = dm / 100: at no delay 10, at the greatest
/// 0.3, and kappa_1 / (kappa_2 + da) in between: 0.58 at half.
#[test]
fn alpha_falls_with_delay() {
    for (rtt_ms, alpha) in [(100, 10.0), (150, 0.583), (200, 0.3), (125, 1.14)] {
        let (grown, _) = at_delay(rtt_ms);
        // The growing window makes it a little less.
        assert!(grown <= alpha * 1.05 && grown >= alpha * 0.6, "{rtt_ms} ms: {grown} for {alpha}");
    }
}

/// f_2: beta 1/8 up to a tenth of the greatest delay, 1/2 from eight tenths on, linear between.
#[test]
fn beta_rises_with_delay() {
    for (rtt_ms, beta) in [(100, 0.125), (109, 0.125), (145, 0.3125), (180, 0.5), (200, 0.5)] {
        let (_, left) = at_delay(rtt_ms);
        assert!((1.0 - left - beta).abs() < 0.012, "{rtt_ms} ms: {left}");
    }
}

/// Below a window of 15 packets it is Reno (section 4).
#[test]
fn a_small_window_is_renos() {
    let mut sender = Sender::new("illinois", Config::default(), Span::from_millis(BASE)).at(10);
    sender.sample.cwnd_limited = false;
    for _ in 0..3 {
        sender.round();
    }
    sender.sample.cwnd_limited = true;
    for _ in 0..3 {
        sender.round();
    }
    assert_eq!(sender.control.cwnd(), 13);
    assert_eq!(sender.control.on_reduction(&sender.connection, State::Recovery), 6);
}

/// Section 3.2: after a long queue alpha is at its most again only when the queue was short for five
/// rounds.
#[test]
fn alpha_comes_back_after_five_rounds() {
    let mut sender = Sender::new("illinois", Config::default(), Span::from_millis(BASE)).at(200);
    sender.sample.cwnd_limited = false;
    for rtt in [BASE, 2 * BASE, 2 * BASE, 2 * BASE] {
        sender.sample.rtt = Some(Span::from_millis(rtt));
        sender.round();
    }
    sender.sample.rtt = Some(Span::from_millis(BASE));
    let grown: Vec<u32> = (0..9)
        .map(|_| {
            let mut probe = sender.clone();
            probe.sample.cwnd_limited = true;
            sender.round();
            let before = probe.control.cwnd();
            probe.round();
            probe.control.cwnd() - before
        })
        .collect();
    let first = grown.iter().position(|&packets| packets >= 8);
    assert!(matches!(first, Some(5..=7)), "{grown:?}");
}

/// The acknowledgement that ends a recovery acknowledges a window, most of which was SACKed before: the
/// window grows by all of it, alpha packets.
#[test]
fn a_recovery_is_no_lost_round() {
    let mut sender = Sender::new("illinois", Config::default(), Span::from_millis(BASE)).at(200);
    sender.round();
    let before = sender.control.cwnd();
    sender.sample.advanced = before;
    let sample = sender.sample;
    sender.acknowledge(&sample);
    assert!((9..=10).contains(&(sender.control.cwnd() - before)), "{:?}", sender.control);
}

/// Counted as in Linux: at a window of 25 and an alpha of 10 the third acknowledgement is worth 30, one
/// packet and a fifth, of which the fifth is lost.
#[test]
fn what_is_more_than_a_packet_is_lost() {
    let mut sender = Sender::new("illinois", Config::default(), Span::from_millis(BASE)).at(25);
    sender.sample.cwnd_limited = false;
    sender.round();
    sender.sample.cwnd_limited = true;
    let windows: Vec<u32> = (0..9)
        .map(|_| {
            sender.ack();
            sender.control.cwnd()
        })
        .collect();
    assert_eq!(windows, [25, 25, 26, 26, 26, 27, 27, 27, 28]);
}

/// Rounds end outside a repair only: what is measured in one counts for the round that goes on after it.
#[test]
fn a_round_goes_on_through_a_repair() {
    let mut sender = Sender::new("illinois", Config::default(), Span::from_millis(BASE)).at(200);
    sender.sample.cwnd_limited = false;
    for rtt in [BASE, 2 * BASE] {
        sender.sample.rtt = Some(Span::from_millis(rtt));
        sender.round();
    }
    // The round before had no queue, and the present one has: a loss takes an eighth yet.
    sender.sample.rtt = Some(Span::from_millis(BASE));
    (0..3).for_each(|_| sender.round());
    let kept = |sender: &Sender| {
        let mut probe = sender.clone();
        let cwnd = f64::from(probe.control.cwnd());
        f64::from(probe.control.on_reduction(&probe.connection, State::Recovery)) / cwnd
    };
    assert!((kept(&sender) - 0.875).abs() < 0.01, "{}", kept(&sender));
    sender.sample.rtt = Some(Span::from_millis(2 * BASE));
    sender.control.set_state(&sender.connection, State::Recovery);
    (0..3).for_each(|_| sender.round());
    assert!((kept(&sender) - 0.875).abs() < 0.01, "{}", kept(&sender));
    sender.control.set_state(&sender.connection, State::Open);
    sender.ack();
    assert!(kept(&sender) < 0.55, "{}", kept(&sender));
}
