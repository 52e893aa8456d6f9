//! What holds for every chain of elements and every pattern of arrivals.

mod strategies;

use midspan_units::{Rate, Share, Span, Time};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::testing::{TestPacket, drain, micros};
use crate::{
    Direction, ElementSpec, LateSpec, LossSpec, PolicerSpec, QueueSpec, RadioSpec, RateSpec,
    RlcSpec, Trace, TraceSpec, Traces, Unit,
};
use strategies::{
    Arrival, aqm, arrivals, bytes, chain, odd, orderly, packets, queue, radio, rate, rlc, span,
    traces,
};

type Out = Vec<(Time, TestPacket)>;

fn build(specs: &[ElementSpec], seed: u64) -> Direction<TestPacket> {
    Direction::new(specs, &traces(), seed).unwrap()
}

/// Sends everything in and looks for nothing until all is in.
fn cross_unseen(specs: &[ElementSpec], seed: u64, arrivals: &[Arrival]) -> Out {
    let mut direction = build(specs, seed);
    packets(arrivals).into_iter().for_each(|(at, packet)| direction.enqueue(at, packet));
    drain(&mut direction)
}

fn assert_conserved(direction: &Direction<TestPacket>) {
    let counters = direction.counters();
    let accounted = counters.packets_out + counters.packets_queued + counters.packets_dropped();
    assert_eq!(counters.packets_in, accounted, "{counters:?}");
    if counters.packets_queued == 0 {
        assert_eq!(counters.bytes_queued, 0);
    }
    if counters.packets_dropped() == 0 {
        assert_eq!(counters.bytes_in, counters.bytes_out + counters.bytes_queued);
    }
}

/// That no window of `out` carries more than `rate` and a `burst` of bytes.
fn assert_rate(out: &Out, rate: Rate, burst: u64, cost: impl Fn(&TestPacket) -> u64) {
    for first in 0..out.len() {
        let mut bytes = 0;
        for (at, packet) in &out[first..] {
            bytes += cost(packet);
            // A time is rounded up by less than a nanosecond at either end.
            let window = at.since(out[first].0) + Span::from_nanos(1);
            let most = rate.bytes_in(window).as_bytes() + 1 + burst;
            assert!(bytes <= most, "{bytes} bytes in {window}, at most {most}");
        }
    }
}

