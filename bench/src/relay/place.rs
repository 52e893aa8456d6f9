//! Which processors the ends of what is measured have, and which the relay.

use anyhow::{Context, Result, bail};
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
}

impl Place {
    pub(super) const ALL: [Place; 2] = [Place::Apart, Place::Together];

    pub(super) fn title(self) -> &'static str {
        match self {
            Place::Apart => "the relay on a processor of its own",
            Place::Together => "the relay and both ends on the same processors",
        }
    }

    /// The relay's processors.
    pub(super) fn relays(self) -> Result<Vec<usize>> {
        let all = allowed()?;
        match self {
            Place::Apart if all.len() < 2 => bail!("one processor is not enough for both"),
            Place::Apart => Ok(all[all.len() - 1..].to_vec()),
            Place::Together => Ok(all),
        }
    }

    /// Does what starts an end. Its processes inherit the processors.
    pub(super) fn of_ends<T: Send>(self, start: impl FnOnce() -> T + Send) -> Result<T> {
        let relays = self.relays()?;
        match self {
            Place::Apart => {
                on(allowed()?.into_iter().filter(|number| !relays.contains(number)), start)
            }
            Place::Together => on(relays.into_iter(), start),
        }
    }

    /// Does what starts the relay.
    pub(super) fn of_relay<T: Send>(self, start: impl FnOnce() -> T + Send) -> Result<T> {
        on(self.relays()?.into_iter(), start)
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
