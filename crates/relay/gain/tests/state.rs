//! What holds of every estimator, whatever it is told: bounds, probabilities, what is remembered.

mod common;

use common::{Random, place, transfer};
use midspan_gain::{
    Arm, Decision, Estimator, Id, Observation, Reason, Refused, Settings, SizeClass, State,
    StateError, Taken, Unit,
};
use proptest::prelude::*;

/// Something that may be told, more or less likely to be sensible.
fn observation() -> impl Strategy<Value = Observation> {
    let number = prop_oneof![
        8 => 1e-3..10.0f64,
        1 => any::<f64>(),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, -f64::INFINITY, 0.0, -1.0, 1e-308, f64::MAX]),
    ];
    let probability = prop_oneof![8 => 0.01..0.99f64, 1 => any::<f64>(), 1 => Just(1.0)];
    let place = (0..3u64, 0..12u64).prop_map(|(group, service)| place(group, service));
    let arm = prop_oneof![Just(Arm::Split), Just(Arm::Unsplit)];
    let bytes = prop_oneof![9 => 1..1_000_000u64, 1 => any::<u64>()];
    (place, 0..20u128, 0..30u64, arm, probability, bytes, number.clone(), number).prop_map(
        |(place, subscriber, slot, arm, probability, bytes, connect_rtt, completion)| Observation {
            place,
            subscriber: Id(subscriber),
            slot,
            arm,
            probability,
            bytes,
            connect_rtt,
            completion,
        },
    )
}

/// Transfers as they come, of which each closes the slots that are two before its own.
fn fed(observations: &[Observation]) -> Estimator {
    let mut estimator = Estimator::new(Settings::default()).unwrap();
    feed(&mut estimator, observations);
    estimator
}

fn feed(estimator: &mut Estimator, observations: &[Observation]) {
    for observation in observations {
        _ = estimator.observe(observation);
        if let Some(before) = observation.slot.checked_sub(2) {
            estimator.close(before);
        }
    }
}

fn decisions(estimator: &Estimator) -> Vec<Decision> {
    (0..36).map(|at| estimator.decision(place(at % 3, at / 3))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if common::all() { 2000 } else { 60 }))]

    #[test]
    fn whatever_is_told_bounds_are_ordered_and_both_arms_are_drawn(
        observations in prop::collection::vec(observation(), 0..400),
    ) {
        let estimator = fed(&observations);
        let settings = Settings::default();
        for estimate in estimator.estimates() {
            let interval = estimate.interval;
            prop_assert!(interval.lower < interval.upper, "{estimate:?}");
            prop_assert!(interval.contains(estimate.gain), "{estimate:?}");
            prop_assert!(estimate.weight > 0.0 && estimate.weight.is_finite());
            for class in SizeClass::ALL {
                let of_class = estimator.of_class(estimate.unit, class).unwrap();
                prop_assert!(of_class.lower < of_class.upper);
            }
        }
        for decision in decisions(&estimator) {
            prop_assert!(settings.explore <= decision.split && decision.split <= 1.0 - settings.holdout);
        }
        let counts = estimator.counts();
        let told = counts.counted + counts.learned + counts.late + counts.full + counts.refused;
        prop_assert_eq!(told, observations.len() as u64);
        let refused = observations.iter().filter(|one| one.check().is_err()).count();
        prop_assert_eq!(counts.refused, refused as u64);
    }

    /// Written down and read again, as TOML and as JSON, it is the same, says the same, and goes on in the same way.
    #[test]
    fn what_is_remembered_survives_a_restart(
        before in prop::collection::vec(observation(), 0..300),
        after in prop::collection::vec(observation(), 0..100),
    ) {
        let mut estimator = fed(&before);
        estimator.close(30);
        estimator.pin(Unit::Place(place(1, 1)), Some(Arm::Unsplit));
        estimator.pin(Unit::All, Some(Arm::Split));
        estimator.pin(Unit::All, None);
        let state = estimator.state();
        let from_toml: State = toml::from_str(&toml::to_string(&state).unwrap()).unwrap();
        let from_json: State = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
        prop_assert_eq!(&from_toml, &state);
        // As it is used here the JSON library reads numbers with the last bit wrong at times.
        let from_json = Estimator::restore(Settings::default(), from_json).unwrap();
        for (read, kept) in from_json.estimates().zip(estimator.estimates()) {
            prop_assert!((read.gain - kept.gain).abs() < 1e-9);
            prop_assert!((read.interval.lower - kept.interval.lower).abs() < 1e-9);
        }
        let mut restored = Estimator::restore(Settings::default(), from_toml).unwrap();
        prop_assert_eq!(restored.state(), state);
        prop_assert_eq!(decisions(&restored), decisions(&estimator));
        let later: Vec<_> = after.iter().map(|one| Observation { slot: one.slot + 31, ..*one }).collect();
        feed(&mut estimator, &later);
        feed(&mut restored, &later);
        prop_assert_eq!(restored.state(), estimator.state());
        prop_assert_eq!(decisions(&restored), decisions(&estimator));
    }

    /// In which order the transfers of a slot are told of changes nothing but rounding.
    #[test]
    fn the_order_within_a_slot_does_not_matter(
        mut observations in prop::collection::vec(observation(), 50..200), seed in any::<u64>(),
    ) {
        let sane = |one: &Observation| one.check().is_ok() && one.completion < 1e3 && one.connect_rtt < 1e3;
        observations.retain(sane);
        let estimator = |slots: &[Vec<Observation>]| {
            let mut estimator = Estimator::new(Settings::default()).unwrap();
            for (slot, observations) in (0..).zip(slots) {
                for one in observations {
                    estimator.observe(&Observation { slot, ..*one }).unwrap();
                }
                estimator.close(slot);
            }
            estimator
        };
        let mut shuffled = observations.clone();
        let mut random = Random::new(seed);
        (1..shuffled.len()).for_each(|at| shuffled.swap(at, random.below(at as u64 + 1) as usize));
        let a = estimator(&[observations.clone(), observations.clone(), observations]);
        let b = estimator(&[shuffled.clone(), shuffled.clone(), shuffled]);
        for (a, b) in a.estimates().zip(b.estimates()) {
            prop_assert_eq!(a.unit, b.unit);
            prop_assert!((a.gain - b.gain).abs() < 1e-6 && (a.interval.lower - b.interval.lower).abs() < 1e-6);
        }
    }
}

