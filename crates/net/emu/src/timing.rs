//! The clock, and getting the emulator's thread to run when a packet is due.

use std::num::NonZeroU64;

use midspan_units::{Span, Time};
use rustix::time::{ClockId, clock_gettime};

use crate::port::{set_fifo, set_slice};

/// How an emulator's thread is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// SCHED_FIFO: before every ordinary thread. Needs CAP_SYS_NICE or RLIMIT_RTPRIO.
    RealTime,
    /// Before nearly every ordinary thread (nice -20). Needs CAP_SYS_NICE or RLIMIT_NICE.
    Urgent,
    /// As ordinary threads are, with a short time slice, so that it runs soon after it has woken.
    /// Linux 6.12 and newer, no privilege.
    ShortSlice,
    /// As ordinary threads are.
    Ordinary,
}

/// The monotonic clock.
pub(crate) fn now() -> Time {
    read(ClockId::Monotonic)
}

/// Processor time that the calling thread has used.
pub(crate) fn thread_cpu_time() -> Span {
    read(ClockId::ThreadCPUTime).since(Time::ZERO)
}

/// Has the calling thread run as promptly as this user may ask for. One that stays awake must not
/// be a real-time thread, which the kernel would stop for a while in every second.
pub(crate) fn be_prompt(stays_awake: bool) -> Scheduling {
    // One nanosecond of timer slack instead of 50 us. Never refused for oneself; without effect
    // on a real-time thread, which has none.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    if stays_awake && rustix::process::setpriority_process(None, MOST_URGENT).is_ok() {
        Scheduling::Urgent
    } else if !stays_awake && set_fifo(1).is_ok() {
        Scheduling::RealTime
    } else if set_slice(SLICE_NANOS).is_ok() {
        Scheduling::ShortSlice
    } else {
        Scheduling::Ordinary
    }
}

/// The nice value of a thread that yields to hardly any other. It is the calling thread's own: on
/// Linux each has one.
const MOST_URGENT: i32 = -20;

/// The shortest slice that the kernel grants.
const SLICE_NANOS: u64 = 100_000;

fn read(clock: ClockId) -> Time {
    let time = clock_gettime(clock);
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
