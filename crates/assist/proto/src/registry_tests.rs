use proptest::prelude::*;

use super::*;
use crate::{Causal, LinkReading};
use midspan_units::Rate;

const PERIOD: Span = Span::from_millis(50);
const SOURCE: SourceId = SourceId(0);
const ME: SessionId = SessionId(1);

fn ue(last: u8) -> IpAddr {
    IpAddr::from([10, 45, 0, last])
}

fn rights(prefix: &str) -> Rights {
    Rights { may_ask: vec![prefix.parse().unwrap()], ..Rights::default() }
}

fn reading(at: Time, bits: u64) -> Reading<Causal> {
    let link = LinkReading { capacity: Some(Rate::from_bps(bits)), ..LinkReading::default() };
    Reading::passed(at, PERIOD, link, link)
}

fn registry() -> Registry<Causal> {
    let mut registry = Registry::new(EstimatorConfig::default(), Limits::default());
    registry.open(ME, rights("10.45.0.0/24"));
    registry
}

fn register(registration: u32, ue: IpAddr) -> ToDaemon {
    ToDaemon::Register { registration, ue, period: PERIOD }
}

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

fn drain(registry: &mut Registry<Causal>, now: Time) -> Vec<(SessionId, FeedbackDatagram)> {
    std::iter::from_fn(|| registry.poll(now))
        .map(|due| (due.session, FeedbackDatagram::parse(&due.datagram).unwrap()))
        .collect()
}

#[test]
fn feedback_is_repeated_as_long_as_there_is_something_fresh() {
    let mut registry = registry();
    let answer = registry.handle(ME, register(3, ue(2)), at(0));
    assert_eq!(answer, Some(ToSender::Registered { registration: 3, period: PERIOD }));
    assert_eq!(registry.next_due(), None);
    registry.observe(SOURCE, ue(2), &reading(at(10), 8_000_000), at(10));
    let mut sent = Vec::new();
    while let Some(due) = registry.next_due() {
        sent.extend(drain(&mut registry, due).iter().map(|(_, feedback)| (due, feedback.age)));
    }
    // The last measurement is told until it is too old, and its age with it.
    let ages = (0..10).map(|repeat| Span::from_micros(62_500) * repeat);
    let expected: Vec<_> = ages.map(|age| (at(10) + age, age)).collect();
    assert_eq!(sent, expected);
    assert_eq!(registry.counts().stale, 1);
    registry.observe(SOURCE, ue(2), &reading(at(900), 8_000_000), at(900));
    assert_eq!(drain(&mut registry, at(900)).len(), 1);
}

#[test]
fn feedback_falls_into_step_with_its_source() {
    let mut registry = registry();
    registry.handle(ME, register(3, ue(2)), at(0));
    // A source whose clock runs a little fast.
    let mut ages = Vec::new();
    let mut sent = 0;
    for now in 0..2_000 {
        if now % 48 == 0 {
            registry.observe(SOURCE, ue(2), &reading(at(now), 8_000_000), at(now));
        }
        for (_, feedback) in drain(&mut registry, at(now)) {
            ages.push(feedback.age);
            sent += 1;
        }
    }
    assert_eq!(ages.iter().max(), Some(&Span::ZERO));
    assert_eq!(sent, 2_000 / 48 + 1);
}

#[test]
fn a_measurement_that_is_a_little_late_is_told_at_once() {
    let mut registry = registry();
    registry.handle(ME, register(3, ue(2)), at(0));
    let jitter = [0, 9, 0, 3, 10, 1];
    let measured: Vec<u64> = (0u64..).zip(jitter).map(|(turn, late)| turn * 50 + late).collect();
    let mut sent = Vec::new();
    for now in 0..=measured[measured.len() - 1] {
        if measured.contains(&now) {
            registry.observe(SOURCE, ue(2), &reading(at(now), 8_000_000), at(now));
        }
        sent.extend(drain(&mut registry, at(now)).iter().map(|_| now));
    }
    assert_eq!(sent, measured);
}

