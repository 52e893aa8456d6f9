//! Random numbers and transfers, the same for the same seed.

#![allow(clippy::disallowed_methods, reason = "tests are longer if asked")]
#![allow(dead_code, unreachable_pub)]

use midspan_gain::{Arm, Decision, Id, Observation, Place};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Whether the long tests run too.
pub fn all() -> bool {
    std::env::var_os("MIDSPAN_TEST_ALL").is_some()
}

pub struct Random(Xoshiro256PlusPlus);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub fn draw(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Above 0 and below 1.
    pub fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    pub fn below(&mut self, count: u64) -> u64 {
        self.0.next_u64() % count
    }

    /// Standard normal, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Pareto of least value one; of infinite variance where `shape` is 2 or less.
    pub fn pareto(&mut self, shape: f64) -> f64 {
        self.uniform().powf(-1.0 / shape)
    }
}

/// How times scatter, as the logarithm of a factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noise {
    /// Normal logarithms, so that times are log-normal.
    Gaussian(f64),
    /// Logarithms that are log-normal themselves.
    LogNormal,
    /// Logarithms that are Pareto, of infinite variance.
    Pareto,
}

impl Noise {
    pub const ALL: [Noise; 3] = [Noise::Gaussian(1.2), Noise::LogNormal, Noise::Pareto];

    pub fn draw(self, random: &mut Random) -> f64 {
        match self {
            Noise::Gaussian(deviation) => deviation * random.normal(),
            Noise::LogNormal => random.normal().exp(),
            Noise::Pareto => random.pareto(1.5),
        }
    }
}

pub fn place(group: u64, service: u64) -> Place {
    Place {
        group: Id(group.into()),
        service: Id(service.into()),
        prefix: Id(u128::from(service / 10)),
    }
}

/// One transfer: how long it takes goes by size, round trip and arm, and by `noise` on the logarithm.
pub fn transfer(
    place: Place,
    (subscriber, slot): (u64, u64),
    (decision, arm): (Decision, Arm),
    (gain, noise): (f64, f64),
    random: &mut Random,
) -> Observation {
    let bytes = (1e4 * random.pareto(1.2)).min(1e8) as u64;
    let connect_rtt = 0.03 * (0.5 * random.normal()).exp();
    let faster = if arm == Arm::Split { gain } else { 0.0 };
    let logarithm = 0.6 * (bytes as f64 / 1e4).ln() + 0.8 * connect_rtt.ln() + noise - faster;
    Observation {
        place,
        subscriber: Id(subscriber.into()),
        slot,
        arm,
        probability: decision.probability(arm),
        bytes,
        connect_rtt,
        completion: logarithm.exp(),
    }
}