fn wire(packet: &TestPacket) -> u64 {
    u64::from(packet.bytes)
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for_after_every_step(
        specs in chain(), seed: u64, arrivals in arrivals(), looks in vec(span(), 1..20),
    ) {
        let mut direction = build(&specs, seed);
        let mut looks = looks.iter().cycle();
        for (at, packet) in packets(&arrivals) {
            direction.enqueue(at, packet);
            assert_conserved(&direction);
            let until = at + *looks.next().unwrap();
            if direction.next_event().is_some_and(|event| event <= until) {
                direction.dequeue(at);
                assert_conserved(&direction);
            }
        }
        drain(&mut direction);
        assert_conserved(&direction);
        let counters = direction.counters();
        prop_assert_eq!(counters.packets_queued, 0, "nothing stays inside for ever");
    }

    #[test]
    fn what_comes_out_does_not_depend_on_when_one_looks(
        specs in chain(), seed: u64, arrivals in arrivals(), looks in vec(span(), 1..20),
    ) {
        let unseen = cross_unseen(&specs, seed, &arrivals);
        // Now at each event, at each arrival, and at arbitrary times between.
        let mut direction = build(&specs, seed);
        let mut out = Out::new();
        let mut looks = looks.iter().cycle();
        let mut last = Time::ZERO;
        for (at, packet) in packets(&arrivals) {
            while let Some(event) = direction.next_event().filter(|event| *event < at) {
                let look = (event + *looks.next().unwrap()).min(at);
                out.extend(std::iter::from_fn(|| direction.dequeue(look)));
                last = last.max(look);
            }
            direction.enqueue(at, packet);
            out.extend(direction.dequeue(at));
        }
        out.extend(drain(&mut direction));
        prop_assert_eq!(out, unseen);
    }

    #[test]
    fn departures_are_in_the_order_of_time_and_never_early(
        specs in chain(), seed: u64, arrivals in arrivals(),
    ) {
        let sent = packets(&arrivals);
        let mut direction = build(&specs, seed);
        sent.iter().cloned().for_each(|(at, packet)| direction.enqueue(at, packet));
        let mut last = Time::ZERO;
        while let Some(event) = direction.next_event() {
            // Nothing leaves before the announced event.
            if event > Time::ZERO {
                let before = Time::from_nanos(event.as_nanos() - 1);
                prop_assert_eq!(direction.dequeue(before), None);
            }
            while let Some((at, packet)) = direction.dequeue(event) {
                prop_assert!(at == event && at >= last);
                prop_assert!(at >= sent[packet.number as usize].0);
                last = at;
            }
        }
    }

    #[test]
    fn order_is_kept_where_promised(
        specs in vec(orderly(), 0..5), seed: u64, arrivals in arrivals(),
    ) {
        let out = cross_unseen(&specs, seed, &arrivals);
        prop_assert!(out.is_sorted_by_key(|(_, packet)| packet.number));
    }

    #[test]
    fn the_same_seed_gives_the_same_result(specs in chain(), seed: u64, arrivals in arrivals()) {
        let out = cross_unseen(&specs, seed, &arrivals);
        prop_assert_eq!(out, cross_unseen(&specs, seed, &arrivals));
    }

    #[test]
    fn only_capable_packets_are_marked_and_marks_are_counted(
        queue in queue(), aqm in aqm(), rate in rate(), seed: u64, arrivals in arrivals(),
    ) {
        let mut direction = build(&[ElementSpec::Rate(RateSpec { rate, queue, aqm })], seed);
        let sent = packets(&arrivals);
        sent.iter().cloned().for_each(|(at, packet)| direction.enqueue(at, packet));
        let out = drain(&mut direction);
        let marked =
            out.iter().filter(|(_, packet)| packet.ecn != sent[packet.number as usize].1.ecn);
        prop_assert_eq!(marked.count() as u64, direction.counters().marked);
    }

    #[test]
    fn a_link_never_exceeds_its_rate_and_a_busy_one_keeps_it(
        rate in rate(), queue in queue(), aqm in aqm(), seed: u64, arrivals in arrivals(),
    ) {
        let out = cross_unseen(&[ElementSpec::Rate(RateSpec { rate, queue, aqm })], seed, &arrivals);
        assert_rate(&out, rate, out.iter().map(|(_, packet)| wire(packet)).max().unwrap_or(0), wire);

        let mut busy = build(&[ElementSpec::Rate(RateSpec { rate, queue: QueueSpec::default(), aqm: None })], seed);
        let sent = packets(&arrivals);
        sent.iter().cloned().for_each(|(_, packet)| busy.enqueue(Time::ZERO, packet));
        let bytes = sent.iter().map(|(_, packet)| wire(packet)).sum();
        prop_assert_eq!(drain(&mut busy).last().unwrap().0, Time::ZERO + rate.time_for(bytes));
    }

    #[test]
    fn a_policer_passes_no_more_than_bucket_and_rate(
        rate in rate(), bucket in bytes(), arrivals in arrivals(),
    ) {
        let out = cross_unseen(&[ElementSpec::Policer(PolicerSpec { rate, bucket })], 0, &arrivals);
        assert_rate(&out, rate, bucket.as_bytes(), wire);
    }

    #[test]
    fn a_recorded_link_sends_no_more_than_its_chances(
        gaps in vec(0u32..4, 1..40), arrivals in arrivals(), queue in queue(),
    ) {
        let mut at = 1;
        let chances: Vec<u32> = gaps.iter().map(|gap| { at += gap; at }).collect();
        let text: String = chances.iter().map(|at| format!("{at}\n")).collect();
        let traces = Traces::from([("t".to_owned(), Trace::parse(text.as_bytes()).unwrap())]);
        let spec = TraceSpec { file: "t".to_owned(), queue, aqm: None };
        let mut direction = Direction::new(&[ElementSpec::Trace(spec)], &traces, 0).unwrap();
        packets(&arrivals).into_iter().for_each(|(at, packet)| direction.enqueue(at, packet));
        let out = drain(&mut direction);
        let chances_by = |at: Time| {
            let (millis, period) = (at.as_nanos() / 1_000_000, u64::from(*chances.last().unwrap()));
            let rest = chances.iter().filter(|chance| u64::from(**chance) <= millis % period);
            // The last chance of a round is the first moment of the next.
            millis / period * chances.len() as u64 + rest.count() as u64
        };
        for first in 0..out.len() {
            let before = chances_by(Time::from_nanos(out[first].0.as_nanos() - 1));
            let head = u64::from(out[first].1.bytes) + 4;
            let mut bytes = 0;
            for (at, packet) in &out[first..] {
                bytes += u64::from(packet.bytes) + 4;
                // All but what of the first packet had gone before.
                prop_assert!(bytes <= (chances_by(*at) - before) * 1504 + head);
            }
        }
    }

    #[test]
    fn a_bearer_loses_nothing_and_never_exceeds_its_rate_in_all(
        spec in rlc(), seed: u64, arrivals in arrivals(),
    ) {
        let spec = RlcSpec { buffer: None, ..spec };
        let out = cross_unseen(&[ElementSpec::Rlc(spec)], seed, &arrivals);
        prop_assert_eq!(out.len(), arrivals.len());
        let mut bytes = 0;
        for (at, packet) in &out {
            bytes += wire(packet);
            prop_assert!(bytes <= spec.rate.bytes_in(at.since(Time::ZERO)).as_bytes() + 1);
            prop_assert!(at.as_nanos().is_multiple_of(spec.slot.as_nanos()));
        }
    }

    /// Over a fading channel too; and whole packets are received or lost, none twice.
    #[test]
    fn a_fading_bearer_never_exceeds_its_rate(
        spec in radio(), seed: u64, arrivals in arrivals(),
    ) {
        let spec = RadioSpec { buffer: None, ..spec };
        let mut direction = build(&[ElementSpec::Radio(spec)], seed);
        packets(&arrivals).into_iter().for_each(|(at, packet)| direction.enqueue(at, packet));
        let out = drain(&mut direction);
        let lost = direction.counters().dropped.get("radio").copied().unwrap_or_default();
        prop_assert_eq!(out.len() as u64 + lost, arrivals.len() as u64);
        let mut bytes = 0;
        for (at, packet) in &out {
            bytes += wire(packet);
            prop_assert!(bytes <= spec.rate.bytes_in(at.since(Time::ZERO)).as_bytes() + 1);
            prop_assert!(at.as_nanos().is_multiple_of(spec.slot.as_nanos()));
        }
    }
}

