//! How the calling thread is scheduled, sched(7). On Linux each thread has its own policy and nice
//! value.

use std::io;
use std::mem::size_of;

/// Before every ordinary thread, at real-time priority `priority` (1 to 99; SCHED_FIFO).
///
/// # Errors
/// Without CAP_SYS_NICE or RLIMIT_RTPRIO.
pub fn run_first(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters are valid; thread 0 is the caller.
    #[allow(unsafe_code)]
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    check(result.into())
}

/// As an ordinary thread with a time slice of `nanos` (Linux 6.12): the shorter the slice, the sooner the
/// thread runs once it has woken.
///
/// # Errors
/// When the kernel knows of no such slices.
pub fn run_in_slices_of(nanos: u64) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: rustix::process::nice(0)?,
        sched_priority: 0,
        sched_runtime: nanos,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the attributes are valid for the size that they state; thread 0 is the caller.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check(result)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
