//! Clocks: that which BPF programs read too, and when something began by every one of them.

use std::time::{Duration, Instant, SystemTime};

use midspan_units::Time;
use rustix::time::{ClockId, clock_gettime};

/// Now, by `CLOCK_MONOTONIC`: since some time before, mostly since the kernel started.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative.
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// When something began, by every clock.
#[derive(Debug, Clone, Copy)]
pub struct Epoch {
    /// By the clock that timers go by.
    pub instant: Instant,
    /// By the calendar.
    pub wall: SystemTime,
    /// By the clock that BPF programs read.
    monotonic: Duration,
}

impl Epoch {
    /// One that begins now.
    pub fn now() -> Epoch {
        Epoch { instant: Instant::now(), wall: SystemTime::now(), monotonic: monotonic() }
    }

    /// A moment since, as flows are told it.
    pub fn time(&self, moment: Instant) -> Time {
        Time::from_nanos(moment.saturating_duration_since(self.instant).as_nanos() as u64)
    }

    /// The wall clock's time of a time of that clock, which may be before it.
    pub fn wall_at(&self, monotonic: Duration) -> SystemTime {
        let wall = match monotonic.checked_sub(self.monotonic) {
            Some(after) => self.wall.checked_add(after),
            None => self.wall.checked_sub(self.monotonic - monotonic),
        };
        wall.unwrap_or(self.wall)
    }
}