#[test]
fn a_source_that_is_much_faster_does_not_make_feedback_faster() {
    let mut registry = registry();
    registry.handle(ME, register(3, ue(2)), at(0));
    let mut times = Vec::new();
    for now in 0..1_000 {
        registry.observe(SOURCE, ue(2), &reading(at(now), 8_000_000), at(now));
        times.extend(drain(&mut registry, at(now)).iter().map(|_| now));
    }
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Three quarters of 50 ms.
    assert!(gaps.iter().all(|gap| *gap == 38), "{gaps:?}");
}

#[test]
fn a_server_gets_nothing_for_ues_that_it_may_not_ask_about() {
    let mut registry = registry();
    let foreign = "10.46.0.2".parse().unwrap();
    registry.observe(SOURCE, foreign, &reading(at(0), 8_000_000), at(0));
    let refused = ToSender::Refused { registration: 3, reason: Reason::NotAllowed };
    assert_eq!(registry.handle(ME, register(3, foreign), at(0)), Some(refused));
    assert_eq!(drain(&mut registry, at(1_000)), []);
    assert_eq!(registry.counts().refused_not_allowed, 1);
    // And no flows may be reported without the right to.
    let report = ToDaemon::Flows { ue: ue(2), flows: 2 };
    let refused = ToSender::Refused { registration: 0, reason: Reason::NotAllowed };
    assert_eq!(registry.handle(ME, report, at(0)), Some(refused));
}

#[test]
fn rights_that_are_taken_away_end_registrations() {
    let mut registry = registry();
    registry.handle(ME, register(3, ue(2)), at(0));
    registry.handle(ME, register(4, ue(200)), at(0));
    for last in [2, 200] {
        registry.observe(SOURCE, ue(last), &reading(at(0), 8_000_000), at(0));
    }
    let refused = registry.set_rights(ME, rights("10.45.0.0/25"));
    assert_eq!(refused, [ToSender::Refused { registration: 4, reason: Reason::NotAllowed }]);
    let told: Vec<u32> =
        drain(&mut registry, at(0)).iter().map(|(_, feedback)| feedback.registration).collect();
    assert_eq!(told, [3]);
}

#[test]
fn the_ues_own_count_of_flows_reaches_its_senders() {
    let mut registry = registry();
    let phone = SessionId(2);
    registry.open(
        phone,
        Rights { may_report: vec!["10.45.0.2/32".parse().unwrap()], ..Rights::default() },
    );
    registry.handle(ME, register(3, ue(2)), at(0));
    registry.observe(SOURCE, ue(2), &reading(at(0), 8_000_000), at(0));
    assert_eq!(registry.handle(phone, ToDaemon::Flows { ue: ue(2), flows: 4 }, at(0)), None);
    let told = drain(&mut registry, at(0))[0].1.fairness;
    assert_eq!(told, Coefficient::of_flows(4));
    registry.close(phone);
    registry.observe(SOURCE, ue(2), &reading(at(50), 8_000_000), at(50));
    assert_eq!(drain(&mut registry, at(50))[0].1.fairness, None);
}

/// Section 2.4: "no context-switching happens" at a handover.
#[test]
fn a_ue_that_comes_from_elsewhere_is_picked_up_without_state() {
    let (mut old, mut new) = (registry(), registry());
    old.handle(ME, register(3, ue(2)), at(0));
    new.handle(ME, register(3, ue(2)), at(0));
    old.observe(SOURCE, ue(2), &reading(at(0), 8_000_000), at(0));
    assert_eq!((drain(&mut old, at(0)).len(), drain(&mut new, at(0)).len()), (1, 0));
    // It moves: the first reading at the new base station is told at once and in full.
    new.observe(SOURCE, ue(2), &reading(at(20), 90_000_000), at(20));
    let told = drain(&mut new, at(20));
    assert_eq!(told[0].1.bandwidth, Rate::from_bps(90_000_000));
    assert_eq!(drain(&mut old, at(601)).len(), 0);
}

