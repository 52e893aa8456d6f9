//! Whatever is said to a control, it answers with a window and a threshold within bounds, and does
//! not trap: by dividing by zero in any build, by undefined behaviour where debug assertions are on.
//! `PROPTEST_CASES` says how many lives a control is led through.

use std::sync::Arc;

use midspan_units::{ByteSize, Rate};
use proptest::prelude::*;

use super::*;
use crate::external::{Call, Decide, Maker, Window};
use crate::{Feedback, HyStart, Kind, RateSample};

/// Numbers of all sizes, the ends among them.
fn any_word() -> impl Strategy<Value = u32> {
    prop_oneof![
        2 => any::<u32>(),
        4 => (any::<u32>(), 0u32..32).prop_map(|(number, shift)| number >> shift),
        1 => Just(0),
        1 => Just(u32::MAX),
    ]
}

fn any_long() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0u32..64).prop_map(|(number, shift)| number >> shift)
}

#[derive(Debug, Clone)]
enum Step {
    Ack(Sample),
    Reduce(State),
    Reduced,
    Undo,
    SetState(State),
    SetCwnd(u32),
    SetSsthresh(u32),
    Send(Option<Feedback>),
    Start,
    Restart,
}

fn state() -> impl Strategy<Value = State> {
    use State::*;
    prop::sample::select(vec![Open, Disorder, Cwr, Recovery, Loss])
}

fn feedback() -> impl Strategy<Value = Feedback> {
    (any_long(), any_long(), any_word(), any_word(), any_word()).prop_map(
        |(bandwidth, min_rtt, fairness, queue, pace)| Feedback {
            bandwidth: Rate::from_bps(bandwidth),
            min_rtt: Span::from_nanos(min_rtt),
            fairness,
            queue: ByteSize::from_bytes(queue.into()),
            pace,
        },
    )
}

fn sample() -> impl Strategy<Value = Sample> {
    let rate = (any_word(), any_long(), any_word(), any_word(), any_word(), any::<bool>())
        .prop_map(|(delivered, interval, prior_delivered, tx_in_flight, tx_lost, app_limited)| {
            RateSample {
                delivered,
                interval: Span::from_nanos(interval),
                prior_delivered,
                tx_in_flight,
                tx_lost,
                app_limited,
            }
        });
    (
        (any_word(), any_word(), any_word()),
        prop::option::of(any_long()),
        prop::option::of(rate),
        prop::option::of(feedback()),
        any::<[bool; 3]>(),
    )
        .prop_map(|((acked, advanced, prior_in_flight), rtt, rate, feedback, flags)| Sample {
            acked,
            advanced,
            rtt: rtt.map(Span::from_nanos),
            prior_in_flight,
            rate,
            ece: flags[0],
            wla: flags[1],
            cwnd_limited: flags[2],
            feedback,
        })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => sample().prop_map(Step::Ack),
        6 => prop::option::of(feedback()).prop_map(Step::Send),
        2 => state().prop_map(Step::Reduce),
        1 => Just(Step::Reduced),
        1 => Just(Step::Undo),
        1 => state().prop_map(Step::SetState),
        1 => any_word().prop_map(Step::SetCwnd),
        1 => any_word().prop_map(Step::SetSsthresh),
        1 => Just(Step::Start),
        1 => Just(Step::Restart),
    ]
}

fn connection() -> impl Strategy<Value = Connection> {
    (
        (any_long(), any_word(), any_word()),
        [any_word(), any_word(), any_word()],
        (any_word(), any_word(), any_long(), any_long()),
    )
        .prop_map(
            |(
                (now, mss, in_flight),
                [delivered, delivered_ce, lost],
                (snd_una, snd_nxt, srtt, min_rtt),
            )| Connection {
                now: Time::from_nanos(now),
                mss,
                in_flight,
                delivered,
                delivered_ce,
                lost,
                snd_una,
                snd_nxt,
                srtt: Span::from_nanos(srtt),
                min_rtt: Span::from_nanos(min_rtt),
            },
        )
}

fn config() -> impl Strategy<Value = Config> {
    use HyStart::*;
    (prop::sample::select(vec![Off, Classic, PlusPlus]), any::<[bool; 3]>(), any_long()).prop_map(
        |(hystart, cubic, rate)| Config {
            hystart,
            cubic_constant_alpha: cubic[0],
            cubic_counted: cubic[1],
            cubic_fast_convergence: cubic[2],
            me_initial_rate: Rate::from_bps(rate),
        },
    )
}

