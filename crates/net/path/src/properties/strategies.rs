//! Elements, chains and arrivals to try.

use midspan_units::{ByteSize, Rate, Share, Span, Time};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::testing::TestPacket;
use crate::{
    AqmSpec, BlockageSpec, ChannelSpec, CodelSpec, Ecn, EcnThresholdSpec, ElementSpec,
    GilbertElliottSpec, LateSpec, LossSpec, MmWaveSpec, Modulation, Node, PolicerSpec, QueueSpec,
    RadioSpec, RateSpec, RedSpec, Retransmit, RlcSpec, StepSpec, Trace, TraceSpec, Traces, Unit,
};

/// A packet that comes so many nanoseconds after the one before.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) gap: Span,
    pub(super) bytes: u32,
    pub(super) same_burst: bool,
    pub(super) ecn: Ecn,
}

prop_compose! {
    pub(super) fn arrival()(
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

pub(super) fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    vec(arrival(), 1..200)
}

pub(super) fn packets(arrivals: &[Arrival]) -> Vec<(Time, TestPacket)> {
    let (mut now, mut burst) = (Time::ZERO, 0);
    let mut packet = |(number, arrival): (usize, &Arrival)| {
        now += arrival.gap;
        burst += u64::from(!arrival.same_burst);
        let packet = TestPacket::new(number as u64, arrival.bytes);
        (now, TestPacket { burst, ecn: arrival.ecn, ..packet })
    };
    arrivals.iter().enumerate().map(&mut packet).collect()
}

pub(super) fn share() -> impl Strategy<Value = Share> {
    prop_oneof![Just(0.0), Just(1.0), 0.0..1.0, 0.0..0.05f64].prop_map(Share::from_fraction)
}

/// Neither all nor nothing.
pub(super) fn some_share() -> impl Strategy<Value = Share> {
    (0.001..0.9f64).prop_map(Share::from_fraction)
}

pub(super) fn span() -> impl Strategy<Value = Span> {
    prop_oneof![Just(0u64), 0..2_000_000u64, Just(1_000_000), 0..80_000_000u64]
        .prop_map(Span::from_nanos)
}

pub(super) fn unit() -> impl Strategy<Value = Unit> {
    prop_oneof![Just(Unit::Packet), Just(Unit::SuperPacket)]
}

pub(super) fn bytes() -> impl Strategy<Value = ByteSize> {
    (1u64..200_000).prop_map(ByteSize::from_bytes)
}

pub(super) fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![100_000u64..10_000_000, 1_000_000u64..10_000_000_000, Just(1_000_000_000)]
        .prop_map(Rate::from_bps)
}

prop_compose! {
    pub(super) fn queue()(
        bytes in prop::option::of(bytes()),
        packets in prop::option::of(1u64..50),
    ) -> QueueSpec {
        QueueSpec { bytes, packets }
    }
}

