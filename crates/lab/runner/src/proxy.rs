//! What stands on the MEC during a run: nothing, Midspan's relay, or HAProxy.

mod haproxy;
mod midspan;

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use midspan_scenario::CellSpec;
use midspan_scenario::record::Variant;
use midspan_sys::netns::Netns;
use midspan_sys::process::die_with_parent;
use tempfile::TempDir;

/// A proxy that runs in the MEC's namespace, and ends with this value.
#[derive(Debug)]
pub struct Proxy {
    child: Child,
    /// What it says. Its configuration has been read, and deleted, by then.
    said: File,
    /// For a proxy that does not install its own.
    rules: Option<haproxy::Rules>,
}

impl Proxy {
    /// Starts what `variant` asks for, and waits until it takes connections. Must be called from a
    /// thread that outlives the proxy.
    ///
    /// # Errors
    /// When it cannot be started or is not ready in time, with what it said.
    pub fn start(
        variant: Variant,
        mec: &Netns,
        spec: &CellSpec,
        server: Ipv4Addr,
        midspan: &Path,
    ) -> Result<Option<Proxy>> {
        match variant {
            Variant::None => Ok(None),
            Variant::Midspan => midspan::start(mec, spec, midspan).map(Some),
            Variant::Haproxy => haproxy::start(mec, server).map(Some),
        }
    }

    /// Starts `command` in the namespace, and waits until `is_ready`.
    fn spawn(
        mut command: Command,
        mec: &Netns,
        directory: TempDir,
        mut is_ready: impl FnMut() -> io::Result<bool>,
    ) -> Result<Proxy> {
        let said = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said.try_clone()?);
        // What the terminal tells everybody (Ctrl-C) is the lab's to act upon, or its user's program's.
        command.process_group(0);
        let child = die_with_parent(mec.apply(&mut command)).spawn();
        let child = child.with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let mut proxy = Proxy { child, said, rules: None };
        let deadline = Instant::now() + PATIENCE;
        while !is_ready()? {
            proxy.check()?;
            if Instant::now() >= deadline {
                bail!("the proxy was not ready in time: {}", last_lines(&proxy.said));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // Here and not when the proxy ends: an interrupted run leaves nothing behind then.
        directory.close()?;
        Ok(proxy)
    }

    /// Looks whether it still runs.
    ///
    /// # Errors
    /// When it has ended, with what it said.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the proxy ended ({status}): {}", last_lines(&self.said)),
        }
    }

    /// All that it has said so far.
    pub(crate) fn everything_said(&self) -> String {
        everything(&self.said)
    }
}

/// What a program has written to a file so far, which it may go on with.
fn everything(said: &File) -> String {
    let mut bytes = vec![0; said.metadata().map_or(0, |metadata| metadata.len() as usize)];
    // Not by the file's own position, which is the writer's as well.
    match said.read_exact_at(&mut bytes, 0) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
}

/// The end of that, in one line.
pub(crate) fn last_lines(said: &File) -> String {
    let text = everything(said);
    let last: Vec<&str> = text.lines().rev().take(3).collect();
    last.into_iter().rev().collect::<Vec<_>>().join(" | ")
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long a proxy may take to be ready.
const PATIENCE: Duration = Duration::from_secs(10);
