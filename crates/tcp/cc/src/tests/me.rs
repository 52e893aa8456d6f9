//! TCP-ME: table I and the cases of figures 2 and 3.

use midspan_units::Rate;

use super::*;

const RTT: Span = Span::from_millis(100);

fn me() -> Sender {
    Sender::new("me", Config::default(), RTT).at(50)
}

fn rate(sender: &Sender) -> u64 {
    sender.control.pacing_rate().unwrap().as_bps()
}

/// A rate in whole bytes a second.
fn about(rate: u64, bits: u64) -> bool {
    rate.abs_diff(bits) < 16
}

/// Three duplicate acknowledgements with these marks.
fn dupacks(sender: &mut Sender, wla: bool, ece: bool) -> u32 {
    let sample = Sample { wla, ece, cwnd_limited: true, ..Sample::default() };
    sender.acknowledge(&sample);
    sender.reduce(State::Recovery)
}

fn recovered(sender: &mut Sender) {
    // Everything that was sent before is acknowledged.
    sender.connection.snd_una = sender.connection.snd_nxt;
    sender.control.on_reduced(&sender.connection, State::Open);
}

/// Figure 10: the rate starts at 200 kbit/s. SRI() below R_max - epsilon goes beta of the way there, and
/// C beyond; R_max is R_0 at first.
#[test]
fn the_rate_grows_by_c_without_a_limit() {
    let mut sender = me();
    assert!(about(rate(&sender), 200_000));
    sender.ack();
    assert!(about(rate(&sender), 202_000));
    for _ in 0..9 {
        sender.ack();
    }
    assert!(about(rate(&sender), 220_000));
}

/// Figure 3, neither mark: the policer. R_max is where it dropped, R goes to 0.9 of it, then back by
/// 0.15 of the gap a time; the window stays.
#[test]
fn a_loss_without_a_mark_is_the_policers() {
    let mut sender = me();
    for _ in 0..100 {
        sender.ack();
    }
    let cwnd = sender.control.cwnd();
    let highest = rate(&sender);
    assert!(about(highest, 400_000));
    assert_eq!(dupacks(&mut sender, false, false), cwnd);
    assert!(about(rate(&sender), highest * 9 / 10), "{}", rate(&sender));
    recovered(&mut sender);
    sender.ack();
    // 360 + 0.15 x 40 kbit/s.
    assert!(about(rate(&sender), 366_000), "{}", rate(&sender));
    for _ in 0..60 {
        sender.ack();
    }
    assert!(rate(&sender) > highest);
}

/// Figure 3, WLA: the radio. The rate falls, and R_max does not, so it comes back.
#[test]
fn a_loss_with_wla_is_the_radios() {
    let mut sender = me();
    for _ in 0..100 {
        sender.ack();
    }
    dupacks(&mut sender, false, false);
    recovered(&mut sender);
    let (cwnd, r) = (sender.control.cwnd(), rate(&sender));
    assert_eq!(dupacks(&mut sender, true, false), cwnd);
    recovered(&mut sender);
    assert!(rate(&sender) < r);
    // R_max is still 400 kbit/s: within epsilon of it, and C beyond.
    let mut steps = vec![rate(&sender)];
    for _ in 0..60 {
        sender.ack();
        steps.push(rate(&sender));
    }
    let turn = steps.windows(2).position(|pair| pair[1] - pair[0] > 1900 && pair[0] > 399_000);
    assert!(turn.is_some(), "{steps:?}");
}

/// Figure 3, the congestion mark, with WLA or without: New Reno's half, and the rate stays.
#[test]
fn a_loss_with_the_congestion_mark_is_new_renos() {
    for wla in [false, true] {
        let mut sender = me();
        let r = rate(&sender);
        assert_eq!(dupacks(&mut sender, wla, true), 25);
        assert!(about(rate(&sender), r), "{}", rate(&sender));
    }
}

/// Figure 3 again: what congestion did not cause leaves the window to the packets that follow too, which go at
/// the rate, one for each delivered or not.
#[test]
fn a_recovery_without_congestion_leaves_the_window() {
    for wla in [false, true] {
        let mut sender = me();
        sender.acknowledge(&Sample { wla, ..sender.sample });
        sender.control.on_reduction(&sender.connection, State::Recovery);
        let reduced = rate(&sender);
        for in_flight in (10..50).rev() {
            sender.connection.in_flight = in_flight;
            sender.connection.delivered += 1;
            sender.acknowledge(&Sample { prior_in_flight: in_flight + 1, ..sender.sample });
            assert_eq!((sender.control.cwnd(), rate(&sender)), (50, reduced));
        }
        sender.control.on_reduced(&sender.connection, State::Open);
        assert_eq!((sender.control.cwnd(), sender.control.ssthresh()), (50, 50));
    }
}

