//! Controls of the caller's, as the stack calls them.

use std::sync::Arc;

use super::*;
use crate::Kind;
use crate::external::{Call, Decide, Maker, Window};

const RTT: Span = Span::from_millis(100);

/// Grows by a packet for each acknowledged, halves, and notes in the threshold by which seed it was made until then.
struct Doubling {
    kind: Kind,
    seed: u64,
    before: u32,
}

impl Decide for Doubling {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn decide(&mut self, window: &mut Window, of: &Connection, state: State, call: Call<'_>) {
        match call {
            Call::Established => window.ssthresh = self.seed as u32,
            Call::Ack(sample) => {
                window.cwnd += sample.acked;
                window.pacing_rate = Some(midspan_units::Rate::from_bps(u64::from(of.mss) * 8));
            }
            Call::Reduction(next) => {
                assert_ne!(next, state);
                self.before = window.cwnd;
                window.ssthresh = window.cwnd / 2;
                // The window is the stack's to change.
                window.cwnd = 0;
            }
            Call::Undo => window.cwnd = self.before,
            Call::Restart => window.cwnd = 0,
            Call::Measure(_) | Call::Reduced | Call::TransmitStart => {}
        }
    }
}

fn sender(kind: Kind) -> Sender {
    let make: Maker = Arc::new(move |seed| Box::new(Doubling { kind, seed, before: 0 }));
    let mut sender = Sender::new("reno", Config::default(), RTT);
    sender.control = Control::external("external:doubling", &make, 77);
    assert_eq!(sender.control.kind(), Kind::Window);
    sender.control.established(&sender.connection);
    sender
}

#[test]
fn it_is_asked_and_its_answers_hold() {
    let mut sender = sender(Kind::Window);
    assert_eq!((sender.control.name(), sender.control.ssthresh()), ("external:doubling", 77));
    sender.round();
    assert_eq!(sender.control.cwnd(), 20);
    assert_eq!(sender.control.pacing_rate().unwrap().as_bps(), 1448 * 8);
    assert_eq!(sender.control.on_reduction(&sender.connection, State::Recovery), 10);
    assert_eq!((sender.control.cwnd(), sender.control.state()), (20, State::Recovery));
    sender.ack();
    assert_eq!(sender.control.cwnd(), 20, "the stack reduces");
    sender.control.set_cwnd(10);
    assert_eq!(sender.control.on_undo(&sender.connection, State::Open), 20);
    sender.control.on_restart(&sender.connection);
    assert_eq!(sender.control.cwnd(), 1, "no window is less");
}

#[test]
fn one_that_owns_the_window_is_asked_in_recovery_too() {
    let mut sender = sender(Kind::Rate);
    assert_eq!(sender.control.kind(), Kind::Rate);
    sender.control.on_reduction(&sender.connection, State::Recovery);
    sender.ack();
    assert_eq!(sender.control.cwnd(), 11);
}

#[test]
fn a_clone_begins_anew() {
    let mut first = sender(Kind::Rate);
    first.round();
    let mut other = first.clone();
    assert_eq!(other.control.kind(), Kind::Window);
    other.control.established(&other.connection);
    assert_eq!((other.control.kind(), other.control.ssthresh()), (Kind::Rate, 77));
}
