//! The thread that learns, and what it is told.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use midspan_config::{Config, DecideMode};
use midspan_gain::{Estimator, Learner, Reason, Unit};
use midspan_steer::{Because, Chance, Chances, Error, FlowRecord, Of, OpenFlows};
use midspan_sys::clock::monotonic;
use midspan_threads::{Background, Privileges};

use crate::board::{Board, UnitDecision};
use crate::places::{self, Places};
use crate::state;

/// Records that wait to be heard of, at most.
const QUEUE: usize = 8192;
/// How long it waits for records before it looks whether it is to stop.
const WAIT: Duration = Duration::from_millis(200);
/// How long records of connections that have ended may be on their way.
const ON_THE_WAY: Duration = Duration::from_millis(500);
/// After how long without a connection a place is forgotten.
const FORGET: Duration = Duration::from_secs(14 * 86_400);

/// What is needed to decide, before anything is steered by it.
pub struct Decider {
    learner: Learner,
    places: Places,
    chances: Chances,
    open: OpenFlows,
    state: Option<state::File>,
    /// What the monotonic clock's time is to be added to: its slots then begin at multiples of their length since 1970, or
    /// less than one later.
    since_1970: Duration,
    is_dry: bool,
    board: Arc<Board>,
}

/// Where the records of connections that have ended are handed over. Nobody waits for it.
#[derive(Debug)]
pub struct Ended {
    queue: SyncSender<FlowRecord>,
    board: Arc<Board>,
}

impl Ended {
    /// Hands a record over, or drops and counts it if too many wait.
    pub fn add(&self, record: &FlowRecord) {
        if record.holdout.is_some() && self.queue.try_send(*record).is_err() {
            self.board.lose();
        }
    }
}

impl Decider {
    /// Takes up what was learned before, and says to the steering program what follows from it. None if nothing is to be
    /// decided.
    ///
    /// # Errors
    /// When the program's maps do not take it.
    pub fn begin(
        config: &Config,
        chances: Chances,
        open: OpenFlows,
    ) -> Result<Option<Decider>, Error> {
        let Some(decide) = &config.decide else { return Ok(None) };
        let slot = Duration::from(config.policy.slot());
        let now = monotonic();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let slots = wall.saturating_sub(now).as_nanos() / slot.as_nanos();
        let since_1970 = slot * u32::try_from(slots).unwrap_or(u32::MAX);
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
        let groups = if decide.groups.is_empty() { &config.clients } else { &decide.groups };
        chances.set_groups(groups)?;
        let mut decider = Decider {
            learner: Learner::new(estimator, slot),
            places: Places::new(groups.clone(), decide.always_split.clone()),
            chances,
            open,
            state,
            since_1970,
            is_dry: decide.mode == DecideMode::DryRun,
            board: Arc::new(Board::new(decide.mode, slot)),
        };
        decider.say()?;
        decider.tell();
        Ok(Some(decider))
    }

    /// What it shows.
    pub fn board(&self) -> Arc<Board> {
        self.board.clone()
    }

