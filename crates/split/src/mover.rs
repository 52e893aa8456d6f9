/// How a direction's bytes should be moved, from what suits few to what suits many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Through a small buffer: cheapest for small messages.
    Copy,
    /// Through a pipe, without copying: cheapest in bulk, once it has paid for a pipe.
    Splice,
}

/// Chooses between copying and splicing for one direction.
///
/// A direction starts by copying. It is promoted when it has moved [`Mover::WORTH_A_PIPE`] bytes
/// in all and moves at least [`Mover::BULK`] bytes per wake-up on average, and goes back when the
/// average falls below [`Mover::SMALL`]: an open connection that carries small messages is not
/// bulk, however much it has carried over the hours.
#[derive(Debug, Clone, Copy)]
pub struct Mover {
    total: u64,
    /// Moving average of bytes per wake-up, in eighths of a byte.
    average: u64,
    way: Way,
    much: bool,
}

impl Mover {
    /// Bytes after which a pipe is worth having.
    pub const WORTH_A_PIPE: u64 = 256 * 1024;
    /// Average bytes per wake-up from which splicing starts.
    pub const BULK: u64 = 16 * 1024;
    /// Average bytes per wake-up below which splicing ends.
    pub const SMALL: u64 = 4 * 1024;
    /// Average bytes per wake-up from which the sender is as fast as the machine: what 1 Gbit/s carries in a
    /// millisecond.
    pub const MUCH: u64 = 128 * 1024;
    /// Average bytes per wake-up below which it no longer is. Who gets the processor sooner finds less.
    pub const STILL_MUCH: u64 = 32 * 1024;

    /// For a direction that has moved nothing yet.
    pub const fn new() -> Self {
        Mover { total: 0, average: 0, way: Way::Copy, much: false }
    }

    /// A wake-up moved `bytes`.
    pub fn moved(&mut self, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
        // One wake-up cannot outweigh a few dozen small ones.
        self.average = self.average - self.average / 8 + bytes.min(32 * Self::BULK);
        self.much = self.average >= 8 * if self.much { Self::STILL_MUCH } else { Self::MUCH };
        self.way = match self.way {
            Way::Copy if self.total >= Self::WORTH_A_PIPE && self.average >= 8 * Self::BULK => {
                Way::Splice
            }
            Way::Splice if self.average < 8 * Self::SMALL => Way::Copy,
            way => way,
        };
    }

    /// Whether so much comes at a time that none of it is urgent.
    pub const fn moves_much(&self) -> bool {
        self.much
    }

    /// How to move what comes next.
    pub const fn way(&self) -> Way {
        self.way
    }
}

impl Default for Mover {
    fn default() -> Self {
        Mover::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_is_promoted_once_it_has_paid() {
        let mut mover = Mover::new();
        mover.moved(Mover::WORTH_A_PIPE - 1);
        assert_eq!(mover.way(), Way::Copy);
        mover.moved(1);
        assert_eq!(mover.way(), Way::Splice);
    }

    #[test]
    fn only_what_comes_as_fast_as_the_machine_is_much() {
        let mut mover = Mover::new();
        (0..1000).for_each(|_| mover.moved(Mover::MUCH - 1));
        assert!(mover.way() == Way::Splice && !mover.moves_much());
        (0..1000).for_each(|_| mover.moved(Mover::MUCH + 8));
        assert!(mover.moves_much());
        (0..1000).for_each(|_| mover.moved(Mover::STILL_MUCH + 8));
        assert!(mover.moves_much());
        (0..1000).for_each(|_| mover.moved(Mover::STILL_MUCH - 1));
        assert!(!mover.moves_much());
        // One small turn among large ones does not count.
        (0..1000).for_each(|_| mover.moved(4 * Mover::MUCH));
        mover.moved(1);
        assert!(mover.moves_much());
    }

    #[test]
    fn small_messages_are_never_promoted() {
        let mut mover = Mover::new();
        for _ in 0..100_000 {
            mover.moved(1000);
        }
        assert_eq!(mover.way(), Way::Copy);
    }

    #[test]
    fn a_connection_that_turns_to_small_messages_goes_back() {
        let mut mover = Mover::new();
        for _ in 0..1000 {
            mover.moved(1 << 20);
        }
        assert_eq!(mover.way(), Way::Splice);
        let until_copy = (0..).take_while(|_| {
            mover.moved(1000);
            mover.way() == Way::Splice
        });
        assert!(until_copy.count() < 64);
    }
}
