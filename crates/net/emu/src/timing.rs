//! The clock, and getting the emulator's thread to run when a packet is due.

use std::num::NonZeroU64;
use std::time::Duration;

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

/// How many threads of this machine want a processor just now beside the caller: the median of a few looks. Zero where
/// the kernel does not say.
pub(crate) fn others_running() -> usize {
    let look = || {
        let load = std::fs::read_to_string("/proc/loadavg").ok()?;
        running(&load)?.checked_sub(1)
    };
    let mut looks: Vec<usize> = std::iter::repeat_with(look)
        .take(LOOKS)
        .inspect(|_| std::thread::sleep(BETWEEN_LOOKS))
        .flatten()
        .collect();
    looks.sort_unstable();
    looks.get(looks.len() / 2).copied().unwrap_or(0)
}

/// How many run, in what proc_loadavg(5) says: `0.20 0.18 0.12 RUNNING/ALL LAST`.
fn running(load: &str) -> Option<usize> {
    load.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// An odd number: one look sees what happens to run then.
const LOOKS: usize = 11;
const BETWEEN_LOOKS: Duration = Duration::from_micros(500);

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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn who_runs_is_in_the_fourth_field() {
        assert_eq!(running("4.79 4.60 4.40 3/250 1234\n"), Some(3));
        assert_eq!(running("4.79 4.60\n"), None);
    }

    #[test]
    fn those_who_run_are_seen() {
        let stop = AtomicBool::new(false);
        let spin = || {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(spin);
            }
            let seen = others_running();
            stop.store(true, Ordering::Relaxed);
            assert!(seen >= 8, "{seen}");
        });
    }
}
