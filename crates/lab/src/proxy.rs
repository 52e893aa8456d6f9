//! What stands on the MEC during a run: nothing, Midspan's relay, or HAProxy.

mod haproxy;
mod midspan;

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
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
    /// Its configuration, and what it says.
    directory: TempDir,
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
        let said = fs::File::create(directory.path().join(SAID))?;
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        let child = die_with_parent(mec.apply(&mut command)).spawn();
        let child = child.with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let mut proxy = Proxy { child, directory, rules: None };
        let deadline = Instant::now() + PATIENCE;
        while !is_ready()? {
            proxy.check()?;
            if Instant::now() >= deadline {
                bail!("the proxy was not ready in time: {}", proxy.said());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(proxy)
    }

    /// Looks whether it still runs.
    ///
    /// # Errors
    /// When it has ended, with what it said.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the proxy ended ({status}): {}", self.said()),
        }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn said(&self) -> String {
        let path: PathBuf = self.directory.path().join(SAID);
        let text = fs::read_to_string(path).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        last.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long a proxy may take to be ready.
const PATIENCE: Duration = Duration::from_secs(10);

const SAID: &str = "said.log";
