use serde::{Deserialize, Serialize};

use crate::estimator::{Counts, Estimator};
use crate::observation::{Arm, SizeClass};
use crate::regression::Moments;
use crate::settings::{Settings, SettingsError};
use crate::unit::{Known, Record, Unit};

/// All that an [`Estimator`] remembers of slots that are closed, as it is written down, in TOML or JSON. Nothing in it
/// is of a single subscriber.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Which form this is: [`State::VERSION`].
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed: Option<u64>,
    counts: Counts,
    moments: [Moments; SizeClass::ALL.len()],
    #[serde(default)]
    pins: Vec<Pin>,
    #[serde(default)]
    units: Vec<Record>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pin {
    arm: Arm,
    unit: Unit,
}

/// Why a [`State`] is not taken up.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum StateError {
    /// Written by another version.
    #[error("a state of version {0}: must be {version}", version = State::VERSION)]
    Version(u32),
    /// Numbers that cannot have come of scores.
    #[error("a state whose predictions cannot have come of transfers")]
    Predictions,
    /// Numbers that cannot have come of scores.
    #[error("a state whose record of {0:?} cannot have come of transfers")]
    Unit(Unit),
    /// A setting is outside its range.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl State {
    /// The version that is written and read.
    pub const VERSION: u32 = 1;
}

impl Estimator {
    /// All that is remembered of slots that are closed. Transfers in open ones are not in it, and are late after it is
    /// taken up.
    pub fn state(&self) -> State {
        State {
            version: State::VERSION,
            // Of slots that are open the slow transfers would be missing less often than the others.
            closed: self.last_slot(),
            counts: self.counts,
            moments: self.moments,
            pins: self.pins.iter().map(|(&unit, &arm)| Pin { arm, unit }).collect(),
            units: self.units.values().map(|(record, _)| record.clone()).collect(),
        }
    }

    /// Takes up what was remembered.
    ///
    /// # Errors
    /// When the state is of another version or cannot have been written by an estimator, or a setting is outside its
    /// range.
    pub fn restore(settings: Settings, state: State) -> Result<Self, StateError> {
        if state.version != State::VERSION {
            return Err(StateError::Version(state.version));
        }
        if !state.moments.iter().all(Moments::is_sane) {
            return Err(StateError::Predictions);
        }
        if let Some(record) = state.units.iter().find(|record| !record.is_sane()) {
            return Err(StateError::Unit(record.unit));
        }
        let mut estimator = Estimator::new(settings)?;
        estimator.closed = state.closed;
        estimator.counts = state.counts;
        estimator.moments = state.moments;
        estimator.pins = state.pins.into_iter().map(|Pin { arm, unit }| (unit, arm)).collect();
        let units = state.units.into_iter().map(|record| (record.unit, (record, Known::NOTHING)));
        estimator.units = units.collect();
        estimator.settle();
        Ok(estimator)
    }
}
