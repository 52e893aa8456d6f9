//! The thread, and what it is told.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};

use midspan_config::Config;
use midspan_decide::{Board, Decider, Drawn, Due, Sent};
use midspan_gain::{Arm, Estimator};
use midspan_steer::{Chances, Course, Error, FlowRecord, OpenFlows, Verdict};
use midspan_sys::clock::monotonic;
use midspan_threads::{Background, Privileges};

use crate::state;

/// Records that wait to be heard of, at most.
const QUEUE: usize = 8192;
/// How long it waits for records before it looks whether it is to stop.
const WAIT: Duration = Duration::from_millis(200);
/// How long records are collected, so that who hands them over need not wake the thread for each.
const COLLECT: Duration = Duration::from_millis(20);

/// What is needed to learn, before anything is steered by it.
pub struct Learning {
    decider: Decider,
    chances: Chances,
    open: OpenFlows,
    state: Option<state::File>,
}

/// Where the records of connections that have ended are handed over. Nobody waits for it.
#[derive(Debug)]
pub struct Ended {
    queue: SyncSender<Drawn>,
    board: Arc<Board>,
}

impl Ended {
    /// Hands a record over, if it was drawn, or drops and counts it if too many wait.
    pub fn add(&self, record: &FlowRecord) {
        if let Some(drawn) = drawn(record)
            && self.queue.try_send(drawn).is_err()
        {
            self.board.lose();
        }
    }
}

impl Learning {
    /// Takes up what was learned before, and says to the steering program what follows from it. None if nothing is to be
    /// decided.
    ///
    /// # Errors
    /// When the program's maps do not take it.
    pub fn begin(
        config: &Config,
        chances: Chances,
        open: OpenFlows,
    ) -> Result<Option<Learning>, Error> {
        let Some(decide) = &config.decide else { return Ok(None) };
        let slot = Duration::from(config.policy.slot());
        let now = monotonic();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let since_1970 = Decider::since_1970(wall, now, slot);
        let state = decide.state.as_ref().map(|path| state::File::new(path));
        let settings = decide.settings();
        let estimator = state.as_ref().and_then(|file| file.read(settings, slot, since_1970 + now));
        let estimator = match estimator.map_or_else(|| Estimator::new(settings), Ok) {
            Ok(estimator) => estimator,
            // No configuration that was checked has any.
            Err(error) => {
                tracing::error!("nothing is decided: {error}");
                return Ok(None);
            }
        };
        let decider = Decider::new(config, decide, estimator, since_1970, now);
        chances.set_groups(decider.groups())?;
        let mut learning = Learning { decider, chances, open, state };
        learning.say()?;
        learning.show();
        Ok(Some(learning))
    }

    /// What it shows.
    pub fn board(&self) -> Arc<Board> {
        self.decider.board()
    }