proptest! {
    #[test]
    fn no_number_however_odd_breaks_anything(
        specs in vec(odd(), 0..4),
        arrivals in vec((0..100_000_000u64, 0..65_536u32), 0..20),
    ) {
        let mut direction = build(&specs, 0);
        for (at, bytes) in arrivals {
            direction.enqueue(Time::from_nanos(at), TestPacket::new(0, bytes));
            assert_conserved(&direction);
        }
        for _ in 0..1000 {
            let Some(event) = direction.next_event() else { break };
            direction.dequeue(event);
        }
        assert_conserved(&direction);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn shares_of_loss_and_lateness_are_met(share in 0.0005..0.5f64, seed: u64) {
        const PACKETS: u64 = 100_000;
        let count = |spec: ElementSpec| {
            let mut direction = build(&[spec], seed);
            (0..PACKETS).for_each(|n| direction.enqueue(micros(n), TestPacket::new(n, 1500)));
            let on_time = drain(&mut direction)
                .iter()
                .filter(|(at, packet)| *at == micros(packet.number))
                .count();
            PACKETS as f64 - on_time as f64
        };
        let (unit, by) = (Unit::Packet, Span::from_millis(1));
        let expected = share * PACKETS as f64;
        let deviation = (expected * (1.0 - share)).sqrt();
        let share = Share::from_fraction(share);
        for chosen in [
            count(ElementSpec::Loss(LossSpec { share, unit })),
            count(ElementSpec::Late(LateSpec { share, by, unit })),
        ] {
            prop_assert!((chosen - expected).abs() < 6.0 * deviation, "{chosen} of {expected}");
        }
    }
}