fn some(slot: u64, arm: Arm) -> Observation {
    let mut random = Random::new(slot);
    let estimator = Estimator::new(Settings::default()).unwrap();
    let decision = estimator.decision(place(1, 1));
    transfer(place(1, 1), (slot, slot), (decision, arm), (0.0, 0.0), &mut random)
}

#[test]
fn what_cannot_have_been_is_refused_by_name() {
    let mut estimator = Estimator::new(Settings::default()).unwrap();
    let fine = some(1, Arm::Split);
    for probability in [0.0, 1.0, 1e-300, -0.5, f64::NAN, f64::INFINITY] {
        let refused = estimator.observe(&Observation { probability, ..fine });
        assert!(matches!(refused, Err(Refused::Probability(_))), "{refused:?}");
    }
    for time in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = estimator.observe(&Observation { connect_rtt: time, ..fine });
        assert!(matches!(refused, Err(Refused::ConnectRtt(_))), "{refused:?}");
        let refused = estimator.observe(&Observation { completion: time, ..fine });
        assert!(matches!(refused, Err(Refused::Completion(_))), "{refused:?}");
    }
    assert_eq!(estimator.counts().refused, 14);
    assert_eq!(estimator.estimates().count(), 0);
    let error = estimator.observe(&Observation { completion: f64::NAN, ..fine }).unwrap_err();
    assert_eq!(error.to_string(), "a transfer that took NaN s: must be above 0 and finite");
}

#[test]
fn what_comes_after_its_slot_was_closed_is_counted_as_late() {
    let mut estimator = Estimator::new(Settings::default()).unwrap();
    assert_eq!(estimator.observe(&some(5, Arm::Split)), Ok(Taken::Learned));
    estimator.close(5);
    assert_eq!(estimator.observe(&some(5, Arm::Split)), Ok(Taken::Late));
    assert_eq!(estimator.observe(&some(4, Arm::Split)), Ok(Taken::Late));
    // Closing what is closed opens nothing.
    estimator.close(3);
    assert_eq!(estimator.observe(&some(4, Arm::Split)), Ok(Taken::Late));
    assert_eq!(estimator.observe(&some(6, Arm::Split)), Ok(Taken::Learned));
    assert_eq!(estimator.counts().late, 3);
    // What was open at a restart is late: of it the slow would be left.
    let mut restored = Estimator::restore(Settings::default(), estimator.state()).unwrap();
    assert_eq!(restored.observe(&some(6, Arm::Split)), Ok(Taken::Late));
    assert_eq!(restored.observe(&some(7, Arm::Split)), Ok(Taken::Learned));
}

