use super::*;
use crate::HyStart;

const RTT: Span = Span::from_millis(100);

/// As RFC 9438 has it in full.
fn cubic(rtt: Span) -> Sender {
    Sender::new("cubic", Config { cubic_constant_alpha: false, ..Config::default() }, rtt)
}

/// RFC 9438, equation 2: from 700 to a W_max of 1000, K is cbrt(300 / 0.4) = 9.086 s. Equation 1:
/// at half of it the window is 1000 - 300 / 8; 1 s beyond it, one of 1000.4.
#[test]
fn the_curve() {
    let mut sender = cubic(RTT).at(1000);
    sender.lose();
    assert_eq!(sender.control.cwnd(), 700);
    let began = sender.connection.now;
    let mut windows = Vec::new();
    for at in [4.543, 9.086, 10.086, 9.086 + 5.0] {
        while sender.connection.now.since(began).as_secs_f64() < at {
            sender.ack();
        }
        windows.push(sender.control.cwnd());
    }
    // The window follows its target, a round-trip ahead, within a round-trip.
    assert!((958..=964).contains(&windows[0]), "{windows:?}");
    assert!((998..=1000).contains(&windows[1]), "{windows:?}");
    assert!((999..=1001).contains(&windows[2]), "{windows:?}");
    assert!((1048..=1054).contains(&windows[3]), "{windows:?}");
}

/// RFC 9438, section 5.1, table 1, by loss at an RTT of 0.1 s. Its model is one loss whenever the
/// window is back at W_max: from there to there it takes K, delivers 1 / p packets, and the mean
/// window, the table's, is W_max x (3 + beta) / 4.
#[test]
fn the_response_function() {
    for (packets, mean) in [(10_000.0, 187.0), (100_000.0, 1054.0), (1_000_000.0, 5926.0)] {
        let w_max = mean / 0.925;
        let mut sender = cubic(RTT).at(w_max as u32);
        sender.lose();
        let began = sender.connection.now;
        let mut sent = 0.0;
        while sender.connection.now.since(began).as_secs_f64() < f64::cbrt(0.3 * w_max / 0.4) {
            sender.ack();
            sent += 1.0;
        }
        assert!(
            (f64::from(sender.control.cwnd()) / w_max - 1.0).abs() < 0.01,
            "{:?}",
            sender.control
        );
        assert!((sent / packets - 1.0f64).abs() < 0.02, "{sent} for {packets}");
    }
}

/// RFC 9438, section 4.3: where Reno is faster CUBIC has its window.
#[test]
fn as_fast_as_reno_where_that_is_faster() {
    let rtt = Span::from_millis(10);
    for packets in [100, 1000] {
        let reno = Sender::new("reno", Config::default(), rtt).at(100).mean_window(packets, 30);
        let mean = cubic(rtt).at(100).mean_window(packets, 30);
        assert!(mean / reno > 0.9 && mean / reno < 1.4, "{mean} for {reno}");
        let constant =
            Sender::new("cubic", Config::default(), rtt).at(100).mean_window(packets, 30);
        assert!(constant <= mean, "{constant} for {mean}");
    }
}

/// As Linux counts: on long paths about as fast as the RFC, and on one of a millisecond, where the price
/// stays for a 32nd of a second, much slower.
#[test]
fn counting_lags_on_short_paths() {
    let mean = |rtt: u64, counted| {
        let config =
            Config { cubic_constant_alpha: true, cubic_counted: counted, ..Config::default() };
        Sender::new("cubic", config, Span::from_millis(rtt)).at(100).mean_window(200, 60)
    };
    let (short, long) = (mean(1, true) / mean(1, false), mean(100, true) / mean(100, false));
    assert!(short < 0.85 && (0.85..1.05).contains(&long), "{short}, {long}");
}