    /// Learns from now on, until the thread is dropped.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn run(self, privileges: Privileges) -> io::Result<(Ended, Background)> {
        let (queue, records) = sync_channel(QUEUE);
        let ended = Ended { queue, board: self.board.clone() };
        let thread = Background::start("decide", move |stop| {
            privileges.lower();
            self.learn(&records, stop);
        })?;
        Ok((ended, thread))
    }

    fn learn(mut self, records: &Receiver<FlowRecord>, stop: &AtomicBool) {
        // A slot that is to be closed, and when what ended in it has come here.
        let mut closing: Option<(u64, Duration)> = None;
        let mut next = self.learner.next_due(self.now());
        while !stop.load(Ordering::Acquire) {
            let now = self.now();
            match closing {
                Some((slot, at)) if now >= at => {
                    closing = None;
                    self.close(slot);
                    next = self.learner.next_due(self.now());
                }
                None if now >= next => match self.learner.due(now) {
                    Some(slot) => {
                        self.look_at_open_ones(slot);
                        closing =
                            Some((slot, self.now() + ON_THE_WAY.min(self.learner.slot() / 8)));
                    }
                    None => next = self.learner.next_due(now),
                },
                _ => {}
            }
            let until = closing.map_or(next, |(_, at)| at).saturating_sub(self.now());
            match records.recv_timeout(until.min(WAIT)) {
                Ok(record) => self.hear(&record),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        while let Ok(record) = records.try_recv() {
            self.hear(&record);
        }
        self.keep();
    }

    /// As the learner counts time.
    fn now(&self) -> Duration {
        self.since_1970 + monotonic()
    }

    fn hear(&mut self, record: &FlowRecord) {
        if let Some(transfer) = self.places.transfer(record, self.since_1970, None) {
            let outcome = self.learner.ended(&transfer);
            self.board.count(outcome);
        }
    }

    fn look_at_open_ones(&mut self, slot: u64) {
        let (now, since_1970) = (self.now(), self.since_1970);
        let (places, learner) = (&self.places, &mut self.learner);
        let looked = self.open.each(|record| {
            if let Some(transfer) = places.transfer(&record, since_1970, Some(now - since_1970)) {
                learner.runs(&transfer, slot);
            }
        });
        if let Err(error) = looked {
            tracing::warn!(%error, "what runs at the end of a slot is missing in what is learned");
        }
    }

    fn close(&mut self, slot: u64) {
        self.learner.close(slot);
        self.learner.forget(self.now(), FORGET);
        if let Err(error) = self.say() {
            tracing::error!(%error, "what was decided is not done");
        }
        self.keep();
        self.tell();
    }

    fn keep(&self) {
        if let Some(state) = &self.state {
            state.write(self.learner.estimator(), self.learner.slot());
        }
    }

    /// Says it to the steering program.
    fn say(&mut self) -> Result<(), Error> {
        if self.is_dry {
            return Ok(());
        }
        let mut decided = BTreeMap::new();
        for (unit, decision) in self.learner.estimator().decisions() {
            let because = match decision.reason {
                Reason::Pinned(_) => Because::Pinned,
                Reason::Unknown(_) => Because::Unknown,
                Reason::Fine(_) => Because::Fine,
                Reason::Harm(_) => Because::Harm,
            };
            let per_mille = ((1.0 - decision.split) * 1000.0).round() as u16;
            let chance = self.places.pinned(unit).unwrap_or(Chance { per_mille, because });
            decided.extend(self.places.of(unit).into_iter().map(|of| (of, chance)));
        }
        for &net in self.places.always_split() {
            decided.insert(Of::Servers(net), places::SPLIT);
        }
        let slot = self.learner.slot().as_nanos();
        let next = u64::try_from(monotonic().as_nanos() / slot + 1).unwrap_or(u64::MAX);
        self.chances.set(&decided, next)
    }

    /// Shows it.
    fn tell(&self) {
        let estimator = self.learner.estimator();
        let decided = estimator.decisions().map(|(unit, decision)| UnitDecision {
            unit,
            name: self.places.name(unit),
            decision,
            is_pinned: self.places.pinned(unit).is_some(),
            changes: estimator.changes(unit),
        });
        let decided: Vec<UnitDecision> = decided.collect();
        let harmed = decided.iter().filter(|unit| {
            matches!(unit.unit, Unit::Service { .. })
                && matches!(unit.decision.reason, Reason::Harm(_))
        });
        let named: Vec<&str> = harmed.map(|unit| unit.name.as_str()).collect();
        if self.board.harmed_are_new(&named) {
            tracing::info!(
                servers = named.join(", "),
                "splitting is slower to these, and mostly left"
            );
        }
        self.board.show(decided);
    }
}
