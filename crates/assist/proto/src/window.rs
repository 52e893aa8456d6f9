/// What a sequence number is to a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Higher than any before.
    Newest,
    /// Not seen before, but a higher one was: overtaken on the way.
    Late,
    /// Seen before.
    Replayed,
    /// So far behind the highest that nobody remembers whether it was seen.
    Forgotten,
}

/// The sequence numbers that were seen lately: the anti-replay window of RFC 4303, section 3.4.3,
/// 64 numbers wide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    highest: Option<u64>,
    /// Bit n: `highest - n` was seen.
    seen: u64,
}

impl Window {
    /// How far behind the highest a number may be and still be told from a replayed one.
    pub const WIDTH: u64 = 64;

    /// The highest number so far.
    pub fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// Notes `sequence` and says what it is.
    pub fn note(&mut self, sequence: u64) -> Seen {
        let Some(highest) = self.highest else {
            *self = Window { highest: Some(sequence), seen: 1 };
            return Seen::Newest;
        };
        if let Some(ahead) = sequence.checked_sub(highest).filter(|ahead| *ahead > 0) {
            self.seen = if ahead < Self::WIDTH { self.seen << ahead | 1 } else { 1 };
            self.highest = Some(sequence);
            return Seen::Newest;
        }
        let behind = highest - sequence;
        if behind >= Self::WIDTH {
            return Seen::Forgotten;
        }
        let bit = 1 << behind;
        let replayed = self.seen & bit != 0;
        self.seen |= bit;
        if replayed { Seen::Replayed } else { Seen::Late }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_number_is_new_once() {
        let mut window = Window::default();
        let answers = [5, 6, 9, 7, 7, 9, 100, 36, 37, 6].map(|number| window.note(number));
        use Seen::*;
        let expected =
            [Newest, Newest, Newest, Late, Replayed, Replayed, Newest, Forgotten, Late, Forgotten];
        assert_eq!(answers, expected);
    }

    #[test]
    fn the_ends_of_the_range_are_numbers_too() {
        let mut window = Window::default();
        assert_eq!(window.note(0), Seen::Newest);
        assert_eq!(window.note(u64::MAX), Seen::Newest);
        assert_eq!(window.note(u64::MAX), Seen::Replayed);
        assert_eq!(window.note(0), Seen::Forgotten);
    }

    proptest! {
        /// Against a model that remembers everything.
        #[test]
        fn nothing_is_accepted_twice(numbers in prop::collection::vec(0u64..300, 1..400)) {
            let mut window = Window::default();
            let mut seen = HashSet::new();
            let mut highest = None;
            for number in numbers {
                let expected = match highest {
                    Some(highest) if number <= highest && highest - number >= Window::WIDTH => {
                        Seen::Forgotten
                    }
                    Some(highest) if number <= highest => {
                        if seen.contains(&number) { Seen::Replayed } else { Seen::Late }
                    }
                    _ => Seen::Newest,
                };
                prop_assert_eq!(window.note(number), expected);
                if expected != Seen::Forgotten {
                    seen.insert(number);
                }
                highest = highest.max(Some(number));
            }
        }
    }
}
