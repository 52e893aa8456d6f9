//! The clock that BPF programs read too.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Now, by `CLOCK_MONOTONIC`: since some time before, mostly since the kernel started.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative.
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
