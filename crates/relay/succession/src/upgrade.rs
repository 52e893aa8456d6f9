//! A newer program in the place of one that a service manager runs.
//!
//! The manager (systemd) starts this as a service's reload command, with the privileges that the service starts with;
//! the running relay has given them up. The relay that takes over is told to the manager as the service's main process
//! (sd_notify(3), `MAINPID=`), and what it takes over from goes on with its flows as another process of the service.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::manager::tell_main_process;

/// What a relay says on standard output as soon as it takes connections, if it is asked to: this, and its process.
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

/// Starts `program`, a relay which is to take over from the relay `former` and to say [`READY`], waits until it has, and
/// tells the manager that it is the service's main process now. Gives its process; none if it has ended before.
///
/// # Errors
/// When it cannot be started, or the manager not told.
pub fn take_over(program: &OsStr, options: &[OsString], former: u32) -> io::Result<Option<u32>> {
    // The manager only waits for a main process that is its own child, as what has lost its parent becomes: here by
    // a shell that ends at once.
    let mut shell = Command::new("sh");
    shell.args(["-c", r#""$@" &"#, "sh"]).arg(program).args(options);
    if let Some(interval) = watchdog_of(former) {
        shell.env(WATCHDOG, interval);
    }
    let mut shell = shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    shell.wait()?;
    let said = shell.stdout.take().map(BufReader::new);
    let said = said.and_then(|said| said.lines().next()).transpose()?;
    let Some(relay) = said.as_deref().and_then(process_in) else { return Ok(None) };
    tell_main_process(relay)?;
    Ok(Some(relay))
}

/// The process in what a relay says once it is ready.
fn process_in(said: &str) -> Option<u32> {
    said.strip_prefix(READY)?.strip_prefix(' ')?.parse().ok()
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
    fn one_that_ends_before_it_is_ready_has_not_taken_over() {
        for script in ["exit 3", "echo other", "echo ready", "echo ready for nothing"] {
            assert_eq!(take_over("sh".as_ref(), &["-c".into(), script.into()], 0).unwrap(), None);
        }
    }

    #[test]
    fn one_that_is_ready_is_nobodys_child() {
        let script = "echo ready $$; exec sleep 60";
        let options = ["-c".into(), script.into()];
        let relay = take_over("sh".as_ref(), &options, 0).unwrap().unwrap();
        let stat = fs::read_to_string(format!("/proc/{relay}/stat")).unwrap();
        let killed =
            Command::new("sh").args(["-c", "kill $0", &relay.to_string()]).status().unwrap();
        let parent = stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap();
        assert_ne!(parent, std::process::id().to_string());
        assert!(killed.success());
    }
}