/// New Reno's reduction is the stack's of other controls, proportional (RFC 9937): one packet is sent for two
/// delivered.
#[test]
fn congestion_takes_the_window_down_to_half() {
    for state in [State::Recovery, State::Cwr] {
        let mut sender = me();
        sender.connection.in_flight = 50;
        sender.acknowledge(&Sample { ece: true, ..sender.sample });
        assert_eq!(sender.control.on_reduction(&sender.connection, state), 25);
        let mut sent = 0;
        for _ in 0..48 {
            sender.connection.delivered += 1;
            sender.connection.in_flight -= 1;
            let prior_in_flight = sender.connection.in_flight + 1;
            sender.acknowledge(&Sample { prior_in_flight, ece: true, ..sender.sample });
            let room = sender.control.cwnd() - sender.connection.in_flight;
            sender.connection.in_flight += room;
            sent += room;
        }
        assert!((23..=25).contains(&sent), "{sent}");
        sender.control.on_reduced(&sender.connection, State::Open);
        assert_eq!(sender.control.cwnd(), 25);
    }
}

/// A loss during ECN's reduction, heard of by an acknowledgement that says nothing of congestion, is the
/// policer's, and does not end that reduction.
#[test]
fn a_loss_does_not_undo_what_ecn_has_begun() {
    let mut sender = me();
    sender.acknowledge(&Sample { ece: true, ..sender.sample });
    sender.control.on_reduction(&sender.connection, State::Cwr);
    let before = rate(&sender);
    sender.connection.snd_una += sender.connection.mss;
    sender.acknowledge(&sender.sample.clone());
    sender.control.set_state(&sender.connection, State::Recovery);
    assert!(rate(&sender) < before);
    assert_eq!(sender.control.ssthresh(), 25);
    sender.control.on_reduced(&sender.connection, State::Open);
    assert_eq!(sender.control.cwnd(), 25);
}

/// Of the duplicate acknowledgements that tell of a loss one that is marked is enough, and marks of
/// before do not count.
#[test]
fn any_of_the_duplicates_may_bear_the_mark() {
    for marked in 0..=3 {
        let mut sender = me();
        sender.sample.wla = true;
        (0..99).for_each(|_| sender.ack());
        sender.sample.wla = false;
        sender.ack();
        for duplicate in 1..=3 {
            let sample = Sample { wla: duplicate == marked, ..Sample::default() };
            sender.acknowledge(&sample);
        }
        sender.reduce(State::Recovery);
        recovered(&mut sender);
        let reduced = rate(&sender);
        sender.ack();
        // The policer's loss has set R_max to 400 kbit/s, 40 above; the radio's leaves it at 200.
        let step = if marked == 0 { 6_000 } else { 2_000 };
        assert!(about(rate(&sender), reduced + step), "{marked}: {reduced}, {}", rate(&sender));
    }
}

/// The acknowledgement that tells of the loss may be the one that bears the mark: it is heard before.
#[test]
fn an_alarm_is_heard_before_its_loss() {
    let mut sender = me();
    (0..100).for_each(|_| sender.ack());
    sender.control.on_alarm(&sender.connection, false);
    sender.reduce(State::Recovery);
    recovered(&mut sender);
    let reduced = rate(&sender);
    sender.ack();
    assert!(about(rate(&sender), reduced + 2_000), "{reduced}, {}", rate(&sender));
}

/// S_rec: a loss of what was sent before the last reduction is no reason for another.
#[test]
fn the_rate_falls_once_for_what_was_in_flight() {
    let mut sender = me();
    dupacks(&mut sender, false, false);
    let reduced = rate(&sender);
    // Recovery ended early, and another packet of that window is missing.
    sender.control.on_reduced(&sender.connection, State::Open);
    dupacks(&mut sender, true, false);
    assert!(rate(&sender) >= reduced, "{} after {reduced}", rate(&sender));
    // One that was sent since is.
    recovered(&mut sender);
    let before = rate(&sender);
    dupacks(&mut sender, true, false);
    assert!(rate(&sender) < before);
}

/// Figure 2: a congestion mark on an acknowledgement holds the rate.
#[test]
fn the_congestion_mark_holds_the_rate() {
    let mut sender = me();
    sender.sample.ece = true;
    sender.ack();
    assert!(about(rate(&sender), 200_000));
}

/// ECN-Echo without loss, and a timeout, are New Reno's.
#[test]
fn timeouts_are_new_renos() {
    for state in [State::Cwr, State::Loss] {
        let mut sender = me();
        let r = rate(&sender);
        assert_eq!(sender.control.on_reduction(&sender.connection, state), 25);
        assert_eq!(rate(&sender), r);
    }
}

#[test]
fn the_first_rate_can_be_chosen() {
    let config = Config { me_initial_rate: Rate::from_bps(1_000_000), ..Config::default() };
    assert_eq!(rate(&Sender::new("me", config, RTT)), 1_000_000);
}
