use super::*;

const RTT: Span = Span::from_millis(10);

/// Rounds of which the part `of` in `parts` packets is marked.
fn rounds(sender: &mut Sender, rounds: u32, of: u32, parts: u32) {
    for _ in 0..rounds {
        for packet in 0..sender.control.cwnd() {
            if packet % parts < of {
                sender.connection.delivered_ce += 1;
            }
            sender.ack();
        }
    }
}

/// alpha in parts of one, by what it takes off a large window.
fn alpha(sender: &Sender) -> f64 {
    let mut probe = sender.control.clone();
    let left = probe.on_reduction(&sender.connection, State::Cwr);
    2.0 - 2.0 * f64::from(left) / f64::from(sender.control.cwnd())
}

fn dctcp() -> Sender {
    let mut sender = Sender::new("dctcp", Config::default(), RTT).at(10_000);
    sender.sample.cwnd_limited = false;
    sender
}

/// RFC 8257, section 3.3: alpha begins at 1, and alpha = alpha (1 - g) + g M with g = 1/16. Without marks
/// it is (15/16)^n after n windows.
#[test]
fn alpha_falls_without_marks() {
    let mut sender = dctcp();
    assert!((alpha(&sender) - 1.0).abs() < 0.001);
    // The first window began before anything was sent.
    rounds(&mut sender, 1, 0, 1);
    for n in [8, 16, 32] {
        let mut sender = sender.clone();
        rounds(&mut sender, n, 0, 1);
        let expected = (15.0f64 / 16.0).powi(n as i32);
        assert!((alpha(&sender) - expected).abs() < 0.07, "{n}: {} for {expected}", alpha(&sender));
    }
    rounds(&mut sender, 200, 0, 1);
    assert!(alpha(&sender) < 0.001, "{}", alpha(&sender));
}

/// It settles at the part that is marked.
#[test]
fn alpha_is_the_part_that_is_marked() {
    for (of, parts) in [(1, 2), (1, 4), (1, 10), (1, 1)] {
        let mut sender = dctcp();
        rounds(&mut sender, 120, of, parts);
        let part = f64::from(of) / f64::from(parts);
        assert!((alpha(&sender) - part).abs() < 0.02, "{} for {part}", alpha(&sender));
    }
}

/// Section 3.5: a loss halves, whatever alpha is.
#[test]
fn loss_halves() {
    for state in [State::Recovery, State::Loss] {
        let mut sender = dctcp();
        rounds(&mut sender, 200, 0, 1);
        assert_eq!(sender.control.on_reduction(&sender.connection, state), 5000);
    }
}