prop_compose! {
    pub(super) fn red()(
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
    pub(super) fn ecn_threshold()(
        threshold in bytes(),
        weight in some_share(),
        typical_packet in bytes(),
        drop_not_ect: bool,
    ) -> AqmSpec {
        AqmSpec::EcnThreshold(EcnThresholdSpec { threshold, weight, typical_packet, drop_not_ect })
    }
}

prop_compose! {
    pub(super) fn codel()(
        target in 1u64..20_000_000,
        over in 1u64..200_000_000,
        typical_packet in bytes(),
        ecn: bool,
    ) -> AqmSpec {
        let (target, interval) = (Span::from_nanos(target), Span::from_nanos(target + over));
        AqmSpec::Codel(CodelSpec { target, interval, typical_packet, ecn })
    }
}

prop_compose! {
    pub(super) fn step()(delay in 1u64..20_000_000, typical_packet in bytes()) -> AqmSpec {
        AqmSpec::Step(StepSpec { delay: Span::from_nanos(delay), typical_packet })
    }
}

pub(super) fn aqm() -> impl Strategy<Value = Option<AqmSpec>> {
    prop::option::of(prop_oneof![red(), ecn_threshold(), codel(), step()])
}

prop_compose! {
    pub(super) fn rlc()(
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

prop_compose! {
    /// From a channel that loses nothing to one that loses everything.
    pub(super) fn radio()(
        rate in rate(),
        slot in prop::sample::select(vec![125u64, 1_000, 5_000]),
        modulation in prop::sample::select(vec![
            Modulation::Bpsk12, Modulation::Qpsk34, Modulation::Qam6434,
        ]),
        power in -30i32..60,
        speed in 0u64..120,
        retransmissions in 1u32..6,
        buffer in prop::option::of(bytes()),
    ) -> RadioSpec {
        let text = |text: String| toml::from_str::<ChannelSpec>(&text).unwrap();
        let channel = text(format!(
            "frequency = '2.5 GHz'\nbandwidth = '5 MHz'\ndistance = '1 km'\n\
             power = '{power} dBm'\nspeed = '{speed} km/h'"
        ));
        let slot = Span::from_micros(slot);
        RadioSpec { rate, slot, modulation, channel, retransmissions, buffer }
    }
}

prop_compose! {
    pub(super) fn mmwave()(
        enters in prop::sample::select(vec![Node::Master, Node::Secondary]),
        x2 in span(),
        buffer in bytes(),
        failure in prop_oneof![Just(Share::ZERO), some_share()],
        master in rate(),
        distance in 1u64..2000,
        (clear, blocked, switch) in (1u64..50_000_000, 1u64..50_000_000, span()),
        blocks: bool,
    ) -> MmWaveSpec {
        let text = format!(
            "enters = 'master'\nx2 = '0 s'\nbuffer = '1 B'\ndistance = '{distance} m'"
        );
        let (clear, blocked) = (Span::from_nanos(clear), Span::from_nanos(blocked));
        let blockage = blocks.then_some(BlockageSpec { clear, blocked, switch });
        let spec = toml::from_str::<MmWaveSpec>(&text).unwrap();
        MmWaveSpec { enters, x2, buffer, failure, master, blockage, ..spec }
    }
}

prop_compose! {
    fn gilbert_elliott()(
        p in share(),
        r in some_share(),
        loss_good in share(),
        loss_bad in share(),
        step in prop::option::of(1u64..20_000_000),
    ) -> GilbertElliottSpec {
        GilbertElliottSpec { p, r, loss_good, loss_bad, step: step.map(Span::from_nanos) }
    }
}

/// Any element that keeps packets in order.
pub(super) fn orderly() -> impl Strategy<Value = ElementSpec> {
    prop_oneof![
        (rate(), queue(), aqm()).prop_map(|(rate, queue, aqm)| ElementSpec::Rate(RateSpec {
            rate,
            queue,
            aqm
        })),
        span().prop_map(ElementSpec::Delay),
        (share(), unit()).prop_map(|(share, unit)| ElementSpec::Loss(LossSpec { share, unit })),
        gilbert_elliott().prop_map(ElementSpec::GilbertElliott),
        rlc().prop_map(ElementSpec::Rlc),
        radio().prop_map(ElementSpec::Radio),
        mmwave().prop_map(ElementSpec::MmWave),
        (queue(), aqm(), prop::sample::select(vec!["even", "gusty"])).prop_map(
            |(queue, aqm, file)| {
                ElementSpec::Trace(TraceSpec { file: file.to_owned(), queue, aqm })
            }
        ),
        (rate(), bytes())
            .prop_map(|(rate, bucket)| ElementSpec::Policer(PolicerSpec { rate, bucket })),
    ]
}

pub(super) fn late() -> impl Strategy<Value = ElementSpec> {
    (share(), span(), unit())
        .prop_map(|(share, by, unit)| ElementSpec::Late(LateSpec { share, by, unit }))
}

pub(super) fn chain() -> impl Strategy<Value = Vec<ElementSpec>> {
    vec(prop_oneof![4 => orderly(), 1 => late()], 0..5)
}

/// Any element that the checks let through, numbers beyond all reason included.
pub(super) fn odd() -> impl Strategy<Value = ElementSpec> {
    let number = || prop_oneof![0..100u64, any::<u64>(), Just(u64::MAX)];
    let rate = move || number().prop_map(Rate::from_bps);
    let span = move || number().prop_map(Span::from_nanos);
    let bytes = move || number().prop_map(ByteSize::from_bytes);
    let queue = (prop::option::of(bytes()), prop::option::of(number()))
        .prop_map(|(bytes, packets)| QueueSpec { bytes, packets });
    let red = (bytes(), bytes(), share(), share(), bytes(), any::<(bool, bool)>()).prop_map(
        |(min, max, max_p, weight, typical_packet, (gentle, ecn))| {
            AqmSpec::Red(RedSpec { min, max, max_p, weight, typical_packet, gentle, ecn })
        },
    );
    prop_oneof![
        (rate(), queue, prop::option::of(red))
            .prop_map(|(rate, queue, aqm)| ElementSpec::Rate(RateSpec { rate, queue, aqm })),
        span().prop_map(ElementSpec::Delay),
        (share(), span(), unit()).prop_map(|(share, by, unit)| ElementSpec::Late(LateSpec {
            share,
            by,
            unit
        })),
        (rate(), span(), rlc())
            .prop_map(|(rate, status_delay, spec)| RlcSpec { rate, status_delay, ..spec })
            .prop_map(ElementSpec::Rlc),
        (rate(), any::<u32>(), radio())
            .prop_map(|(rate, retransmissions, spec)| RadioSpec { rate, retransmissions, ..spec })
            .prop_map(ElementSpec::Radio),
        (rate(), bytes())
            .prop_map(|(rate, bucket)| ElementSpec::Policer(PolicerSpec { rate, bucket })),
    ]
    .prop_filter("refused", |spec| crate::check(std::slice::from_ref(spec)).is_ok())
}

pub(super) fn traces() -> Traces {
    let trace = |text: &str| Trace::parse(text.as_bytes()).unwrap();
    let gusty = "0\n0\n3\n3\n3\n3\n4\n50\n51\n51\n70\n";
    Traces::from([("even".to_owned(), trace("1\n")), ("gusty".to_owned(), trace(gusty))])
}
