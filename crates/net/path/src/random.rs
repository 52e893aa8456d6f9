use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The random numbers of one element: the same on every machine for the same seed and position.
#[derive(Debug, Clone)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream of the element at `position` of a direction seeded with `seed`. Streams of
    /// different positions do not overlap.
    pub(crate) fn new(seed: u64, position: usize) -> Self {
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..position).for_each(|_| generator.long_jump());
        Random(generator)
    }

    /// A uniformly random 32-bit number, as [`midspan_units::Share::takes`] wants it.
    pub(crate) fn draw(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A seed for a part that has streams of its own.
    pub(crate) fn seed(&mut self) -> u64 {
        self.0.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_are_the_same_on_every_machine() {
        let mut first = Random::new(1, 0);
        let mut second = Random::new(1, 1);
        assert_eq!(
            [first.draw(), first.draw(), second.draw()],
            [3_485_847_679, 3_208_790_322, 3_336_631_250]
        );
    }
}
