//! What holds for every chain of elements and every pattern of arrivals.

use midspan_units::{ByteSize, Rate, Share, Span, Time};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::testing::{TestPacket, drain, micros};
use crate::{
    AqmSpec, Direction, Ecn, EcnThresholdSpec, ElementSpec, GilbertElliottSpec, LateSpec, LossSpec,
    PolicerSpec, QueueSpec, RateSpec, RedSpec, Retransmit, RlcSpec, Trace, TraceSpec, Traces, Unit,
};

type Out = Vec<(Time, TestPacket)>;

/// A packet that comes so many nanoseconds after the one before.
#[derive(Debug, Clone)]
struct Arrival {
    gap: Span,
    bytes: u32,
    same_burst: bool,
    ecn: Ecn,
}

prop_compose! {
    fn arrival()(
        gap in prop_oneof![
            Just(0u64), 0..20_000u64, 0..3_000_000u64, Just(1_000_000), 0..60_000_000u64,
        ],
        bytes in prop_oneof![Just(1500u32), Just(40), 28..9000u32],
        same_burst: bool,
        ecn in prop::sample::select(vec![Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce]),
    ) -> Arrival {
        Arrival { gap: Span::from_nanos(gap), bytes, same_burst, ecn }
    }
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    vec(arrival(), 1..200)
}

fn packets(arrivals: &[Arrival]) -> Vec<(Time, TestPacket)> {
    let (mut now, mut burst) = (Time::ZERO, 0);
    let mut packet = |(number, arrival): (usize, &Arrival)| {
        now += arrival.gap;
        burst += u64::from(!arrival.same_burst);
        let packet = TestPacket::new(number as u64, arrival.bytes);
        (now, TestPacket { burst, ecn: arrival.ecn, ..packet })
    };
    arrivals.iter().enumerate().map(&mut packet).collect()
}

fn share() -> impl Strategy<Value = Share> {
    prop_oneof![Just(0.0), Just(1.0), 0.0..1.0, 0.0..0.05f64].prop_map(Share::from_fraction)
}

/// Neither all nor nothing.
fn some_share() -> impl Strategy<Value = Share> {
    (0.001..0.9f64).prop_map(Share::from_fraction)
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![Just(0u64), 0..2_000_000u64, Just(1_000_000), 0..80_000_000u64]
        .prop_map(Span::from_nanos)
}

fn unit() -> impl Strategy<Value = Unit> {
    prop_oneof![Just(Unit::Packet), Just(Unit::SuperPacket)]
}

fn bytes() -> impl Strategy<Value = ByteSize> {
    (1u64..200_000).prop_map(ByteSize::from_bytes)
}

fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![100_000u64..10_000_000, 1_000_000u64..10_000_000_000, Just(1_000_000_000)]
        .prop_map(Rate::from_bps)
}

prop_compose! {
    fn queue()(
        bytes in prop::option::of(bytes()),
        packets in prop::option::of(1u64..50),
    ) -> QueueSpec {
        QueueSpec { bytes, packets }
    }
}

prop_compose! {
    fn red()(
        min in bytes(),
        over in bytes(),
        (max_p, weight) in (some_share(), some_share()),
        typical_packet in bytes(),
        (gentle, ecn) in any::<(bool, bool)>(),
    ) -> AqmSpec {
        let max = ByteSize::from_bytes(min.as_bytes() + over.as_bytes());
        AqmSpec::Red(RedSpec { min, max, max_p, weight, typical_packet, gentle, ecn })
    }
}

prop_compose! {
    fn ecn_threshold()(
        threshold in bytes(),
        weight in some_share(),
        typical_packet in bytes(),
        drop_not_ect: bool,
    ) -> AqmSpec {
        AqmSpec::EcnThreshold(EcnThresholdSpec { threshold, weight, typical_packet, drop_not_ect })
    }
}

fn aqm() -> impl Strategy<Value = Option<AqmSpec>> {
    prop::option::of(prop_oneof![red(), ecn_threshold()])
}

prop_compose! {
    fn rlc()(
        rate in rate(),
        slot in prop::sample::select(vec![125u64, 500, 1_000, 10_000]),
        failure in prop_oneof![Just(Share::ZERO), some_share()],
        retransmit in prop::sample::select(vec![Retransmit::Slot, Retransmit::Frame]),
        transmissions in 1u32..5,
        status_delay in span(),
        buffer in prop::option::of(bytes()),
    ) -> RlcSpec {
        let slot = Span::from_micros(slot);
        RlcSpec { rate, slot, failure, retransmit, transmissions, status_delay, buffer }
    }
}

/// Any element that keeps packets in order.
fn orderly() -> impl Strategy<Value = ElementSpec> {
    prop_oneof![
        (rate(), queue(), aqm()).prop_map(|(rate, queue, aqm)| ElementSpec::Rate(RateSpec {
            rate,
            queue,
            aqm
        })),
        span().prop_map(ElementSpec::Delay),
        (share(), unit()).prop_map(|(share, unit)| ElementSpec::Loss(LossSpec { share, unit })),
        (share(), some_share(), share(), share()).prop_map(|(p, r, loss_good, loss_bad)| {
            ElementSpec::GilbertElliott(GilbertElliottSpec { p, r, loss_good, loss_bad })
        }),
        rlc().prop_map(ElementSpec::Rlc),
        (queue(), aqm(), prop::sample::select(vec!["even", "gusty"])).prop_map(
            |(queue, aqm, file)| {
                ElementSpec::Trace(TraceSpec { file: file.to_owned(), queue, aqm })
            }
        ),
        (rate(), bytes())
            .prop_map(|(rate, bucket)| ElementSpec::Policer(PolicerSpec { rate, bucket })),
    ]
}

fn late() -> impl Strategy<Value = ElementSpec> {
    (share(), span(), unit())
        .prop_map(|(share, by, unit)| ElementSpec::Late(LateSpec { share, by, unit }))
}

fn chain() -> impl Strategy<Value = Vec<ElementSpec>> {
    vec(prop_oneof![4 => orderly(), 1 => late()], 0..5)
}

fn traces() -> Traces {
    let trace = |text: &str| Trace::parse(text.as_bytes()).unwrap();
    let gusty = "0\n0\n3\n3\n3\n3\n4\n50\n51\n51\n70\n";
    Traces::from([("even".to_owned(), trace("1\n")), ("gusty".to_owned(), trace(gusty))])
}

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
