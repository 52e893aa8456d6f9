use midspan_units::Time;
use rustix::time::{ClockId, clock_gettime};

/// Now, on the kernel's monotonic clock: the one that BPF programs read too.
pub fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