    /// Learns from now on, until the thread is dropped.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn run(self, privileges: Privileges) -> io::Result<(Ended, Background)> {
        let (queue, records) = sync_channel(QUEUE);
        let ended = Ended { queue, board: self.board() };
        let thread = Background::start("decide", move |stop| {
            privileges.lower();
            self.learn(&records, stop);
        })?;
        Ok((ended, thread))
    }

    fn learn(mut self, records: &Receiver<Drawn>, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            match self.decider.poll(monotonic()) {
                Some(Due::Look) => self.look_at_open_ones(),
                Some(Due::Close) => self.close(),
                None => {}
            }
            let until = self.decider.poll_timeout().saturating_sub(monotonic());
            match records.recv_timeout(until.min(WAIT)) {
                Ok(drawn) => {
                    self.decider.ended(&drawn);
                    thread::sleep(COLLECT);
                    records.try_iter().take(QUEUE).for_each(|drawn| self.decider.ended(&drawn));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        while let Ok(drawn) = records.try_recv() {
            self.decider.ended(&drawn);
        }
        self.keep();
    }

    fn look_at_open_ones(&mut self) {
        let (now, decider) = (monotonic(), &mut self.decider);
        let looked = self.open.each(|record| {
            if let Some(drawn) = drawn(&record) {
                decider.runs(&drawn, now);
            }
        });
        if let Err(error) = looked {
            tracing::warn!(%error, "what runs at the end of a slot is missing in what is learned");
        }
        self.decider.looked(monotonic());
    }

    fn close(&mut self) {
        self.decider.close(monotonic());
        if let Err(error) = self.say() {
            tracing::error!(%error, "what was decided is not done");
        }
        self.keep();
        self.show();
    }

    fn keep(&self) {
        if let Some(state) = &self.state {
            state.write(self.decider.estimator(), self.decider.slot());
        }
    }

    /// Says it to the steering program.
    fn say(&mut self) -> Result<(), Error> {
        match self.decider.chances(monotonic()) {
            Some((decided, from)) => self.chances.set(&decided, from),
            None => Ok(()),
        }
    }

    fn show(&self) {
        if let Some(harmed) = self.decider.show() {
            let servers = harmed.join(", ");
            tracing::info!(servers, "splitting is slower to these, and mostly left");
        }
    }
}

/// What decisions go by of a record; none if it was not drawn, or not in a slot.
fn drawn(record: &FlowRecord) -> Option<Drawn> {
    let holdout = record.holdout?;
    let sent = |course: &Course| Sent {
        bytes: course.bytes,
        last: course.payload.map(|(_, last)| last),
        acknowledged: course.acknowledged.map(|(_, last)| last),
    };
    Some(Drawn {
        client: record.client,
        server: record.server,
        arm: match record.verdict {
            Verdict::Split => Arm::Split,
            Verdict::PassHoldout => Arm::Unsplit,
            _ => return None,
        },
        per_mille: holdout.per_mille,
        slot: holdout.slot?,
        start: record.start,
        up: sent(&record.up),
        down: sent(&record.down),
    })
}

#[cfg(test)]
mod tests {
    use midspan_decide::Because;
    use midspan_steer::{Drawn as Lot, Ending};

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn record() -> FlowRecord {
        let times = |first, last| Some((seconds(first), seconds(last)));
        let course =
            |bytes, payload, acknowledged| Course { bytes, payload, acknowledged, finished: false };
        let slot = Some(seconds(60));
        FlowRecord {
            client: "10.0.3.4:40000".parse().unwrap(),
            server: "192.0.2.200:443".parse().unwrap(),
            sequence: 1,
            verdict: Verdict::PassHoldout,
            start: seconds(65),
            holdout: Some(Lot { per_mille: 250, because: Because::Unknown, slot }),
            end: seconds(75),
            up: course(100, times(66, 66), times(67, 67)),
            down: course(20_000, times(67, 69), times(68, 70)),
            ending: Ending::Finished,
        }
    }

    #[test]
    fn only_what_was_drawn_in_a_slot_is_learned_from() {
        let unsplit = drawn(&record()).unwrap();
        assert_eq!((unsplit.arm, unsplit.per_mille), (Arm::Unsplit, 250));
        assert_eq!((unsplit.slot, unsplit.start), (seconds(60), seconds(65)));
        let down = Sent { bytes: 20_000, last: Some(seconds(69)), acknowledged: Some(seconds(70)) };
        assert_eq!((unsplit.up.bytes, unsplit.down), (100, down));
        let split = FlowRecord { verdict: Verdict::Split, ..record() };
        assert_eq!(drawn(&split).map(|drawn| drawn.arm), Some(Arm::Split));
        assert_eq!(drawn(&FlowRecord { verdict: Verdict::PassFull, ..record() }), None);
        assert_eq!(drawn(&FlowRecord { holdout: None, ..record() }), None);
        let mut alone = record();
        alone.holdout.as_mut().unwrap().slot = None;
        assert_eq!(drawn(&alone), None);
    }
}
