//! Children that do not outlive the program that started them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the child be killed when the *thread* that spawns it ends, however that happens. Spawn
/// from a thread that lives as long as the child should.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    // SAFETY: prctl is a bare system call, which may be made between fork and exec.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| {
            match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })
    }
}
