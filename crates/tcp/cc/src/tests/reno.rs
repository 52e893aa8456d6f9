use super::*;

const RTT: Span = Span::from_millis(100);

#[test]
fn slow_start_doubles_and_avoidance_adds_one() {
    let mut sender = Sender::new("reno", Config::default(), RTT);
    sender.control.set_ssthresh(40);
    let windows: Vec<u32> = std::iter::repeat_with(|| {
        sender.round();
        sender.control.cwnd()
    })
    .take(5)
    .collect();
    assert_eq!(windows, [20, 40, 41, 42, 43]);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut sender = Sender::new("reno", Config::default(), RTT);
    sender.sample.cwnd_limited = false;
    sender.round();
    assert_eq!(sender.control.cwnd(), 10);
}

/// RFC 5681, equation 4, and its floor of two segments.
#[test]
fn half_is_left() {
    for (cwnd, left) in [(100, 50), (5, 2), (3, 2), (1, 2)] {
        let mut sender = Sender::new("reno", Config::default(), RTT).at(cwnd);
        assert_eq!(sender.control.on_reduction(&sender.connection, State::Recovery), left);
    }
}

#[test]
fn a_reduction_that_was_a_mistake_is_undone() {
    let mut sender = Sender::new("reno", Config::default(), RTT).at(100);
    sender.control.on_reduction(&sender.connection, State::Loss);
    sender.control.set_cwnd(1);
    assert_eq!(sender.control.on_undo(&sender.connection, State::Open), 100);
}

/// Nothing grows while the stack reduces.
#[test]
fn recovery_is_the_stacks() {
    let mut sender = Sender::new("reno", Config::default(), RTT).at(100);
    sender.control.on_reduction(&sender.connection, State::Recovery);
    sender.control.set_cwnd(70);
    sender.round();
    assert_eq!((sender.control.cwnd(), sender.control.ssthresh()), (70, 50));
}

/// Mathis, Semke, Mahdavi, Ott, 1997: the window is sqrt(3 / 2p), 1.22 / sqrt(p).
#[test]
fn the_response_function() {
    for (packets, window) in [(100, 12.2), (10_000, 122.0), (1_000_000, 1225.0)] {
        let mean = Sender::new("reno", Config::default(), RTT).at(100).mean_window(packets, 20);
        assert!((mean / window - 1.0).abs() < 0.05, "{mean} for {window}");
    }
}
