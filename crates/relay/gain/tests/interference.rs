//! Split and unsplit transfers that share a link: drawn one by one they are compared with what they slow down.
//!
//! The link is shared by weight, as congestion controls of unequal force share one; on a link of its own neither arm is any
//! faster than the other. So the gain is none, whoever finds one is wrong ("Unbiased experiments in congested networks",
//! IMC 2021).

mod common;

use common::{Random, place};
use midspan_gain::{Arm, Estimator, Id, Observation, Settings, Unit};

/// How much more of a link a split transfer takes than an unsplit one beside it.
const FORCE: f64 = 3.0;
const SUBSCRIBERS: u64 = 60;
const SLOTS: u64 = 60;
/// In seconds.
const SLOT: f64 = 60.0;

#[derive(Debug, Clone, Copy)]
struct Flow {
    begins: f64,
    /// In seconds of the whole link.
    size: f64,
}

/// The pages of one subscriber in one slot: objects of many sizes that are fetched at once.
fn pages(random: &mut Random) -> Vec<Flow> {
    let mut flows = Vec::new();
    let mut at = 4.0;
    while at < SLOT - 20.0 {
        let objects = 2 + random.below(8);
        flows.extend((0..objects).map(|_| Flow { begins: at, size: 0.1 * random.normal().exp() }));
        at += -8.0 * random.uniform().ln();
    }
    flows
}

/// When each ends, where each has of the link what its weight says.
fn ends(flows: &[Flow], weights: &[f64]) -> Vec<f64> {
    let (mut left, mut ends) =
        (flows.iter().map(|flow| flow.size).collect::<Vec<_>>(), vec![0.0; flows.len()]);
    let mut now = 0.0;
    loop {
        let busy: Vec<usize> =
            (0..flows.len()).filter(|&at| flows[at].begins <= now && left[at] > 0.0).collect();
        let next = flows.iter().map(|flow| flow.begins).filter(|&begins| begins > now);
        let next = next.fold(f64::INFINITY, f64::min);
        let all: f64 = busy.iter().map(|&at| weights[at]).sum();
        let first =
            busy.iter().map(|&at| left[at] * all / weights[at]).fold(f64::INFINITY, f64::min);
        let step = first.min(next - now);
        if step.is_infinite() {
            return ends;
        }
        for &at in &busy {
            left[at] -= step * weights[at] / all;
            if left[at] <= 1e-12 {
                (left[at], ends[at]) = (0.0, now + step);
            }
        }
        now += step;
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Drawn {
    EachConnection,
    SubscribersForASlot,
}

fn weight(arm: Arm) -> f64 {
    if arm == Arm::Split { FORCE } else { 1.0 }
}

fn gain(seed: u64, drawn: Drawn) -> midspan_gain::Estimate {
    let mut random = Random::new(seed);
    let mut estimator =
        Estimator::new(Settings { max_clusters: 1_000_000, ..Settings::default() }).unwrap();
    let arm = |random: &mut Random| if random.below(2) == 0 { Arm::Split } else { Arm::Unsplit };
    let mut connections = 0;
    for slot in 0..SLOTS {
        for subscriber in 0..SUBSCRIBERS {
            let flows = pages(&mut random);
            let one = arm(&mut random);
            let arms: Vec<Arm> = flows
                .iter()
                .map(|_| if drawn == Drawn::EachConnection { arm(&mut random) } else { one })
                .collect();
            let weights: Vec<f64> = arms.iter().copied().map(weight).collect();
            for ((flow, end), arm) in flows.iter().zip(ends(&flows, &weights)).zip(arms) {
                connections += 1;
                let unit = match drawn {
                    Drawn::EachConnection => 1_000_000 + connections,
                    Drawn::SubscribersForASlot => subscriber,
                };
                let observation = Observation {
                    place: place(0, 1),
                    subscriber: Id(unit.into()),
                    slot,
                    arm,
                    probability: 0.5,
                    bytes: (flow.size * 1e6) as u64,
                    connect_rtt: 1.0,
                    completion: end - flow.begins,
                };
                estimator.observe(&observation).unwrap();
            }
        }
        estimator.close(slot);
    }
    estimator.estimate(Unit::All).unwrap()
}

#[test]
fn what_shares_a_link_is_drawn_together_or_else_a_gain_is_found_that_is_none() {
    for seed in 1..=if common::all() { 20 } else { 2 } {
        let each = gain(seed, Drawn::EachConnection);
        let together = gain(seed, Drawn::SubscribersForASlot);
        println!("seed {seed}: one by one {:?}, together {:?}", each.interval, together.interval);
        assert!(each.interval.lower > 0.1, "{each:?}");
        assert!(together.interval.contains(0.0), "{together:?}");
        assert!(together.interval.upper < 0.1, "{together:?}");
    }
}

/// Alone on a link an arm is as fast as the other: with all of them the same times come out.
#[test]
fn neither_arm_is_faster_where_all_are_of_it() {
    let flows = pages(&mut Random::new(7));
    let of = |weight: f64| ends(&flows, &vec![weight; flows.len()]);
    let apart = of(1.0).into_iter().zip(of(FORCE)).map(|(one, other)| (one - other).abs());
    assert!(apart.fold(0.0, f64::max) < 1e-9);
    assert!(of(1.0).iter().zip(&flows).all(|(end, flow)| *end >= flow.begins + flow.size - 1e-9));
}