/// Where it is counted the curve is rounded up below its plateau: after a loss at 10 packets it begins at 7.03,
/// a packet above the window, which that packet brings to 8 in a round-trip. By the RFC it takes longer.
#[test]
fn counting_rounds_up_below_the_plateau() {
    let after_a_round_trip = |counted| {
        let config =
            Config { cubic_constant_alpha: true, cubic_counted: counted, ..Config::default() };
        let mut sender = Sender::new("cubic", config, Span::from_millis(50)).at(10);
        sender.lose();
        (0..8).for_each(|_| sender.ack());
        sender.control.cwnd()
    };
    assert_eq!((after_a_round_trip(true), after_a_round_trip(false)), (8, 7));
}

/// RFC 9438, section 4.7: a W_max that was not reached again is taken back to 0.85 of the window.
#[test]
fn fast_convergence() {
    let mut sender = cubic(RTT).at(1000);
    sender.lose();
    sender.lose();
    assert_eq!(sender.control.cwnd(), 490);
    let began = sender.connection.now;
    // K = cbrt((595 - 490) / 0.4) = 6.40 s.
    while sender.connection.now.since(began).as_secs_f64() < 6.4 {
        sender.ack();
    }
    assert!((593..=596).contains(&sender.control.cwnd()), "{:?}", sender.control);
}

/// RFC 9438, section 5.8: a pause is not time on the curve.
#[test]
fn idle_time_does_not_count() {
    let (mut idle, mut busy) = (cubic(RTT).at(1000), cubic(RTT).at(1000));
    for sender in [&mut idle, &mut busy] {
        sender.lose();
        sender.round();
    }
    let pause = Span::from_secs(100);
    idle.connection.now += pause;
    idle.control.on_transmit_start(&idle.connection);
    for _ in 0..20 {
        idle.round();
        busy.round();
    }
    assert!(idle.control.cwnd().abs_diff(busy.control.cwnd()) <= 1);
}

/// RFC 9438, section 4.9.
#[test]
fn an_undone_reduction_leaves_the_curve() {
    let (mut undone, mut untouched) = (cubic(RTT).at(1000), cubic(RTT).at(1000));
    for sender in [&mut undone, &mut untouched] {
        sender.lose();
        sender.round();
    }
    undone.control.on_reduction(&undone.connection, State::Recovery);
    undone.control.on_undo(&undone.connection, State::Open);
    undone.control.set_ssthresh(700);
    for _ in 0..20 {
        undone.round();
        untouched.round();
    }
    assert!(undone.control.cwnd().abs_diff(untouched.control.cwnd()) <= 1);
}

/// As Linux counts: the window comes back, and stays about where it is, as the curve is flat there.
#[test]
fn counting_takes_back_the_window_alone() {
    let after_an_undo = |counted| {
        let config =
            Config { cubic_constant_alpha: true, cubic_counted: counted, ..Config::default() };
        let mut sender = Sender::new("cubic", config, RTT).at(1000);
        sender.lose();
        (0..20).for_each(|_| sender.round());
        let before = sender.control.cwnd();
        sender.control.on_reduction(&sender.connection, State::Recovery);
        sender.control.set_cwnd(before / 2);
        let undone = sender.control.on_undo(&sender.connection, State::Open);
        assert_eq!(undone, before);
        sender.control.set_cwnd(undone);
        sender.control.set_ssthresh(700);
        (0..10).for_each(|_| sender.round());
        sender.control.cwnd() - before
    };
    let (counted, taken_back) = (after_an_undo(true), after_an_undo(false));
    assert!(counted * 2 < taken_back, "{counted} packets, {taken_back} with the curve");
}

#[test]
fn hystart_leaves_when_the_delay_grows() {
    // From 200 packets on there is a queue: 0.1 ms a packet. Acknowledgements come more than 2 ms
    // apart: no train.
    let queue = |cwnd: u32| {
        Span::from_millis(100) + Span::from_micros(100) * u64::from(cwnd.saturating_sub(200))
    };
    // A threshold of 12.5 ms, 325 packets.
    let classic = slow_start_until("cubic", HyStart::Classic, 16, 10_000, queue);
    assert!((325..=660).contains(&classic), "{classic}");
    // And five rounds in which the window grows by a quarter.
    let plus_plus = slow_start_until("cubic", HyStart::PlusPlus, 16, 10_000, queue);
    assert!((600..=2600).contains(&plus_plus), "{plus_plus}");
    assert_eq!(slow_start_until("cubic", HyStart::Off, 16, 10_000, queue), 10_010);
}

