//! Programs whose processes all end together.
//!
//! Each is started by a process that is the first one of a PID namespace: when that ends, by itself, with this process or by
//! force, the kernel kills whatever the program has left running.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use anyhow::{Context, Result, anyhow};
use midspan_sys::netns::Netns;
use midspan_sys::pidns;
use midspan_sys::process::die_with_parent;
use midspan_sys::userns::{self, User};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// A running program. It ends, with all that it started, when this value is dropped.
#[derive(Debug)]
pub(crate) struct HeldProcess {
    /// Of the first process, as this process's namespace numbers it.
    pid: u32,
    ended: Receiver<io::Result<ExitStatus>>,
}

impl HeldProcess {
    /// Starts `program` in `netns`; `user` is who it is to be, if not who this process is. `midspan` is the program whose
    /// `lab hold` command is the first process. `prepare` may change how that is started.
    pub(crate) fn start(
        midspan: &Path,
        netns: &Netns,
        user: Option<User>,
        program: &[OsString],
        prepare: impl FnOnce(&mut Command),
    ) -> Result<HeldProcess> {
        let mut command = Command::new(midspan);
        command.args(["lab", "hold"]);
        if let Some(User { uid, gid }) = user {
            command.arg("--user").arg(format!("{uid}:{gid}"));
        }
        command.arg("--").args(program);
        prepare(&mut command);
        die_with_parent(netns.apply(&mut command));
        let (started, pid) = channel();
        let (end, ended) = channel();
        // The namespace is that of the next child of a thread, and the child dies with it.
        thread::Builder::new().name("keeper".into()).spawn(move || {
            match pidns::for_children().and_then(|()| command.spawn()) {
                Ok(mut child) => {
                    let _ = started.send(Ok(child.id()));
                    let _ = end.send(child.wait());
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        let pid = pid.recv().context("the thread that keeps a program ended")?;
        let pid = pid.with_context(|| format!("cannot start {}", midspan.display()))?;
        Ok(HeldProcess { pid, ended })
    }

    /// The number of the first process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until it has ended. How, as shells number it.
    pub(crate) fn wait(&self) -> Result<u8> {
        let status = self.ended.recv().map_err(|_| anyhow!("the program's end was not seen"))??;
        Ok(number(status))
    }

    /// How it ended, if it has.
    pub(crate) fn try_wait(&self) -> Result<Option<u8>> {
        match self.ended.try_recv() {
            Ok(status) => Ok(Some(number(status?))),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(anyhow!("the program's end was not seen")),
        }
    }

    /// Tells the program what this process was told.
    pub(crate) fn signal(pid: u32, signal: i32) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for HeldProcess {
    fn drop(&mut self) {
        if let Ok(None) = self.try_wait() {
            HeldProcess::signal(self.pid, Signal::KILL.as_raw());
            let _ = self.ended.recv();
        }
    }
}

/// As shells number how a program ended.
fn number(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let signal = || 128 + status.signal().unwrap_or_default();
    status.code().unwrap_or_else(signal).clamp(0, 255) as u8
}

/// What the first process does: starts the program with a /proc that shows its own processes, buries what the program leaves,
/// and ends as the program does.
///
/// # Errors
/// When signals cannot be had.
pub fn hold(program: &[OsString], user: Option<User>) -> Result<u8> {
    // In most containers an ordinary user may not have another /proc: then the machine's is seen.
    let _ = pidns::own_proc();
    run_to_end(command(program, user))
}

/// What starts `program` as `user`, or as who this process is.
pub(crate) fn command(program: &[OsString], user: Option<User>) -> Command {
    let (name, arguments) = program.split_first().expect("the command line asks for one");
    let mut command = Command::new(name);
    command.args(arguments);
    if let Some(user) = user {
        userns::as_user(&mut command, user);
    }
    command
}

/// Starts a program and waits for its end, which it answers as shells number it. What the terminal tells everybody (Ctrl-C) is
/// the program's to act upon; what this process alone is told to end by is passed on to it.
pub(crate) fn run_to_end(mut command: Command) -> Result<u8> {
    let told = heeded([SIGINT, SIGQUIT, SIGTERM, SIGHUP]);
    let mut signals = Signals::new(told.into_iter().chain([SIGCHLD]))?;
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("midspan: cannot start {:?}: {error}", command.get_program());
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            return Ok(if is_missing { NOT_FOUND } else { NOT_STARTED });
        }
    };
    let program = Pid::from_child(&child);
    loop {
        while let Some((who, status)) = wait(WaitOptions::NOHANG)? {
            if who == program {
                return Ok(ending(status));
            }
        }
        for signal in signals.wait() {
            if [SIGTERM, SIGHUP].contains(&signal) {
                HeldProcess::signal(child.id(), signal);
            }
        }
    }
}

/// Those of the signals that are not ignored already, as after `nohup`: these stay so, for the program too.
pub(crate) fn heeded(signals: [i32; 4]) -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    signals.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}

fn ending(status: WaitStatus) -> u8 {
    let signal = || 128 + status.terminating_signal().unwrap_or_default();
    status.exit_status().unwrap_or_else(signal).clamp(0, 255) as u8
}

/// What shells answer for a program that is not there, and for one that cannot be started.
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;
