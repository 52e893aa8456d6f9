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
}

impl Mover {
    /// Bytes after which a pipe is worth having.
    pub const WORTH_A_PIPE: u64 = 256 * 1024;
    /// Average bytes per wake-up from which splicing starts.
    pub const BULK: u64 = 16 * 1024;
    /// Average bytes per wake-up below which splicing ends.
    pub const SMALL: u64 = 4 * 1024;

    /// For a direction that has moved nothing yet.
    pub const fn new() -> Self {
        Mover { total: 0, average: 0, way: Way::Copy }
    }

    /// A wake-up moved `bytes`.
    pub fn moved(&mut self, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
        // One wake-up cannot outweigh a few dozen small ones.
        self.average = self.average - self.average / 8 + bytes.min(32 * Self::BULK);
        self.way = match self.way {
            Way::Copy if self.total >= Self::WORTH_A_PIPE && self.average >= 8 * Self::BULK => {
                Way::Splice
            }
            Way::Splice if self.average < 8 * Self::SMALL => Way::Copy,
            way => way,
        };
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