/// A window that a recovery makes small for a while is no slow start of its own.
#[test]
fn hystart_leaves_once_but_for_timeouts() {
    for hystart in [HyStart::Classic, HyStart::PlusPlus] {
        let mut sender = Sender::new("cubic", Config { hystart, ..Config::default() }, RTT);
        sender.sample.acked = 16;
        let mut grows_to = |after: Option<State>| {
            if let Some(state) = after {
                sender.reduce(state);
                sender.control.on_reduced(&sender.connection, State::Open);
                sender.control.set_ssthresh(20_000);
                sender.control.set_cwnd(100);
            }
            while sender.control.in_slow_start() && sender.control.cwnd() < 20_000 {
                let queue = Span::from_micros(100) * u64::from(sender.control.cwnd());
                sender.sample.rtt = Some(RTT + queue);
                sender.ack();
            }
            sender.control.cwnd()
        };
        assert!(grows_to(None) < 3_000, "{hystart:?}");
        assert!(grows_to(Some(State::Recovery)) >= 20_000, "{hystart:?}");
        assert!(grows_to(Some(State::Loss)) < 3_000, "{hystart:?}");
    }
}

/// A reduction is taken back after `acks` acknowledgements in congestion avoidance, and slow start goes on after `pause`: the window
/// at which it is left, where each packet more than 100 waits for 0.1 ms.
fn slow_start_after_a_mistake(acks: u32, pause: Span, counted: bool) -> u32 {
    let rtt = Span::from_millis(10);
    let config = Config { cubic_counted: counted, ..Config::default() };
    let mut sender = Sender::new("cubic", config, rtt);
    sender.sample.acked = 16;
    sender.lose();
    (0..acks).for_each(|_| sender.ack());
    sender.connection.now += pause;
    sender.control.set_ssthresh(Control::SSTHRESH_INFINITE);
    while sender.control.in_slow_start() && sender.control.cwnd() < 5_000 {
        let queue = u64::from(sender.control.cwnd().saturating_sub(100));
        sender.sample.rtt = Some(rtt + Span::from_micros(100) * queue);
        sender.ack();
    }
    sender.control.cwnd()
}

/// Seen of Linux 6.18 behind late packets: where D-SACKs take a reduction back once congestion avoidance has begun, slow start goes on
/// without HyStart.
#[test]
fn hystart_is_deaf_for_a_second_after_congestion_avoidance_began() {
    assert!(slow_start_after_a_mistake(1, Span::ZERO, true) >= 5_000);
    assert!(slow_start_after_a_mistake(0, Span::ZERO, true) < 500);
    assert!(slow_start_after_a_mistake(1, Span::from_secs(1), true) < 500);
    assert!(slow_start_after_a_mistake(1, Span::ZERO, false) < 500);
}

#[test]
fn hystart_leaves_when_acknowledgements_fill_half_a_round_trip() {
    // Spread over the round trip, closer than 2 ms from 50 packets on.
    let classic =
        slow_start_until("cubic", HyStart::Classic, 1, 10_000, |_| Span::from_millis(100));
    assert!((50..=200).contains(&classic), "{classic}");
    assert_eq!(
        slow_start_until("cubic", HyStart::PlusPlus, 1, 10_000, |_| Span::from_millis(100)),
        10_000
    );
}

/// RFC 9406, section 4.2: a delay that passes is no reason to leave slow start.
#[test]
fn hystart_plus_plus_goes_back_when_the_delay_was_a_passing_one() {
    let bump = |cwnd: u32| {
        if (200..500).contains(&cwnd) { Span::from_millis(120) } else { Span::from_millis(100) }
    };
    assert_eq!(slow_start_until("cubic", HyStart::PlusPlus, 1, 20_000, bump), 20_000);
}
