//! What is in flight on a bearer in acknowledged mode, told from what waits.

use std::collections::VecDeque;

use midspan_units::{ByteSize, Rate, Span, Time};

use crate::LinkReading;
use crate::estimate::Floor;

/// A bearer in acknowledged mode: what it served over the last windows, and how long that took to
/// be acknowledged. Acknowledgements come in clumps, so that a single window says little.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    lately: VecDeque<(Rate, ByteSize)>,
    smooth: Option<Smooth>,
    least: Floor,
    /// The longest that is believed of the least.
    longest: Span,
    shortest: Option<Span>,
}

/// Of the last second or so.
#[derive(Debug, Clone, Copy)]
struct Smooth {
    /// In bit/s.
    served: u64,
    /// Not acknowledged.
    bytes: u64,
    /// Of all windows that went into it.
    length: Span,
}

/// Windows that are averaged.
const WINDOWS: usize = 3;
/// For how long the least flight is remembered.
const MEMORY: Span = Span::from_secs(30);
/// Over how long it is averaged.
const SMOOTH: Span = Span::from_secs(1);
/// What acknowledgements that come in clumps move the average of a few windows by.
const JITTER: Span = Span::from_millis(25);
/// A longer flight than this is not believed of any bearer.
pub(super) const LONGEST_FLIGHT: Span = Span::from_millis(500);

impl Flight {
    pub(super) fn new(longest: Span) -> Flight {
        let lately = VecDeque::with_capacity(WINDOWS);
        Flight { lately, smooth: None, least: Floor::new(MEMORY), longest, shortest: None }
    }

    pub(super) fn note(&mut self, at: Time, window: Span, link: &LinkReading, few: ByteSize) {
        let (Some(served), Some(bytes)) = (link.served, link.unacknowledged) else {
            self.lately.clear();
            self.smooth = None;
            return;
        };
        if self.lately.len() == WINDOWS {
            self.lately.pop_front();
        }
        self.lately.push_back((served, bytes));
        self.time_flight(at, window, (served, bytes), few);
        self.shortest = self.least.value(at);
    }

    /// Only while something flies at the end of every window: single packets are mostly acknowledged
    /// by then, or not yet sent, and bursts of a few are seen or missed.
    fn time_flight(&mut self, at: Time, window: Span, new: (Rate, ByteSize), few: ByteSize) {
        if new.1 < few.max(ByteSize::from_bytes(1)) {
            self.smooth = None;
            return;
        }
        let mean = |old: u64, new: u64| {
            let (old_part, new_part) =
                (u128::from(SMOOTH.as_nanos()), u128::from(window.as_nanos()));
            let sum = u128::from(old) * old_part + u128::from(new) * new_part;
            (sum / (old_part + new_part)) as u64
        };
        let (served, bytes) = (new.0.as_bps(), new.1.as_bytes());
        let smooth = self.smooth.map_or(Smooth { served, bytes, length: window }, |old| Smooth {
            served: mean(old.served, served),
            bytes: mean(old.bytes, bytes),
            length: old.length + window,
        });
        self.smooth = Some(smooth);
        // Of a second that was not half idle.
        let flight = Rate::from_bps(smooth.served).time_for(smooth.bytes);
        let steady = smooth.served >= served / 4 * 3;
        if steady && smooth.length >= SMOOTH && flight < LONGEST_FLIGHT {
            self.least.add(at, flight);
        }
    }

    /// The most that a window served; None unless the source tells of acknowledgements.
    pub(super) fn served(&self) -> Option<Rate> {
        self.lately.iter().map(|(served, _)| *served).max()
    }

    /// In the last window alone.
    pub(super) fn latest(&self) -> Option<Rate> {
        self.lately.back().map(|(served, _)| *served)
    }

    pub(super) fn bytes(&self) -> u64 {
        let sum = self.lately.iter().map(|(_, bytes)| u128::from(bytes.as_bytes())).sum::<u128>();
        (sum / self.lately.len().max(1) as u128) as u64
    }

    fn longest(&self) -> Span {
        self.shortest.unwrap_or(self.longest).min(self.longest) + JITTER
    }

    /// For how long something waits, if at least `backlog` does, and did all the time.
    pub(super) fn excess(&self, backlog: ByteSize) -> Option<Span> {
        let busy = self.lately.iter().filter(|(_, bytes)| *bytes >= backlog).count();
        if busy < WINDOWS {
            return None;
        }
        let served = self.served()?;
        let flying = served.bytes_in(self.longest()).as_bytes();
        let waiting = self.bytes().checked_sub(flying.saturating_add(backlog.as_bytes()))?;
        Some(served.time_for(waiting).min(LONGEST_FLIGHT))
    }

    /// All that is not acknowledged is in flight.
    pub(super) fn lengthen(&mut self) {
        let flight = self.served().unwrap_or_default().time_for(self.bytes()).min(LONGEST_FLIGHT);
        if flight > self.longest() {
            self.longest = self.longest.max(flight);
            self.least = Floor::new(MEMORY);
            self.shortest = None;
        }
    }
}
