//! Whether a worker is in a hurry to run.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setpriority_process};
use rustix::thread::{CapabilitySet, capabilities};

use super::Worker;
use crate::flow::Carried;

/// Rounds on end that have carried much, and nothing else, before there is no hurry.
const MUCH_ROUNDS: u32 = 256;
/// The most that are asked for, where being at ease was in vain.
const MOST_ROUNDS: u32 = MUCH_ROUNDS << 12;
/// Rounds at ease between two looks at how long it had to wait for its processor.
const LOOK: u32 = 64;
/// How long others may take for it to be worth while: who takes longer has other work than ours.
const SHORT: Duration = Duration::from_micros(500);
/// The priority of any thread.
const ORDINARY: i32 = 0;
/// Bytes that a flow may move in each direction before other flows get their turn.
const TURN: u64 = 1 << 20;
/// The same where there is no hurry.
const LONG_TURN: u64 = 4 << 20;

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    None,
    /// See how long the processor was waited for.
    Look,
    Change,
}

/// Whether there is a hurry, by what was carried and how long the processor was waited for.
#[derive(Debug)]
struct Judgement {
    at_ease: bool,
    /// Rounds since little was carried, or since the last look.
    rounds: u32,
    /// Rounds without that which are asked for.
    needed: u32,
}

impl Judgement {
    const fn new() -> Judgement {
        Judgement { at_ease: false, rounds: 0, needed: MUCH_ROUNDS }
    }

    fn round(&mut self, carried: Carried) -> Step {
        match carried {
            Carried::Nothing => return Step::None,
            Carried::Much => self.rounds += 1,
            Carried::Little => {
                self.rounds = 0;
                return if std::mem::take(&mut self.at_ease) { Step::Change } else { Step::None };
            }
        }
        if self.rounds < if self.at_ease { LOOK } else { self.needed } {
            return Step::None;
        }
        self.rounds = 0;
        if self.at_ease {
            return Step::Look;
        }
        self.at_ease = true;
        Step::Change
    }

    /// For each turn of late it had to wait so long, on average.
    fn learn(&mut self, waited: Duration) -> Step {
        if waited < SHORT {
            self.needed = MUCH_ROUNDS;
            return Step::None;
        }
        self.needed = (self.needed * 2).min(MOST_ROUNDS);
        self.at_ease = false;
        Step::Change
    }
}

/// A worker whose flows all carry much at a time has time itself: turns may be longer, and at the priority of any thread it finds
/// more to do when it gets the processor. Where the ends of its flows are on the same machine the scheduler,
/// for which a thread of high priority is a heavy load, spreads them better. Whether that pays is seen in how
/// long it waits for the processor each time: ends of its own flows soon wait for it in their turn, strangers do not.
#[derive(Debug)]
pub(super) struct Haste {
    judgement: Judgement,
    /// None if it stays what it is.
    priority: Option<Priority>,
}

/// The calling thread's priority.
#[derive(Debug)]
struct Priority {
    /// That to hurry with.
    nice: i32,
    statistics: File,
    /// What they were when they were last looked at.
    turns: Turns,
}

/// How often a thread was given a processor, and how long it had waited for that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Turns {
    count: u64,
    waited: Duration,
}

impl Haste {
    /// For a thread whose priority stays what it is.
    pub(super) const fn new() -> Haste {
        Haste { judgement: Judgement::new(), priority: None }
    }

    pub(super) const fn is_at_ease(&self) -> bool {
        self.judgement.at_ease
    }

    /// Bytes that a flow may move in each direction before other flows get their turn.
    pub(super) const fn turn(&self) -> u64 {
        if self.is_at_ease() { LONG_TURN } else { TURN }
    }

    /// Takes in what a round has carried.
    fn round(&mut self, carried: Carried) -> io::Result<()> {
        let step = self.judgement.round(carried);
        let Some(priority) = &mut self.priority else { return Ok(()) };
        let change = match step {
            Step::None => false,
            Step::Look => self.judgement.learn(priority.waited()?) == Step::Change,
            Step::Change => true,
        };
        if change {
            priority.set(self.judgement.at_ease)?;
        }
        Ok(())
    }
}

impl Priority {
    /// Of the calling thread, which has this one. None if it has no other, or could not come back to it.
    fn new(nice: i32) -> io::Result<Option<Priority>> {
        if nice >= ORDINARY || !may_come_back_to(nice)? {
            return Ok(None);
        }
        let statistics = File::open("/proc/thread-self/schedstat")?;
        let turns = Turns::read(&statistics)?;
        Ok(Some(Priority { nice, statistics, turns }))
    }