#[test]
fn another_source_means_another_link() {
    let mut registry = registry();
    registry.handle(ME, register(3, ue(2)), at(0));
    registry.observe(SOURCE, ue(2), &reading(at(0), 1_000_000), at(0));
    // From the same source this would be clipped as a jump.
    registry.observe(SourceId(1), ue(2), &reading(at(40), 90_000_000), at(40));
    assert_eq!(registry.counts().clipped_jump, 0);
    registry.forget_source(SOURCE);
    assert_eq!(drain(&mut registry, at(40))[0].1.bandwidth, Rate::from_bps(90_000_000));
    registry.forget_source(SourceId(1));
    assert_eq!(drain(&mut registry, at(200)), []);
}

#[test]
fn a_source_on_probation_is_checked_and_told_to_nobody() {
    let mut registry = registry();
    registry.handle(ME, register(3, ue(2)), at(0));
    registry.withhold(SOURCE, true);
    registry.observe(SOURCE, ue(2), &reading(at(0), 20_000_000), at(0));
    let clip = registry.observe(SOURCE, ue(2), &reading(at(0), 900_000_000), at(0));
    assert_eq!((clip, drain(&mut registry, at(0))), (Some(Clip::Jump), Vec::new()));
    registry.withhold(SOURCE, false);
    registry.observe(SOURCE, ue(2), &reading(at(50), 20_000_000), at(50));
    assert_eq!(drain(&mut registry, at(50)).len(), 1);
}

#[test]
fn limits_hold_and_what_ends_makes_room() {
    let limits =
        Limits { registrations_per_peer: 2, registrations: 3, ues: 4, ..Limits::default() };
    let mut registry: Registry<Causal> = Registry::new(EstimatorConfig::default(), limits);
    let other = SessionId(2);
    for id in [ME, other] {
        registry.open(id, rights("10.45.0.0/24"));
    }
    let mut ask = |id, number| {
        let answer = registry.handle(id, register(number, ue(number as u8)), at(0));
        matches!(answer, Some(ToSender::Registered { .. }))
    };
    assert_eq!([ask(ME, 1), ask(ME, 2), ask(ME, 3), ask(ME, 2)], [true, true, false, true]);
    assert_eq!([ask(other, 4), ask(other, 5)], [true, false]);
    registry.close(ME);
    assert!(matches!(
        registry.handle(other, register(5, ue(5)), at(0)),
        Some(ToSender::Registered { .. })
    ));
    // UEs in sources beyond the limit are not taken in.
    for last in 10..20 {
        registry.observe(SOURCE, ue(last), &reading(at(0), 8_000_000), at(0));
    }
    assert_eq!(registry.counts().refused_ues, 8);
    registry.tidy(at(10_000));
    assert_eq!(registry.ues(at(10_000)).count(), 2);
}

#[test]
fn a_number_that_is_registered_again_goes_on_counting() {
    let mut registry = registry();
    registry.handle(ME, register(3, ue(2)), at(0));
    let sequence = |registry: &mut Registry<Causal>, now| {
        registry.observe(SOURCE, ue(2), &reading(now, 8_000_000), now);
        registry.observe(SOURCE, ue(5), &reading(now, 8_000_000), now);
        drain(registry, now)[0].1.sequence
    };
    assert_eq!([sequence(&mut registry, at(0)), sequence(&mut registry, at(50))], [0, 1]);
    registry.handle(ME, ToDaemon::Withdraw { registration: 3 }, at(60));
    registry.handle(ME, register(3, ue(5)), at(70));
    assert_eq!(sequence(&mut registry, at(100)), 2);
}

