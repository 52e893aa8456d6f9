//! systemd's watchdog, which is fed while all workers live.

use std::time::{Duration, Instant};

use midspan_succession::manager;

use crate::phase::Phase;
use crate::workers::Workers;

/// A worker that has not been heard of for so long hangs: it says that it lives every second.
const HANGS: Duration = Duration::from_secs(5);

/// What is to be fed, if systemd wants it to be.
#[derive(Debug)]
pub(crate) struct Watchdog {
    interval: Option<Duration>,
    due: Instant,
}

impl Watchdog {
    pub(crate) fn new() -> Watchdog {
        Watchdog { interval: manager::watchdog_interval(), due: Instant::now() }
    }

    /// When it is to be fed next.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.interval.map(|_| self.due)
    }

    /// Feeds it, if it is time to and no worker hangs.
    pub(crate) fn feed(&mut self, workers: &Workers) {
        let Some(interval) = self.interval else { return };
        // Another relay is the service's main process then, and says for itself that it lives.
        if workers.phase() == Phase::Retire {
            self.interval = None;
            return;
        }
        let now = Instant::now();
        if now < self.due {
            return;
        }
        self.due = now + interval;
        // Draining workers end one by one.
        let lives = |age: Duration| age < HANGS || workers.phase() != Phase::Run;
        if !workers.heartbeat_ages().all(lives) {
            tracing::error!("a worker hangs: systemd is to restart the relay");
            return;
        }
        manager::tell(manager::State::Lives);
    }
}