#[test]
fn memory_has_limits() {
    let settings = Settings { max_units: 3, max_clusters: 2, ..Settings::default() };
    let mut estimator = Estimator::new(settings).unwrap();
    (0..30).for_each(|slot| _ = estimator.observe(&some(slot, Arm::Split)).unwrap());
    estimator.close(29);
    let mut taken = (30..33).map(|slot| estimator.observe(&some(slot, Arm::Split)).unwrap());
    assert_eq!(taken.by_ref().collect::<Vec<_>>(), [Taken::Counted, Taken::Counted, Taken::Full]);
    estimator.close(33);
    assert_eq!(estimator.observe(&some(34, Arm::Split)), Ok(Taken::Counted));
    // All, the prefix and the service; the place finds no room.
    assert_eq!(estimator.estimates().count(), 3);
    assert_eq!(estimator.estimate(Unit::Place(place(1, 1))), None);
    assert!(estimator.counts().without_unit > 0);
    estimator.forget(1_000);
    assert_eq!(estimator.estimates().count(), 0);
    // Slots that nobody closes.
    let mut estimator = Estimator::new(Settings::default()).unwrap();
    let mut taken = (0..1_001).map(|slot| estimator.observe(&some(slot, Arm::Split)).unwrap());
    assert!(taken.by_ref().take(1_000).all(|taken| taken == Taken::Learned));
    assert_eq!(taken.next(), Some(Taken::Full));
}

#[test]
fn what_is_pinned_is_not_decided() {
    let mut estimator = Estimator::new(Settings::default()).unwrap();
    let (here, near) = (place(1, 1), place(2, 1));
    for (arm, split) in [(Arm::Split, 1.0), (Arm::Unsplit, 0.0)] {
        estimator.pin(Unit::Place(here), Some(arm));
        let decision = estimator.decision(here);
        assert_eq!((decision.split, decision.reason), (split, Reason::Pinned(arm)));
        assert!([0, 1, u32::MAX].iter().all(|&draw| decision.arm(draw) == arm));
        assert!(matches!(estimator.decision(near).reason, Reason::Unknown(_)));
    }
    let service = Unit::Service { service: here.service, prefix: here.prefix };
    estimator.pin(service, Some(Arm::Split));
    assert_eq!(estimator.decision(here).reason, Reason::Pinned(Arm::Unsplit));
    assert_eq!(estimator.decision(near).reason, Reason::Pinned(Arm::Split));
    estimator.pin(Unit::Place(here), None);
    assert_eq!(estimator.decision(here).reason, Reason::Pinned(Arm::Split));
    estimator.pin(service, None);
    assert!(matches!(estimator.decision(here).reason, Reason::Unknown(_)));
}

#[test]
fn a_state_is_readable_and_a_broken_one_is_refused() {
    let mut estimator = Estimator::new(Settings::default()).unwrap();
    for slot in 0..60 {
        let arm = if slot % 2 == 0 { Arm::Split } else { Arm::Unsplit };
        estimator.observe(&some(slot, arm)).unwrap();
        estimator.close(slot);
    }
    let text = toml::to_string(&estimator.state()).unwrap();
    assert!(text.starts_with("version = 1\nclosed = 59\n"), "{text}");
    let restore =
        |text: &str| Estimator::restore(Settings::default(), toml::from_str(text).unwrap());
    assert!(restore(&text).is_ok());
    let newer = restore(&text.replacen("version = 1", "version = 2", 1)).unwrap_err();
    assert_eq!(newer.to_string(), "a state of version 2: must be 1");
    let at = text.find("squares = ").unwrap();
    let end = at + text[at..].find('\n').unwrap();
    for squares in ["nan", "-1.0", "1e300"] {
        let broken = format!("{}squares = {squares}{}", &text[..at], &text[end..]);
        assert!(matches!(restore(&broken), Err(StateError::Unit(_))), "{squares}");
    }
    assert!(toml::from_str::<State>(&format!("colour = 1\n{text}")).is_err());
}

/// Prior expectation alone moves exploring, and no farther than a quarter.
#[test]
fn exploring_begins_with_what_is_expected() {
    let split = |prior_gain, prior_weight| {
        let settings = Settings { prior_gain, prior_weight, ..Settings::default() };
        Estimator::new(settings).unwrap().decision(place(1, 1)).split
    };
    assert_eq!(split(0.0, 100.0), 0.5);
    assert!(split(0.05, 100.0) > split(0.05, 10.0) && split(0.05, 10.0) > 0.5);
    assert_eq!((split(1.0, 1e6), split(-1.0, 1e6)), (0.75, 0.25));
}
