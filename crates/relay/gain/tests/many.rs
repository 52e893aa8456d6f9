//! Many prefixes at once: how many of those held for harmed are not.

mod common;

use common::Random;
use midspan_gain::{Mixture, Sequence, discoveries};

const RATE: f64 = 0.05;

/// Of 200 prefixes the first `harmed` are so; the share of false ones among those found by evidence that is looked at
/// until most are found. Also how many were found.
fn false_share(seed: u64, harmed: usize) -> (f64, usize) {
    let mut random = Random::new(seed);
    let mixture = Mixture::tuned(200.0, RATE / 2.0);
    let mut prefixes = vec![Sequence::default(); 200];
    let mut worst = (0.0, 0);
    for look in 0..1_500 {
        // What all have in common, so that they are anything but independent.
        let shared = 0.2 * random.normal();
        for (at, prefix) in prefixes.iter_mut().enumerate() {
            let gain = if at < harmed { -0.5 } else { 0.0 };
            let score = (gain + shared + 2.4 * random.normal()).clamp(-7.0, 7.0) / 8.0;
            prefix.add(score, 1.0, 0.875).unwrap();
        }
        if look % 50 != 0 {
            continue;
        }
        let evidence: Vec<f64> =
            prefixes.iter().map(|prefix| prefix.log_evidence_below(&mixture, 0.0)).collect();
        let found = discoveries(&evidence, RATE);
        let all = found.iter().filter(|&&one| one).count();
        let wrong = found[harmed..].iter().filter(|&&one| one).count();
        worst = (wrong as f64 / all.max(1) as f64, all);
        if harmed > 0 && all - wrong >= (harmed * 9).div_ceil(10) || harmed == 0 && wrong > 0 {
            break;
        }
    }
    worst
}

#[test]
fn of_those_found_few_are_not_harmed() {
    let runs = if common::all() { 1_000 } else { 40 };
    for harmed in [0, 1, 20] {
        let all: Vec<_> = (1..=runs).map(|seed| false_share(seed, harmed)).collect();
        let mean = all.iter().map(|(share, _)| share).sum::<f64>() / runs as f64;
        let found = all.iter().map(|(_, found)| found).sum::<usize>() as f64 / runs as f64;
        println!(
            "{harmed} of 200 harmed: {found:.2} found, of which {:.2} % are not",
            100.0 * mean
        );
        assert!(mean <= RATE, "{harmed}: {mean}");
        assert!(found >= 0.8 * harmed as f64, "{harmed}: {found}");
    }
}
