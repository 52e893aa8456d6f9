//! When the relay started, by every clock.

use std::time::{Duration, Instant, SystemTime};

use midspan_sys::clock::monotonic;
use midspan_units::Time;

/// When the relay started, by every clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch {
    pub(crate) instant: Instant,
    pub(crate) wall: SystemTime,
    /// By the clock that BPF programs read.
    monotonic: Duration,
}

impl Epoch {
    pub(crate) fn now() -> Epoch {
        Epoch { instant: Instant::now(), wall: SystemTime::now(), monotonic: monotonic() }
    }

    /// A moment since, as flows are told it.
    pub(crate) fn time(&self, moment: Instant) -> Time {
        Time::from_nanos(moment.saturating_duration_since(self.instant).as_nanos() as u64)
    }

    /// As Unix time, in seconds.
    pub(crate) fn unix(&self) -> f64 {
        self.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    }

    /// The wall clock's time of a time of that clock, which may be before the relay's start.
    pub(crate) fn wall_at(&self, monotonic: Duration) -> SystemTime {
        let wall = match monotonic.checked_sub(self.monotonic) {
            Some(after) => self.wall.checked_add(after),
            None => self.wall.checked_sub(self.monotonic - monotonic),
        };
        wall.unwrap_or(self.wall)
    }
}
