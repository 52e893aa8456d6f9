//! What a connection to a client begins with, by whether the client has others that are busy and what they tell of its link:
//! they share that, and what all of them begin with waits there together.

use std::sync::atomic::{AtomicU64, Ordering};

use midspan_units::{Span, Time};

/// How long a client's connections count as busy after something was written to one of them: the timeout before a
/// round trip is known (RFC 6298, 2.1), within which what was sent is acknowledged or given up.
const BUSY: Span = Span::from_secs(1);

/// How long what was seen of a client's link is believed.
const MEMORY: Span = Span::from_secs(60);

/// A link that carries so much in a second is not slow, though data wait there: what six connections begin with takes a tenth
/// of that.
const FAST: (u64, Span) = (1_250_000, Span::from_secs(1));

/// What a round trip takes longer than the shortest where data wait, and not the radio's own schedule: that makes up for up
/// to half of it again.
const WAITS: Span = Span::from_millis(10);

/// The initial windows (RFC 6928) of connections to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstWindows {
    /// Of one whose client has no other that is busy, or a link that is not slow, in packets. None: as the kernel has it,
    /// by its route.
    pub alone: Option<u32>,
    /// Of one beside others that are busy, on a slow link, in packets, if it would not be smaller anyway.
    pub beside: u32,
}

impl FirstWindows {
    /// A window that is larger than any: beside others, too, connections begin as if they were alone.
    pub const MOST: u32 = 1000;

    /// The kernel's, of all connections.
    pub const KERNELS: FirstWindows = FirstWindows { alone: None, beside: Self::MOST };

    /// The window to begin with, in packets, of a connection on which nothing was sent yet; none if that is the one that
    /// the `kernel` has given it.
    ///
    /// A connection whose SYN was lost begins with one packet (RFC 6928, section 2), and keeps to that.
    pub fn first(&self, link: &ClientLink, now: Time, kernel: u32) -> Option<u32> {
        let alone = self.alone.unwrap_or(kernel);
        let crowded = link.is_busy(now) && link.is_slow(now);
        let wanted = if crowded { alone.min(self.beside) } else { alone };
        (kernel > 1 && wanted != kernel).then_some(wanted)
    }
}

/// What is known of a client's link, from all its connections (RFC 9040 calls that ensemble sharing): these share it,
/// whatever worker they are of.
#[derive(Debug, Default)]
pub struct ClientLink {
    /// When something was last written to the client. Here and below in nanoseconds, zero if never.
    written: AtomicU64,
    /// Since when bytes are counted, and how many were written since.
    counted: (AtomicU64, AtomicU64),
    /// When the link was last seen to be fast.
    fast: AtomicU64,
    /// The shortest handshake.
    shortest: AtomicU64,
    /// When a handshake last took so long that its packets waited.
    waited: AtomicU64,
}

impl ClientLink {
    /// So many bytes are written to the client now.
    pub fn write(&self, now: Time, bytes: u64) {
        let nanos = now.as_nanos().max(1);
        let (since, count) = &self.counted;
        self.written.store(nanos, Ordering::Relaxed);
        if !is_within(since, now, FAST.1) {
            since.store(nanos, Ordering::Relaxed);
            count.store(bytes, Ordering::Relaxed);
        } else if count.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) >= FAST.0 {
            self.fast.store(nanos, Ordering::Relaxed);
        }
    }

    /// The client's handshake, of a connection on which nothing was sent yet, took so long: its answer has come through the
    /// queue that others' data stand in. Zero: nobody knows how long, as a packet of it was lost.
    pub fn handshake(&self, now: Time, took: Span) {
        let took = took.as_nanos();
        if took == 0 {
            return;
        }
        let shortest = match self.shortest.load(Ordering::Relaxed) {
            0 => took,
            before => before.min(took),
        };
        self.shortest.store(shortest, Ordering::Relaxed);
        if has_waited(Span::from_nanos(took), Span::from_nanos(shortest)) {
            self.waited.store(now.as_nanos().max(1), Ordering::Relaxed);
        }
    }

    fn is_busy(&self, now: Time) -> bool {
        is_within(&self.written, now, BUSY)
    }

    /// Data wait there now and then, and not because there are many.
    fn is_slow(&self, now: Time) -> bool {
        is_within(&self.waited, now, MEMORY) && !is_within(&self.fast, now, MEMORY)
    }
}

