//! Children that do not outlive the program that started them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the child be killed when the *thread* that spawns it ends, however that happens. Spawn
/// from a thread that lives as long as the child should.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    // SAFETY: prctl and getppid are bare system calls, which may be made between fork and exec.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || {
            match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) {
                // A parent that died before this was asked for sends nothing any more.
                0 if libc::getppid() as u32 == parent => Ok(()),
                0 => Err(io::Error::from_raw_os_error(libc::ECHILD)),
                _ => Err(io::Error::last_os_error()),
            }
        })
    }
}

/// A command that is also looked for where administrators' programs are, which is not on the `PATH`
/// of an ordinary user everywhere.
pub fn command(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}
