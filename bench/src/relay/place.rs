//! Which processors the ends of what is measured have, and which the relay.

use std::fs;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};
use midspan_sys::process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// Where the ends and the relay run.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Place {
    /// The ends on all processors but the last, the relay on the last: on a box of its own it does not
    /// share processors with them.
    Apart,
    /// All on all processors.
    Together,
    /// The same, and the kernel schedules the session of each program as a group (autogroup).
    Sessions,
}

impl Place {
    pub(super) const ALL: [Place; 3] = [Place::Apart, Place::Together, Place::Sessions];

    pub(super) fn title(self) -> &'static str {
        match self {
            Place::Apart => "the relay on a processor of its own",
            Place::Together => "the relay and both ends on the same processors",
            Place::Sessions => "the same, each program's session scheduled as a group",
        }
    }

    /// The relay's processors.
    pub(super) fn relays(self) -> Result<Vec<usize>> {
        let all = allowed()?;
        match self {
            Place::Apart if all.len() < 2 => bail!("one processor is not enough for both"),
            Place::Apart => Ok(all[all.len() - 1..].to_vec()),
            Place::Together | Place::Sessions => Ok(all),
        }
    }

    /// The ends' processors.
    pub(super) fn ends(self) -> Result<Vec<usize>> {
        let relays = self.relays()?;
        Ok(match self {
            Place::Apart => {
                allowed()?.into_iter().filter(|number| !relays.contains(number)).collect()
            }
            Place::Together | Place::Sessions => relays,
        })
    }

    /// Does what starts an end. Its processes inherit the processors.
    pub(super) fn of_ends<T: Send>(self, start: impl FnOnce() -> T + Send) -> Result<T> {
        on(self.ends()?.into_iter(), start)
    }

    /// Does what starts the relay.
    pub(super) fn of_relay<T: Send>(self, start: impl FnOnce() -> T + Send) -> Result<T> {
        on(self.relays()?.into_iter(), start)
    }
}

/// `CONFIG_SCHED_AUTOGROUP`, where the kernel has it: set for as long as this lives. Then it is what it was, also if this
/// program is killed: it is up to a child, which sees its input end.
pub(super) struct Autogroup(Option<Child>);

const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

impl Autogroup {
    /// As a place has it.
    pub(super) fn of(place: Place) -> Result<Autogroup> {
        let wanted = if place == Place::Sessions { "1" } else { "0" };
        let Ok(before) = fs::read_to_string(AUTOGROUP) else {
            return match place {
                Place::Sessions => bail!("this kernel does not schedule sessions as groups"),
                Place::Apart | Place::Together => Ok(Autogroup(None)),
            };
        };
        let mut command = process::command("sh");
        command.args(["-c", "read -r end; echo \"$0\" > \"$1\"", before.trim(), AUTOGROUP]);
        let restores = process::in_session_of_its_own(&mut command).stdin(Stdio::piped()).spawn();
        let restores = Autogroup(Some(restores.context("cannot run sh")?));
        fs::write(AUTOGROUP, wanted).context(AUTOGROUP)?;
        Ok(restores)
    }
}

impl Drop for Autogroup {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

/// Those that this program may use.
fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect())
}

/// `work` with the calling thread on these processors, which has its own again afterwards. Children die with
/// the thread that starts them, so it is no other thread.
fn on<T: Send>(
    processors: impl Iterator<Item = usize>,
    work: impl FnOnce() -> T + Send,
) -> Result<T> {
    let before = sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    processors.for_each(|number| set.set(number));
    sched_setaffinity(None, &set).context("processors")?;
    let done = work();
    sched_setaffinity(None, &before).context("processors")?;
    Ok(done)
}
