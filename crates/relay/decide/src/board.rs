//! What is told of decisions to who looks from outside.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use midspan_config::DecideMode;
use midspan_gain::{Decision, Estimate, Reason, Taken, Unit};
use midspan_observe::admin::{Decided, Decisions, Transfers};

/// What was decided last, and what became of what was heard.
#[derive(Debug)]
pub struct Board {
    mode: DecideMode,
    slot: Duration,
    shown: Mutex<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    decided: Vec<UnitDecision>,
    transfers: Transfers,
    harmed: Vec<String>,
}

/// What was decided of a unit.
#[derive(Debug)]
pub(crate) struct UnitDecision {
    pub(crate) unit: Unit,
    pub(crate) name: String,
    pub(crate) decision: Decision,
    /// An operator has said so, whatever was decided.
    pub(crate) is_pinned: bool,
    /// How often its gain has changed.
    pub(crate) changes: u32,
}

/// Units of one level, by what was decided of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Units {
    /// `prefix`, `service` or `place`.
    pub level: &'static str,
    /// `unknown`, `fine`, `harm` or `pinned`.
    pub because: &'static str,
    /// How many.
    pub count: u64,
}

impl Board {
    pub(crate) fn new(mode: DecideMode, slot: Duration) -> Board {
        Board { mode, slot, shown: Mutex::default() }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn show(&self, decided: Vec<UnitDecision>) {
        self.shown().decided = decided;
    }

    /// Whether others are harmed than were before.
    pub(crate) fn harmed_are_new(&self, harmed: &[String]) -> bool {
        let mut shown = self.shown();
        let is_new = harmed.iter().any(|name| !shown.harmed.contains(name));
        harmed.clone_into(&mut shown.harmed);
        is_new
    }

    pub(crate) fn count(&self, outcome: midspan_gain::TransferOutcome) {
        let mut shown = self.shown();
        let transfers = &mut shown.transfers;
        let count = match outcome {
            midspan_gain::TransferOutcome::Taken(Taken::Counted) => &mut transfers.counted,
            midspan_gain::TransferOutcome::Taken(Taken::Learned) => &mut transfers.learned,
            midspan_gain::TransferOutcome::Taken(Taken::Late) => &mut transfers.late,
            midspan_gain::TransferOutcome::Taken(Taken::Full) => &mut transfers.full,
            midspan_gain::TransferOutcome::Unsettled => &mut transfers.unsettled,
            midspan_gain::TransferOutcome::Empty => &mut transfers.empty,
            midspan_gain::TransferOutcome::Useless => &mut transfers.useless,
        };
        *count += 1;
    }

    /// One more was not heard of.
    pub fn lose(&self) {
        self.shown().transfers.lost += 1;
    }

    /// What became of the transfers that ended.
    pub fn transfers(&self) -> Transfers {
        self.shown().transfers
    }

    /// How many units there are, by what was decided of them.
    pub fn units(&self) -> Vec<Units> {
        let mut units: Vec<Units> = Vec::new();
        for unit in &self.shown().decided {
            let level = match unit.unit {
                Unit::All => continue,
                Unit::Prefix(_) => "prefix",
                Unit::Service { .. } => "service",
                Unit::Place(_) => "place",
            };
            let because = because(unit);
            match units.iter_mut().find(|one| (one.level, one.because) == (level, because)) {
                Some(one) => one.count += 1,
                None => units.push(Units { level, because, count: 1 }),
            }
        }
        units
    }

    /// What is known of all transfers together; none as long as none counted.
    pub fn of_all(&self) -> Option<Estimate> {
        let shown = self.shown();
        let all = shown.decided.iter().find(|unit| unit.unit == Unit::All)?;
        estimate(&all.decision)
            .filter(|estimate| estimate.unit == Unit::All && estimate.weight > 0.0)
    }

    /// All that was decided.
    pub fn decisions(&self) -> Decisions {
        let shown = self.shown();
        Decisions {
            is_dry_run: self.mode == DecideMode::DryRun,
            slot_s: self.slot.as_secs_f64(),
            transfers: shown.transfers,
            decided: shown.decided.iter().map(UnitDecision::to_answer).collect(),
        }
    }
}

fn because(unit: &UnitDecision) -> &'static str {
    match unit.decision.reason {
        _ if unit.is_pinned => "pinned",
        Reason::Pinned(_) => "pinned",
        Reason::Fine(_) => "fine",
        Reason::Harm(_) => "harm",
        Reason::Unknown(_) => "unknown",
    }
}

fn estimate(decision: &Decision) -> Option<Estimate> {
    match decision.reason {
        Reason::Pinned(_) => None,
        Reason::Fine(estimate) | Reason::Harm(estimate) | Reason::Unknown(estimate) => {
            Some(estimate)
        }
    }
}

impl UnitDecision {
    fn to_answer(&self) -> Decided {
        let level = match self.unit {
            Unit::All => "all",
            Unit::Prefix(_) => "prefix",
            Unit::Service { .. } => "service",
            Unit::Place(_) => "place",
        };
        let estimate = estimate(&self.decision);
        Decided {
            level: level.into(),
            of: self.name.clone(),
            split: if self.is_pinned { 1.0 } else { self.decision.split },
            because: because(self).into(),
            is_doubted: self.decision.is_doubted,
            gain: estimate.map(|estimate| estimate.gain.exp()),
            at_least: estimate.map(|estimate| estimate.interval.lower.exp()),
            at_most: estimate.map(|estimate| estimate.interval.upper.exp()),
            weight: estimate.map_or(0.0, |estimate| estimate.weight),
            changes: self.changes,
        }
    }
}