/// Whether a time was less than a span ago. Another worker's clock may have been read a little later.
fn is_within(time: &AtomicU64, now: Time, span: Span) -> bool {
    let time = time.load(Ordering::Relaxed);
    time > 0 && has_been(Time::from_nanos(time), now, span)
}

/// The same of a time that there is.
pub(crate) fn has_been(time: Time, now: Time, span: Span) -> bool {
    now.since(time.min(now)) < span
}

/// Whether a round trip took so much longer than the shortest that its packets have waited, or went another way.
pub(crate) fn has_waited(took: Span, shortest: Span) -> bool {
    took > shortest + shortest / 2 + WAITS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KERNEL: u32 = 10;
    const NOW: Time = Time::from_nanos(1_000_000_000);
    const TWO: FirstWindows = FirstWindows { alone: None, beside: 2 };

    /// On which handshakes took so many milliseconds, the last one just now, and something was just written.
    fn link(handshakes: &[u64]) -> ClientLink {
        let link = ClientLink::default();
        for took in handshakes {
            link.handshake(NOW, Span::from_millis(*took));
        }
        link.write(NOW, 1);
        link
    }

    #[test]
    fn who_is_alone_begins_as_the_kernel_or_the_setting_has_it() {
        let set = FirstWindows { alone: Some(20), ..TWO };
        let slow = link(&[20, 200]);
        for (link, now) in [(ClientLink::default(), NOW), (slow, NOW + BUSY)] {
            assert_eq!(TWO.first(&link, now, KERNEL), None);
            assert_eq!(set.first(&link, now, KERNEL), Some(20));
        }
    }

    #[test]
    fn beside_busy_ones_on_a_slow_link_the_window_is_smaller_and_never_larger() {
        let slow = link(&[20, 200]);
        assert_eq!(TWO.first(&slow, NOW, KERNEL), Some(2));
        assert_eq!(TWO.first(&slow, NOW, 2), None);
        assert_eq!(TWO.first(&slow, NOW, 1), None);
        let as_alone = FirstWindows { beside: FirstWindows::MOST, ..TWO };
        assert_eq!(as_alone.first(&slow, NOW, KERNEL), None);
    }

    #[test]
    fn where_nothing_waits_the_window_is_as_alone() {
        // Neither the first handshake nor a schedule's part of one says that anything waits.
        for handshakes in [&[][..], &[300], &[20, 20, 39], &[30, 20, 39]] {
            assert_eq!(TWO.first(&link(handshakes), NOW, KERNEL), None, "{handshakes:?}");
        }
    }

    #[test]
    fn a_link_is_slow_for_some_time() {
        let slow = link(&[20, 200]);
        for (later, window) in [(MEMORY - Span::from_millis(1), Some(2)), (MEMORY, None)] {
            slow.write(NOW + later, 1);
            assert_eq!(TWO.first(&slow, NOW + later, KERNEL), window);
        }
    }

    /// Ten megabits within a second, and not over a longer time.
    #[test]
    fn who_gets_much_has_no_slow_link() {
        for (every, window) in [(Span::from_millis(11), Some(2)), (Span::from_millis(9), None)] {
            let slow = link(&[20, 200]);
            let end = (0..1000).fold(NOW, |now, _| {
                slow.write(now, 12_500);
                now + every
            });
            assert_eq!(TWO.first(&slow, end, KERNEL), window);
            slow.handshake(end + MEMORY, Span::from_millis(200));
            slow.write(end + MEMORY, 1);
            assert_eq!(TWO.first(&slow, end + MEMORY, KERNEL), Some(2));
        }
    }

    #[test]
    fn another_workers_clock_may_be_behind() {
        assert_eq!(TWO.first(&link(&[20, 200]), Time::ZERO, KERNEL), Some(2));
    }

    proptest! {
        #[test]
        fn busy_others_never_make_a_window_larger(
            alone in proptest::option::of(1..=FirstWindows::MOST),
            beside in 1..=FirstWindows::MOST,
            kernel in 1..100u32,
            handshakes in proptest::collection::vec(1..1000u64, 0..5),
        ) {
            let windows = FirstWindows { alone, beside };
            let of = |link: &ClientLink| windows.first(link, NOW, kernel).unwrap_or(kernel);
            let alone = of(&ClientLink::default());
            prop_assert!(of(&link(&handshakes)) <= alone);
            // A lost SYN is kept to.
            prop_assert!(kernel > 1 || (alone, of(&link(&handshakes))) == (1, 1));
        }
    }
}
