//! One service among fifty that splitting makes twice as slow, from some time on and until some other.

mod common;

use std::collections::BTreeSet;

use common::{Noise, Random, place, transfer};
use midspan_gain::{Arm, Decision, Estimator, Place, Reason, Settings, Unit};

const SERVICES: u64 = 50;
const GROUPS: u64 = 8;
const SUBSCRIBERS: u64 = 40;
const FLOWS_PER_SLOT: u64 = 1_000;
const HARMED: u64 = 17;

/// Fifty services of which most gain 10 % and all some, for eight groups of clients.
struct World {
    random: Random,
    estimator: Estimator,
    slot: u64,
    gains: Vec<f64>,
    usual: Vec<f64>,
    tally: Tally,
    /// Those of which bounds were wrong at some time.
    missed: BTreeSet<u64>,
}

/// What came of the flows of the service in question, and of all others.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    /// Of the service.
    flows: u64,
    /// Of them given the arm that is worse for it.
    worse: u64,
    /// Of all others.
    others: u64,
    /// Of them not split, though they gain.
    others_unsplit: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let gains = (0..SERVICES).map(|_| 0.05 + 0.1 * random.uniform()).collect();
        let usual = (0..SERVICES).map(|_| 0.7 * random.normal()).collect();
        let settings = Settings { prior_gain: 0.05, ..Settings::default() };
        let estimator = Estimator::new(settings).unwrap();
        World {
            random,
            estimator,
            slot: 0,
            gains,
            usual,
            tally: Tally::default(),
            missed: BTreeSet::new(),
        }
    }

    /// Flows of one slot: those of a subscriber have one draw and something in common.
    fn step(&mut self) {
        let decisions: Vec<Decision> =
            places().map(|place| self.estimator.decision(place)).collect();
        let subscribers =
            (0..GROUPS * SUBSCRIBERS).map(|_| (self.random.draw(), 0.3 * self.random.normal()));
        let subscribers: Vec<(u32, f64)> = subscribers.collect();
        for _ in 0..FLOWS_PER_SLOT {
            let (service, subscriber) =
                (self.random.below(SERVICES), self.random.below(GROUPS * SUBSCRIBERS));
            let group = subscriber / SUBSCRIBERS;
            let decision = decisions[(service * GROUPS + group) as usize];
            let (draw, shared) = subscribers[subscriber as usize];
            let arm = decision.arm(draw);
            let gain = self.gains[service as usize];
            let own = Noise::Gaussian(1.16).draw(&mut self.random);
            let noise = self.usual[service as usize] + shared + own;
            let observation = transfer(
                place(group, service),
                (subscriber, self.slot),
                (decision, arm),
                (gain, noise),
                &mut self.random,
            );
            self.estimator.observe(&observation).unwrap();
            self.count(service, arm);
        }
        self.estimator.close(self.slot);
        self.slot += 1;
    }

    fn count(&mut self, service: u64, arm: Arm) {
        let tally = &mut self.tally;
        if service == HARMED {
            tally.flows += 1;
            let better = if self.gains[HARMED as usize] > 0.0 { Arm::Split } else { Arm::Unsplit };
            tally.worse += u64::from(arm != better);
        } else {
            tally.others += 1;
            tally.others_unsplit += u64::from(arm == Arm::Unsplit);
        }
    }

    /// Steps until this holds of all groups with the service. None of the others' may ever be held for harmed.
    fn until(&mut self, holds: impl Fn(&Decision) -> bool, most: u64) -> Tally {
        self.tally = Tally::default();
        while !(0..GROUPS).all(|group| holds(&self.estimator.decision(place(group, HARMED)))) {
            self.step();
            self.nobody_else_is_harmed();
            assert!(self.tally.flows < most, "{:?} {:?}", self.tally, self.told());
        }
        self.tally
    }

    fn run(&mut self, slots: u64) -> Tally {
        self.tally = Tally::default();
        for _ in 0..slots {
            self.step();
            self.nobody_else_is_harmed();
        }
        self.tally
    }

    fn nobody_else_is_harmed(&mut self) {
        for place in places().filter(|place| place.service.0 != u128::from(HARMED)) {
            let decision = self.estimator.decision(place);
            assert!(!is_harm(&decision), "slot {}: {place:?} {decision:?}", self.slot);
        }
        for service in (0..SERVICES).filter(|&service| service != HARMED) {
            let interval = self.estimator.estimate(of(service)).map(|one| one.interval);
            if interval.is_some_and(|interval| !interval.contains(self.gains[service as usize])) {
                self.missed.insert(service);
            }
        }
    }

    fn told(&self) -> Vec<Decision> {
        (0..GROUPS).map(|group| self.estimator.decision(place(group, HARMED))).collect()
    }
}

fn places() -> impl Iterator<Item = Place> {
    (0..SERVICES).flat_map(|service| (0..GROUPS).map(move |group| place(group, service)))
}

fn of(service: u64) -> Unit {
    let place = place(0, service);
    Unit::Service { service: place.service, prefix: place.prefix }
}

fn is_harm(decision: &Decision) -> bool {
    matches!(decision.reason, Reason::Harm(_))
}

/// Harmed since it was first seen.
#[test]
fn a_harmed_service_passes_after_few_flows() {
    for seed in 1..=if common::all() { 20 } else { 3 } {
        let mut world = World::new(seed);
        world.gains[HARMED as usize] = -(2f64.ln());
        let found = world.until(is_harm, 2_000);
        println!("seed {seed}: unsplit after {found:?}");
    }
}

/// Good for long, then harmed, then good again.
#[test]
fn harm_that_begins_is_noticed_and_so_is_its_end() {
    for seed in 1..=if common::all() { 5 } else { 1 } {
        let mut world = World::new(seed);
        let good = world.run(150);
        println!("seed {seed}: while good {good:?}");
        let gain = std::mem::replace(&mut world.gains[HARMED as usize], -(2f64.ln()));
        let found = world.until(is_harm, 2_000);
        println!("seed {seed}: unsplit after {found:?}");
        let harmed = world.run(if common::all() { 1_500 } else { 150 });
        println!("seed {seed}: while harmed {harmed:?}");
        assert!((harmed.worse as f64) < 0.1 * harmed.flows as f64, "{harmed:?}");
        world.gains[HARMED as usize] = gain;
        let explored = world.until(|decision| !is_harm(decision), 20_000);
        let split = world.until(|decision| matches!(decision.reason, Reason::Fine(_)), 40_000);
        println!("seed {seed}: its end noticed after {explored:?}, split again after {split:?}");
        println!("seed {seed}: bounds ever wrong of services {:?}", world.missed);
        assert!(world.missed.len() as u64 <= SERVICES / 20, "{:?}", world.missed);
        assert!(world.estimator.changes(of(HARMED)) > 0);
    }
}