    fn set(&mut self, at_ease: bool) -> io::Result<()> {
        setpriority_process(None, if at_ease { ORDINARY } else { self.nice })?;
        if at_ease {
            self.waited()?;
        }
        Ok(())
    }

    /// How long the processor was waited for each time, on average, since this was last asked.
    fn waited(&mut self) -> io::Result<Duration> {
        let turns = Turns::read(&self.statistics)?;
        let before = std::mem::replace(&mut self.turns, turns);
        let count = turns.count.saturating_sub(before.count).max(1);
        let waited = turns.waited.saturating_sub(before.waited);
        Ok(waited / u32::try_from(count).unwrap_or(u32::MAX))
    }
}

impl Turns {
    fn read(statistics: &File) -> io::Result<Turns> {
        let mut text = [0; 96];
        let length = statistics.read_at(&mut text, 0)?;
        Turns::parse(&text[..length]).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Of a thread's `schedstat`: nanoseconds that it ran and waited, and turns (proc(5)).
    fn parse(text: &[u8]) -> Option<Turns> {
        let mut numbers = str::from_utf8(text).ok()?.split_whitespace().skip(1);
        let waited = Duration::from_nanos(numbers.next()?.parse().ok()?);
        Some(Turns { count: numbers.next()?.parse().ok()?, waited })
    }
}

/// Whether the calling thread could raise its priority to this again.
fn may_come_back_to(nice: i32) -> io::Result<bool> {
    // RLIMIT_NICE counts from 1, for 19, to 40, for -20.
    let wanted = u64::try_from(20 - nice).unwrap_or_default();
    Ok(getrlimit(Resource::Nice).current.is_none_or(|limit| limit >= wanted)
        || capabilities(None)?.effective.contains(CapabilitySet::SYS_NICE))
}

impl Worker {
    /// Gives the calling thread, which is its own, this priority for what is in a hurry. To be called when it has
    /// given up the privileges that it does not need.
    pub(crate) fn set_priority(&mut self, nice: i32) {
        if let Err(error) = setpriority_process(None, nice) {
            tracing::debug!(%error, "a worker has the priority of any thread");
            return;
        }
        match Priority::new(nice) {
            Ok(priority) => self.haste.priority = priority,
            Err(error) => tracing::debug!(%error, "a worker always hurries"),
        }
    }

    /// Hurries or not, by what was carried in a round.
    pub(super) fn mind_haste(&mut self) {
        if let Err(error) = self.haste.round(std::mem::take(&mut self.carried)) {
            tracing::warn!(%error, "a worker keeps the priority that it has");
            self.haste = Haste::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(judgement: &mut Judgement, carried: Carried, count: u32) -> Vec<Step> {
        (0..count).map(|_| judgement.round(carried)).filter(|&step| step != Step::None).collect()
    }

    #[test]
    fn who_carries_much_alone_is_not_in_a_hurry() {
        let mut judgement = Judgement::new();
        assert_eq!(rounds(&mut judgement, Carried::Much, MUCH_ROUNDS - 1), []);
        assert_eq!(judgement.round(Carried::Little), Step::None);
        assert_eq!(rounds(&mut judgement, Carried::Much, MUCH_ROUNDS), [Step::Change]);
        assert!(judgement.at_ease);
        assert_eq!(rounds(&mut judgement, Carried::Nothing, 2 * LOOK), []);
        assert_eq!(judgement.round(Carried::Little), Step::Change);
        assert!(!judgement.at_ease);
    }

    #[test]
    fn who_waits_for_strangers_hurries_for_longer_and_longer() {
        let mut judgement = Judgement::new();
        let mut at_ease = 0;
        for _ in 0..200 * MUCH_ROUNDS {
            if judgement.round(Carried::Much) == Step::Look {
                assert_eq!(judgement.learn(3 * SHORT), Step::Change);
            }
            at_ease += u32::from(judgement.at_ease);
        }
        assert!((2 * LOOK..=8 * LOOK).contains(&at_ease), "{at_ease}");
        // But it tries again, and finds that it pays.
        while !judgement.at_ease {
            judgement.round(Carried::Much);
        }
        assert_eq!(rounds(&mut judgement, Carried::Much, LOOK), [Step::Look]);
        assert_eq!(judgement.learn(SHORT / 2), Step::None);
        assert_eq!(judgement.needed, MUCH_ROUNDS);
    }

    #[test]
    fn what_the_kernel_says_of_a_thread_is_read() {
        let turns = Turns { count: 17, waited: Duration::from_nanos(456) };
        assert_eq!(Turns::parse(b"123 456 17\n"), Some(turns));
        assert_eq!(Turns::parse(b"123 456\n"), None);
        let own = File::open("/proc/thread-self/schedstat").unwrap();
        assert!(Turns::read(&own).unwrap().count > 0);
    }
}
