/// How a direction's bytes should be moved, from what suits few to what suits many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyMode {
    /// Through a small buffer: cheapest for small messages.
    Copy,
    /// Through a pipe, without copying: cheapest in bulk, once it has paid for a pipe.
    Splice,
}

/// Chooses between copying and splicing for one direction.
///
/// A direction starts by copying. It is promoted when it has moved [`CopyModeSelector::WORTH_A_PIPE`] bytes
/// in all and moves at least [`CopyModeSelector::BULK`] bytes per wake-up on average, and goes back when the
/// average falls below [`CopyModeSelector::SMALL`]: an open connection that carries small messages is not
/// bulk, however much it has carried over the hours.
#[derive(Debug, Clone, Copy)]
pub struct CopyModeSelector {
    total: u64,
    /// Moving average of bytes per wake-up, in eighths of a byte.
    average: u64,
    mode: CopyMode,
}

impl CopyModeSelector {
    /// Bytes after which a pipe is worth having.
    pub const WORTH_A_PIPE: u64 = 256 * 1024;
    /// Average bytes per wake-up from which splicing starts.
    pub const BULK: u64 = 16 * 1024;
    /// Average bytes per wake-up below which splicing ends.
    pub const SMALL: u64 = 4 * 1024;

    /// For a direction that has moved nothing yet.
    pub const fn new() -> Self {
        CopyModeSelector { total: 0, average: 0, mode: CopyMode::Copy }
    }

    /// A wake-up moved `bytes`.
    pub fn moved(&mut self, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
        // One wake-up cannot outweigh a few dozen small ones.
        self.average = self.average - self.average / 8 + bytes.min(32 * Self::BULK);
        self.mode = match self.mode {
            CopyMode::Copy
                if self.total >= Self::WORTH_A_PIPE && self.average >= 8 * Self::BULK =>
            {
                CopyMode::Splice
            }
            CopyMode::Splice if self.average < 8 * Self::SMALL => CopyMode::Copy,
            mode => mode,
        };
    }

    /// How to move what comes next.
    pub const fn selected(&self) -> CopyMode {
        self.mode
    }
}

impl Default for CopyModeSelector {
    fn default() -> Self {
        CopyModeSelector::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_is_promoted_once_it_has_paid() {
        let mut selector = CopyModeSelector::new();
        selector.moved(CopyModeSelector::WORTH_A_PIPE - 1);
        assert_eq!(selector.selected(), CopyMode::Copy);
        selector.moved(1);
        assert_eq!(selector.selected(), CopyMode::Splice);
    }

    #[test]
    fn small_messages_are_never_promoted() {
        let mut selector = CopyModeSelector::new();
        for _ in 0..100_000 {
            selector.moved(1000);
        }
        assert_eq!(selector.selected(), CopyMode::Copy);
    }

    #[test]
    fn a_connection_that_turns_to_small_messages_goes_back() {
        let mut selector = CopyModeSelector::new();
        for _ in 0..1000 {
            selector.moved(1 << 20);
        }
        assert_eq!(selector.selected(), CopyMode::Splice);
        let until_copy = (0..).take_while(|_| {
            selector.moved(1000);
            selector.selected() == CopyMode::Splice
        });
        assert!(until_copy.count() < 64);
    }
}