fn apply(control: &mut Control, connection: &Connection, step: &Step) {
    match step {
        Step::Ack(sample) => {
            control.measure(connection, sample);
            control.on_ack(connection, sample);
        }
        Step::Reduce(state) => {
            control.on_reduction(connection, *state);
        }
        Step::Reduced => control.on_reduced(connection, State::Open),
        Step::Undo => {
            control.on_undo(connection, State::Open);
        }
        Step::SetState(state) => control.set_state(connection, *state),
        Step::SetCwnd(packets) => control.set_cwnd(*packets),
        Step::SetSsthresh(packets) => control.set_ssthresh(*packets),
        Step::Send(feedback) => control.on_send(connection, feedback.as_ref()),
        Step::Start => control.on_transmit_start(connection),
        Step::Restart => control.on_restart(connection),
    }
}

fn check_bounds(control: &Control) {
    assert!((1..=Control::CWND_MOST).contains(&control.cwnd()), "{control:?}");
}

proptest! {
    #[test]
    fn every_answer_is_within_bounds(
        config in config(),
        steps in prop::collection::vec((connection(), step()), 1..60),
    ) {
        for name in crate::names() {
            let mut control = Control::new(name, &config).unwrap();
            control.established(&steps[0].0);
            for (connection, step) in &steps {
                apply(&mut control, connection, step);
                check_bounds(&control);
                if let Step::Reduce(_) = step {
                    prop_assert!(control.ssthresh() >= 2, "{:?}", control);
                }
            }
        }
    }
}

/// A control of the caller's that answers with whatever comes next, over and over.
#[derive(Debug, Clone)]
struct Arbitrary {
    kind: Kind,
    answers: Vec<Window>,
    next: usize,
}

impl Decide for Arbitrary {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn decide(&mut self, window: &mut Window, _: &Connection, _: State, _: Call<'_>) {
        *window = self.answers[self.next % self.answers.len()];
        self.next += 1;
    }
}

fn arbitrary() -> impl Strategy<Value = Arbitrary> {
    let window = (any_word(), any_word(), prop::option::of(any_long())).prop_map(
        |(cwnd, ssthresh, rate)| Window { cwnd, ssthresh, pacing_rate: rate.map(Rate::from_bps) },
    );
    let kind = prop::sample::select(vec![Kind::Window, Kind::Rate]);
    (kind, prop::collection::vec(window, 1..20)).prop_map(|(kind, answers)| Arbitrary {
        kind,
        answers,
        next: 0,
    })
}

proptest! {
    #[test]
    fn so_is_every_answer_of_the_callers(
        control in arbitrary(),
        steps in prop::collection::vec((connection(), step()), 1..60),
    ) {
        let make: Maker = Arc::new(move |_| Box::new(control.clone()));
        let mut control = Control::external("external:any", &make, 1);
        control.established(&steps[0].0);
        for (connection, step) in &steps {
            apply(&mut control, connection, step);
            check_bounds(&control);
            if let Step::Reduce(_) = step {
                prop_assert!(control.ssthresh() >= 1, "{:?}", control);
            }
        }
    }
}

/// A connection at 400 Gbit/s and a round-trip time of 10 s: 345 million packets in flight. It gets
/// there, loses, and comes back, without any number overflowing.
#[test]
fn four_hundred_gigabits_at_ten_seconds() {
    let packets = 345_000_000;
    let rtt = Span::from_secs(10);
    for name in crate::names() {
        let mut sender = Sender::new(name, Config::default(), rtt);
        sender.control.set_cwnd(packets);
        sender.control.set_ssthresh(packets);
        sender.connection.delivered = packets;
        // Aggregates of a million.
        sender.sample.acked = 1_000_000;
        let before = sender.control.cwnd();
        let ssthresh = sender.control.on_reduction(&sender.connection, State::Recovery);
        assert!((before / 4..=before).contains(&ssthresh), "{name}: {ssthresh}");
        sender.control.set_cwnd(ssthresh);
        sender.control.on_reduced(&sender.connection, State::Open);
        for _ in 0..20_000 {
            sender.ack();
            check_bounds(&sender.control);
            assert!(sender.control.cwnd() >= ssthresh / 2, "{name}: {:?}", sender.control);
        }
    }
}
