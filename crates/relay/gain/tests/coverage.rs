//! Bounds that hold however often one looks: looked at after every score, and given up at the first look at which they
//! exclude the truth.

mod common;

use common::{Noise, Random, place, transfer};
use midspan_gain::{Estimator, Mixture, Observation, Sequence, Settings, Unit};

const ERROR: f64 = 0.05;
const CLIP: f64 = 3.0;

/// Who is given which arm.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Draw {
    /// One half.
    Even,
    /// By what the mean of those before says, between 5 and 95 %.
    Adaptive,
    /// One half, by clusters of 1 to 20 transfers that have something in common.
    Clustered,
}

/// Whether a sequence of inverse-probability-weighted scores ever excluded the truth.
fn ever_excludes(seed: u64, (noise, draw): (Noise, Draw), gain: f64, truth: f64) -> bool {
    let mut random = Random::new(seed);
    let mixture = Mixture::tuned(200.0, ERROR / 2.0);
    let mut sequence = Sequence::default();
    let scores = if common::all() { 5_000 } else { 2_000 };
    (0..scores).any(|_| {
        let split = match draw {
            Draw::Adaptive => (0.5 + 20.0 * sequence.mean()).clamp(0.05, 0.95),
            _ => 0.5,
        };
        let (members, shared) = match draw {
            Draw::Clustered => (1 + random.below(20), random.normal()),
            _ => (1, 0.0),
        };
        let is_split = random.uniform() < split;
        let weight = 2.0 * split.min(1.0 - split);
        let score = |random: &mut Random| {
            let slower = noise.draw(random) + shared;
            match is_split {
                true => -(slower - gain).clamp(-CLIP, CLIP) / split,
                false => slower.clamp(-CLIP, CLIP) / (1.0 - split),
            }
        };
        let mean = (0..members).map(|_| score(&mut random)).sum::<f64>() / members as f64;
        sequence.add((mean * weight / 8.0).clamp(-0.75, 0.75), weight, 0.75).unwrap();
        let threshold = (2.0 / ERROR).ln();
        sequence.log_evidence_above(&mixture, truth / 8.0) >= threshold
            || sequence.log_evidence_below(&mixture, truth / 8.0) >= threshold
    })
}

/// What it is for: an interval made for one look, looked at after every score, claims an effect that is none most of
/// the time.
#[test]
fn intervals_for_one_look_do_not() {
    let relays = 200;
    let claims = |seed: &u64| {
        let mut random = Random::new(*seed);
        let (mut sum, mut squares) = (0.0, 0.0);
        (1..=2_000).any(|count| {
            let score: f64 = random.normal();
            sum += score;
            squares += score * score;
            count >= 50 && sum.abs() > 1.96 * squares.sqrt()
        })
    };
    let wrong = (1..=relays).filter(claims).count();
    println!("1.96 standard errors, looked at after every score: {wrong} of {relays} ever wrong");
    assert!(wrong as f64 > 0.2 * relays as f64, "{wrong}");
}

/// The difference of clipped means, by the draw.
fn truth((noise, draw): (Noise, Draw), gain: f64) -> f64 {
    let mut random = Random::new(0);
    let count = 2_000_000;
    let one = |random: &mut Random| {
        let shared = if draw == Draw::Clustered { random.normal() } else { 0.0 };
        let slower = noise.draw(random) + shared;
        slower.clamp(-CLIP, CLIP) - (slower - gain).clamp(-CLIP, CLIP)
    };
    (0..count).map(|_| one(&mut random)).sum::<f64>() / f64::from(count)
}

#[test]
fn sequences_cover_under_optional_stopping() {
    let relays = if common::all() { 2_000 } else { 400 };
    for noise in Noise::ALL {
        for draw in [Draw::Even, Draw::Adaptive, Draw::Clustered] {
            for gain in [0.0, 0.3] {
                let truth = truth((noise, draw), gain);
                let wrong = (1..=relays)
                    .filter(|&seed| ever_excludes(seed, (noise, draw), gain, truth))
                    .count();
                println!(
                    "{noise:?} {draw:?} gain {gain} (clipped {truth:.3}): {wrong} of {relays} ever wrong"
                );
                assert!(
                    wrong as f64 <= ERROR * relays as f64,
                    "{noise:?} {draw:?} {gain}: {wrong}"
                );
            }
        }
    }
}

/// What a relay without effect claims at any time: an effect by its bounds, harm by its decision.
fn claims(seed: u64, noise: Noise, flows: u64) -> bool {
    let mut random = Random::new(seed);
    let mut estimator = Estimator::new(Settings::default()).unwrap();
    let here = place(1, 1);
    let usual = noise.draw(&mut random);
    (0..flows).any(|slot| {
        let decision = estimator.decision(here);
        let arm = decision.arm(random.draw());
        let noise = noise.draw(&mut random) + usual;
        let observation =
            transfer(here, (random.below(20), slot), (decision, arm), (0.0, noise), &mut random);
        // Tails so heavy pass what a number can be.
        let observation =
            Observation { completion: observation.completion.clamp(1e-9, 1e9), ..observation };
        estimator.observe(&observation).unwrap();
        estimator.close(slot);
        let all = estimator.estimate(Unit::Place(here));
        all.is_some_and(|all| !all.interval.contains(0.0))
    })
}

/// The whole way, with regression, windows and probabilities that follow from what came out, looking after every flow.
#[test]
fn relays_without_effect_claim_none() {
    let (relays, flows) = if common::all() { (10_000, 400) } else { (200, 300) };
    let mut wrong = 0;
    for relay in 1..=relays {
        let noise = Noise::ALL[relay as usize % Noise::ALL.len()];
        wrong += u64::from(claims(relay, noise, flows));
    }
    println!("{wrong} of {relays} relays without effect ever claimed one in {flows} flows");
    assert!(wrong as f64 <= ERROR * relays as f64, "{wrong}");
}