#[derive(Debug, Clone)]
enum Step {
    Open(u64),
    Close(u64),
    Register(u64, u32, u8),
    Withdraw(u64, u32),
    Read(u32, u8, u64),
    Forget(u32),
    Restrict(u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u64..3).prop_map(Step::Open),
        (0u64..3).prop_map(Step::Close),
        (0u64..3, 0u32..4, 0u8..6).prop_map(|(id, number, ue)| Step::Register(id, number, ue)),
        (0u64..3, 0u32..4).prop_map(|(id, number)| Step::Withdraw(id, number)),
        (0u32..2, 0u8..6, any::<u64>()).prop_map(|(source, ue, bits)| Step::Read(source, ue, bits)),
        (0u32..2).prop_map(Step::Forget),
        (0u64..3).prop_map(Step::Restrict),
        (0u64..120).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever happens, nobody is told what it did not ask for or may not know, no sequence number
    /// comes twice, no registration is served faster than three quarters of its period, and nothing
    /// too old is sent.
    #[test]
    fn nobody_is_told_what_it_should_not_be(steps in prop::collection::vec(step(), 1..300)) {
        let limits = Limits { registrations_per_peer: 3, registrations: 6, ues: 5, ..Limits::default() };
        let mut registry: Registry<Causal> = Registry::new(EstimatorConfig::default(), limits);
        let mut now = at(0);
        let mut wanted: BTreeMap<(u64, u32), IpAddr> = BTreeMap::new();
        let mut open = std::collections::BTreeMap::new();
        let mut last: BTreeMap<(u64, u32), (u64, Time)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Open(id) => {
                    if let std::collections::btree_map::Entry::Vacant(vacant) = open.entry(id) {
                        vacant.insert(true);
                        registry.open(SessionId(id), rights("10.45.0.0/24"));
                        last.retain(|(session, _), _| *session != id);
                    }
                }
                Step::Close(id) => {
                    registry.close(SessionId(id));
                    open.remove(&id);
                    wanted.retain(|(session, _), _| *session != id);
                }
                Step::Register(id, number, last_byte) => {
                    let answer = registry.handle(SessionId(id), register(number, ue(last_byte)), now);
                    if matches!(answer, Some(ToSender::Registered { .. })) {
                        prop_assert_eq!(open.get(&id), Some(&true));
                        wanted.insert((id, number), ue(last_byte));
                        if let Some((_, sent)) = last.get_mut(&(id, number)) {
                            *sent = Time::ZERO;
                        }
                    } else if open.get(&id) == Some(&true) {
                        wanted.remove(&(id, number));
                    }
                }
                Step::Withdraw(id, number) => {
                    registry.handle(SessionId(id), ToDaemon::Withdraw { registration: number }, now);
                    wanted.remove(&(id, number));
                }
                Step::Read(source, last_byte, bits) => {
                    registry.observe(SourceId(source), ue(last_byte), &reading(now, bits), now);
                }
                Step::Forget(source) => registry.forget_source(SourceId(source)),
                Step::Restrict(id) => {
                    registry.set_rights(SessionId(id), Rights::default());
                    open.entry(id).and_modify(|may| *may = false);
                    wanted.retain(|(session, _), _| *session != id);
                }
                Step::Wait(millis) => now += Span::from_millis(millis),
            }
            for (session, feedback) in drain(&mut registry, now) {
                let key = (session.0, feedback.registration);
                prop_assert_eq!(wanted.get(&key), Some(&feedback.ue));
                prop_assert!(feedback.age <= Limits::default().stale);
                if let Some((sequence, sent)) = last.insert(key, (feedback.sequence, now)) {
                    prop_assert!(feedback.sequence > sequence);
                    prop_assert!(sent == Time::ZERO || now.since(sent) >= PERIOD * 3 / 4);
                }
            }
            prop_assert!(registry.registrations.len() <= 6);
            prop_assert!(registry.next_due().is_none_or(|due| due > now));
        }
    }
}

