use super::*;

const RTT: Span = Span::from_millis(100);

fn westwood() -> Sender {
    Sender::new("westwood", Config::default(), RTT)
}

/// The window when a loss is repaired.
fn after_a_loss(sender: &Sender) -> u32 {
    let mut probe = sender.clone();
    probe.lose();
    probe.control.cwnd()
}

/// Westwood+, section 2: the estimate is a low-pass filter of what is delivered in a round-trip. On a
/// steady path it is the rate, and the threshold the window: nothing is taken for a stray loss.
#[test]
fn on_a_steady_path_a_loss_takes_nothing() {
    let mut sender = westwood().at(100);
    sender.sample.cwnd_limited = false;
    for _ in 0..10 {
        sender.round();
    }
    let left = after_a_loss(&sender);
    assert!((98..=101).contains(&left), "{left}");
}

/// The filter's step response: from one rate to twice the rate, two filters of 7/8 in series are at
/// 1 - (7/8)^n (1 + n/8) of the way after n samples. A sample is taken every other round-trip: when one
/// takes no longer than the last it is too short by a moment.
#[test]
fn the_filter_follows_a_step() {
    let mut sender = westwood().at(100);
    sender.sample.cwnd_limited = false;
    for _ in 0..40 {
        sender.round();
    }
    sender.control.set_cwnd(200);
    let mut before = 100;
    let mut seen = Vec::new();
    for _ in 0..64 {
        sender.round();
        let now = after_a_loss(&sender);
        if now != before {
            seen.push(f64::from(now));
            before = now;
        }
    }
    for (n, seen) in seen.iter().enumerate().take(20) {
        let n = n as f64 + 1.0;
        let expected = 200.0 - 100.0 * 0.875f64.powf(n) * (1.0 + n / 8.0);
        assert!((seen - expected).abs() <= 4.0, "sample {n}: {seen} for {expected}");
    }
    assert!(seen.len() > 15 && seen.last().unwrap() > &180.0, "{seen:?}");
}

/// The queue that a loss was caused by is taken off: the round-trip time that counts is the least.
#[test]
fn a_queue_is_taken_off() {
    let mut sender = westwood().at(100);
    sender.sample.cwnd_limited = false;
    sender.round();
    // Half of the window stands in a queue.
    sender.rtt = RTT * 2;
    sender.sample.rtt = Some(RTT * 2);
    for _ in 0..60 {
        sender.round();
    }
    let left = after_a_loss(&sender);
    assert!((49..=52).contains(&left), "{left}");
}

#[test]
fn before_anything_is_measured_it_is_reno() {
    let mut sender = westwood().at(20);
    assert_eq!(sender.control.on_reduction(&sender.connection, State::Recovery), 10);
}

/// RTTmin is counted in whole ticks of 4 ms: at 1 ms the window after a loss is four times what the path
/// holds.
#[test]
fn a_short_round_trip_counts_as_a_tick() {
    let rtt = Span::from_millis(1);
    let mut sender = Sender::new("westwood", Config::default(), rtt).at(10);
    sender.sample.cwnd_limited = false;
    for _ in 0..200 {
        sender.round();
    }
    let left = after_a_loss(&sender);
    assert!((38..=41).contains(&left), "{left}");
}

/// While the loss is repaired the window is halved.
#[test]
fn a_recovery_halves() {
    let mut sender = westwood().at(100);
    sender.sample.cwnd_limited = false;
    for _ in 0..10 {
        sender.round();
    }
    assert_eq!(sender.control.on_reduction(&sender.connection, State::Recovery), 50);
    // After a timeout it is the threshold that the estimate sets.
    let threshold = sender.control.on_reduction(&sender.connection, State::Loss);
    assert!((95..=101).contains(&threshold), "{threshold}");
}

/// The paper of 2001, AckedCount: duplicate acknowledgements count as a packet each, however many they SACK, and
/// the cumulative one for what they have not told of: nothing is counted twice, and nothing is lost.
#[test]
fn duplicates_count_as_packets() {
    let mut sender = westwood().at(100);
    sender.sample.cwnd_limited = false;
    for _ in 0..60 {
        sender.round();
    }
    // In each window the first packet is lost, 20 duplicates tell of the other 99, and a
    // cumulative acknowledgement follows a round-trip later.
    for _ in 0..60 {
        let una = sender.connection.snd_una;
        sender.sample.acked = 5;
        for _ in 0..20 {
            sender.ack();
            sender.connection.snd_una = una;
        }
        sender.sample.acked = 1;
        sender.connection.snd_una = una + 99 * sender.connection.mss;
        sender.ack();
    }
    let left = after_a_loss(&sender);
    assert!((97..=103).contains(&left), "{left}");
}

/// A kernel tells of the acknowledgement of the SYN before it says that the connection is established, with
/// sequence numbers that begin anywhere: they are no bytes delivered.
#[test]
fn the_handshake_delivers_nothing() {
    let mut sender = westwood().at(100);
    sender.connection.snd_una = 0x8000_0000;
    sender.control.measure(&sender.connection, &Sample { acked: 1, ..sender.sample });
    sender.control.established(&sender.connection);
    sender.sample.cwnd_limited = false;
    for _ in 0..10 {
        sender.round();
    }
    let left = after_a_loss(&sender);
    assert!((95..=101).contains(&left), "{left}");
}
