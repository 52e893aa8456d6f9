//! What a connection to a client begins with, by whether the client has others that are busy: they share its link, and
//! what all of them begin with waits there together.

use std::sync::atomic::{AtomicU64, Ordering};

use midspan_units::{Span, Time};

/// How long a client's connections count as busy after something was written to one of them: the timeout before a
/// round trip is known (RFC 6298, 2.1), within which what was sent is acknowledged or given up.
pub const BUSY: Span = Span::from_secs(1);

/// The initial windows (RFC 6928) of connections to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstWindows {
    /// Of the only one that is busy, in packets. None: as the kernel has it, by its route.
    pub alone: Option<u32>,
    /// Of one beside others that are busy, in packets, if it would not be smaller anyway.
    pub beside: u32,
}

impl FirstWindows {
    /// A window that is larger than any: beside others, too, connections begin as if they were alone.
    pub const MOST: u32 = 1000;

    /// The window to begin with, in packets, of a connection on which nothing was sent yet; none if that is the one that
    /// the `kernel` has given it. `quiet` is how long ago something was written to the client on any other; none if it
    /// never was.
    ///
    /// A connection whose SYN was lost begins with one packet (RFC 6928, section 2), and keeps to that.
    pub fn first(&self, quiet: Option<Span>, kernel: u32) -> Option<u32> {
        let alone = self.alone.unwrap_or(kernel);
        let is_busy = quiet.is_some_and(|quiet| quiet < BUSY);
        let wanted = if is_busy { alone.min(self.beside) } else { alone };
        (kernel > 1 && wanted != kernel).then_some(wanted)
    }
}

/// When something was last written to a client, on whichever of its connections: these share it, whatever worker they
/// are of.
#[derive(Debug, Default)]
pub struct LastWritten(AtomicU64);

impl LastWritten {
    /// Something is written now.
    pub fn now(&self, now: Time) {
        // Zero is nothing yet.
        self.0.store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    /// How long ago something was; none if nothing was yet.
    pub fn ago(&self, now: Time) -> Option<Span> {
        let last = Some(self.0.load(Ordering::Relaxed)).filter(|last| *last > 0)?;
        Some(now.since(Time::from_nanos(last).min(now)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KERNEL: u32 = 10;

    #[test]
    fn who_is_alone_begins_as_the_kernel_or_the_setting_has_it() {
        let open = FirstWindows { alone: None, beside: 3 };
        let set = FirstWindows { alone: Some(20), ..open };
        for quiet in [None, Some(BUSY), Some(Span::MAX)] {
            assert_eq!(open.first(quiet, KERNEL), None);
            assert_eq!(set.first(quiet, KERNEL), Some(20));
        }
    }

    #[test]
    fn beside_busy_ones_the_window_is_smaller_and_never_larger() {
        let windows = FirstWindows { alone: None, beside: 3 };
        let busy = [Span::ZERO, BUSY.saturating_sub(Span::from_nanos(1))].map(Some);
        for quiet in busy {
            assert_eq!(windows.first(quiet, KERNEL), Some(3));
            assert_eq!(windows.first(quiet, 3), None);
            assert_eq!(windows.first(quiet, 2), None);
        }
        let as_alone = FirstWindows { beside: FirstWindows::MOST, ..windows };
        assert_eq!(as_alone.first(busy[0], KERNEL), None);
    }

    #[test]
    fn a_client_is_quiet_since_it_was_last_written_to() {
        let (last, second) = (LastWritten::default(), Time::from_nanos(1_000_000_000));
        assert_eq!(last.ago(second), None);
        last.now(second);
        assert_eq!(last.ago(second + Span::from_millis(7)), Some(Span::from_millis(7)));
        // Another worker's clock may have been read a little later.
        assert_eq!(last.ago(Time::ZERO), Some(Span::ZERO));
    }

    proptest! {
        #[test]
        fn busy_others_never_make_a_window_larger(
            alone in proptest::option::of(1..=FirstWindows::MOST),
            beside in 1..=FirstWindows::MOST,
            kernel in 1..100u32,
        ) {
            let windows = FirstWindows { alone, beside };
            let of = |quiet| windows.first(quiet, kernel).unwrap_or(kernel);
            prop_assert!(of(Some(Span::ZERO)) <= of(None));
            // A lost SYN is kept to.
            prop_assert!(kernel > 1 || (of(None), of(Some(Span::ZERO))) == (1, 1));
        }
    }
}