#[test]
fn a_peers_sessions_share_its_quota() {
    let limits = Limits {
        sessions_per_peer: 2,
        registrations_per_peer: 3,
        registrations: 4,
        ..Limits::default()
    };
    let mut registry = Registry::<Causal>::new(EstimatorConfig::default(), limits);
    let all = || rights("10.45.0.0/24");
    let [first, second, third] = [1, 2, 3].map(SessionId);
    assert!(registry.open_of(first, "greedy", all()));
    assert!(registry.open_of(second, "greedy", all()));
    assert!(!registry.open_of(third, "greedy", all()));
    assert!(registry.open_of(SessionId(9), "good", all()));
    let mut may = |id, number| {
        let answer = registry.handle(id, register(number, ue(number as u8)), at(0));
        matches!(answer, Some(ToSender::Registered { .. }))
    };
    assert_eq!([2, 3].map(|number| may(first, number)), [true, true]);
    assert_eq!([4, 5].map(|number| may(second, number)), [true, false]);
    assert!(may(SessionId(9), 2));
    registry.close(second);
    assert!(registry.open_of(third, "greedy", all()));
    let answer = registry.handle(third, register(1, ue(6)), at(0));
    assert!(matches!(answer, Some(ToSender::Registered { .. })));
}

#[test]
fn a_ue_is_registered_once_a_session() {
    let mut registry = registry();
    for number in 0..1_000 {
        registry.handle(ME, register(number, ue(2)), at(0));
    }
    assert_eq!(registry.registrations_of(ME), 1);
    registry.observe(SOURCE, ue(2), &reading(at(0), 8_000_000), at(0));
    let sent = drain(&mut registry, at(0));
    assert_eq!(sent.iter().map(|(_, feedback)| feedback.registration).collect::<Vec<_>>(), [999]);
}

/// A daemon for which a datagram costs 5 us, with a hundred good senders, and beside them one that wants all
/// that it can ask for as often as it can.
#[test]
fn one_that_wants_all_is_in_nobodys_way() {
    let limits = Limits { datagrams_per_peer: 100_000, ..Limits::default() };
    let mut registry = Registry::<Causal>::new(EstimatorConfig::default(), limits);
    let ue = |number: u32| IpAddr::from((0x0a2d_0000u32 + number).to_be_bytes());
    for good in 0..100 {
        let id = SessionId(good);
        assert!(registry.open_of(id, &format!("good {good}"), rights("10.45.0.0/16")));
        for number in 0..10 {
            registry.handle(id, register(number, ue(good as u32 * 10 + number)), at(0));
        }
    }
    for session in 1_000..1_003 {
        assert!(registry.open_of(SessionId(session), "greedy", rights("10.45.0.0/16")));
        for number in 0..20_000 {
            let register = ToDaemon::Register {
                registration: number,
                ue: ue(number),
                period: Span::from_millis(10),
            };
            registry.handle(SessionId(session), register, at(0));
        }
    }
    let (mut now, mut slice) = (at(0), 0);
    let (mut late, mut greedy) = (Vec::new(), 0);
    let end = at(2_000);
    while now < end {
        // Each millisecond the base station tells of another fiftieth of all UEs.
        while now >= at(slice) {
            for number in (slice as u32 % 50..20_000).step_by(50) {
                registry.observe(SOURCE, ue(number), &reading(at(slice), 8_000_000), now);
            }
            slice += 1;
        }
        match registry.poll(now) {
            Some(due) => {
                now += Span::from_micros(5);
                let good = due.session.0 < 100;
                if good {
                    late.push(due.late);
                }
                greedy += u64::from(!good);
            }
            None => now = registry.next_due().unwrap_or(end).max(now).min(at(slice)),
        }
    }
    late.sort_unstable();
    // 1,000 a period.
    assert!(late.len() >= 39_000, "{}", late.len());
    let percentile = late[late.len() * 99 / 100];
    assert!(percentile < Span::from_millis(2), "{percentile:?}");
    // Two seconds' worth, and the burst.
    assert!(greedy <= 2 * 100_000 + 10_000, "{greedy}");
}
