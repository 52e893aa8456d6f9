//! A newer program in the place of one that a service manager runs.
//!
//! The manager (systemd) starts this as a service's reload command, with the privileges that the service starts with;
//! the running relay has given them up. The relay that takes over is told to the manager as the service's main process
//! (sd_notify(3), `MAINPID=`), and what it takes over from goes on with its flows as another process of the service.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use sd_notify::NotifyState;

/// What a relay says on standard output as soon as it takes connections, if it is asked to.
pub const READY: &str = "ready";

/// What the manager tells its main process of the watchdog, and no other.
const WATCHDOG: &str = "WATCHDOG_USEC";

/// Whether a process runs the very file that this program was started from. A file that has taken the place of
/// another, under the same name too, is not the same.
///
/// # Errors
/// When there is no such process, or it may not be looked at.
pub fn runs_this_program(pid: u32) -> io::Result<bool> {
    let file = |process: &str| {
        fs::metadata(format!("/proc/{process}/exe")).map(|file| (file.dev(), file.ino()))
    };
    Ok(file(&pid.to_string())? == file("self")?)
}

/// Starts `relay`, which is to take over from the relay `former` and to say [`READY`], waits until it has, and tells
/// the manager that it is the service's main process now. Gives the status of one that ends before.
///
/// # Errors
/// When it cannot be started, or the manager not told.
pub fn take_over(relay: &mut Command, former: u32) -> io::Result<Result<Child, ExitStatus>> {
    if let Some(interval) = watchdog_of(former) {
        relay.env(WATCHDOG, interval);
    }
    let mut relay = relay.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let said = relay.stdout.take().map(BufReader::new);
    let said = said.and_then(|said| said.lines().next()).transpose()?;
    if said.as_deref() != Some(READY) {
        return relay.wait().map(Err);
    }
    sd_notify::notify(&[NotifyState::MainPid(relay.id())])?;
    until_heard()?;
    Ok(Ok(relay))
}

/// How often a service's main process is to say that it lives, in microseconds.
fn watchdog_of(pid: u32) -> Option<String> {
    let environment = fs::read(PathBuf::from(format!("/proc/{pid}/environ"))).ok()?;
    variable(&environment, WATCHDOG)
}

/// A variable of an environment as proc_pid_environ(5) has it.
fn variable(environment: &[u8], name: &str) -> Option<String> {
    let mut all = environment.split(|byte| *byte == 0).filter_map(|one| str::from_utf8(one).ok());
    all.find_map(|one| one.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

/// Waits until the manager has heard all that was said: it closes what comes with `BARRIER=1`. What it hears of a
/// process that has ended it does not believe.
fn until_heard() -> io::Result<()> {
    let (mut read, write) = io::pipe()?;
    sd_notify::notify_with_fds(&[NotifyState::Custom("BARRIER=1")], &[write.as_fd()])?;
    drop(write);
    read.read(&mut [0]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_this_program_and_another_another() {
        assert!(runs_this_program(std::process::id()).unwrap());
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let is_same = runs_this_program(other.id());
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!is_same.unwrap());
        assert!(runs_this_program(other.id()).is_err());
    }

    #[test]
    fn variables_are_found_by_their_whole_name() {
        let environment = b"PATH=/bin\0XWATCHDOG_USEC=1\0WATCHDOG_USEC=10000000\0WATCHDOG_PID=7\0";
        assert_eq!(variable(environment, WATCHDOG).as_deref(), Some("10000000"));
        assert_eq!(variable(b"WATCHDOG_USECS=5\0", WATCHDOG), None);
        assert_eq!(variable(b"", WATCHDOG), None);
    }

    #[test]
    fn one_that_ends_before_it_is_ready_gives_its_status() {
        for (script, code) in [("exit 3", 3), ("echo other; exit 4", 4)] {
            let ended = take_over(Command::new("sh").args(["-c", script]), 0).unwrap();
            assert_eq!(ended.unwrap_err().code(), Some(code));
        }
        let mut relay = take_over(Command::new("sh").args(["-c", "echo ready; exec sleep 60"]), 0)
            .unwrap()
            .unwrap();
        assert!(relay.try_wait().unwrap().is_none());
        relay.kill().unwrap();
        relay.wait().unwrap();
    }
}
