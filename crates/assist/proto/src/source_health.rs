use midspan_units::{Span, Time};
use serde::{Deserialize, Serialize};

/// What a source of radio data can do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// What it said could not be read.
    Unreadable,
    /// Its clock stood still or went backwards: old data, again.
    Stale,
    /// It reported what cannot be, and was clipped.
    Implausible,
}

/// When a source is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthLimits {
    /// Silence after which a source counts as stalled.
    pub stall: Span,
    /// Faults in a row that cut a source off; good readings make up for them, [`GOOD_PER_FAULT`] for one.
    pub faults: u32,
    /// For how long the first time; twice as long each further time, up to 32 times.
    pub penalty: Span,
    /// Good readings without a fault that it then takes to be believed again.
    pub probation: u32,
}

impl Default for HealthLimits {
    fn default() -> Self {
        HealthLimits {
            stall: Span::from_secs(1),
            faults: 10,
            penalty: Span::from_secs(10),
            probation: 20,
        }
    }
}

/// How many good readings make up for one fault: a source with fewer than one fault in eight stays.
pub const GOOD_PER_FAULT: u32 = 8;

/// What a source is worth now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// It is believed.
    Believed,
    /// It has said nothing for too long; what it says next is believed.
    Stalled,
    /// It has done wrong too often, and is not listened to.
    CutOff,
    /// The time of being cut off is over; what it says is watched and not yet used.
    OnProbation,
}

impl HealthState {
    /// Whether what it says is used.
    pub const fn is_believed(self) -> bool {
        matches!(self, HealthState::Believed)
    }

    /// In words.
    pub const fn label(self) -> &'static str {
        match self {
            HealthState::Believed => "believed",
            HealthState::Stalled => "stalled",
            HealthState::CutOff => "cut off",
            HealthState::OnProbation => "on probation",
        }
    }
}

/// Watches one source: a source that stalls or lies is cut off, not believed.
#[derive(Debug, Clone)]
pub struct SourceHealth {
    limits: HealthLimits,
    state: State,
    /// In steps of `1 / GOOD_PER_FAULT` of a fault.
    score: u32,
    last_good: Time,
    times_cut: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Believed,
    CutOff { until: Time },
    OnProbation { left: u32 },
}

impl SourceHealth {
    /// A source of which nothing is known yet, from `now`.
    pub fn new(limits: HealthLimits, now: Time) -> SourceHealth {
        SourceHealth { limits, state: State::Believed, score: 0, last_good: now, times_cut: 0 }
    }

    /// A reading without fault has come. True if it may be used.
    pub fn good(&mut self, now: Time) -> bool {
        self.update(now);
        match &mut self.state {
            State::CutOff { .. } => return false,
            State::OnProbation { left: left @ 1.. } => *left -= 1,
            State::OnProbation { .. } | State::Believed => {
                self.state = State::Believed;
                self.score = self.score.saturating_sub(1);
            }
        }
        self.last_good = now;
        self.state == State::Believed
    }

    /// The source has done wrong. True if that cuts it off now.
    pub fn fault(&mut self, now: Time) -> bool {
        self.update(now);
        let too_often = match self.state {
            State::CutOff { .. } => return false,
            State::OnProbation { .. } => true,
            State::Believed => {
                self.score += GOOD_PER_FAULT;
                self.score >= self.limits.faults.saturating_mul(GOOD_PER_FAULT)
            }
        };
        if too_often {
            let penalty = self.limits.penalty * (1 << self.times_cut.min(5));
            self.times_cut += 1;
            self.state = State::CutOff { until: now + penalty };
        }
        too_often
    }

    /// What the source is worth at `now`.
    pub fn state(&self, now: Time) -> HealthState {
        let mut at = self.clone();
        at.update(now);
        match at.state {
            State::CutOff { .. } => HealthState::CutOff,
            State::OnProbation { .. } => HealthState::OnProbation,
            State::Believed if now.since(self.last_good) > self.limits.stall => {
                HealthState::Stalled
            }
            State::Believed => HealthState::Believed,
        }
    }

    fn update(&mut self, now: Time) {
        if matches!(self.state, State::CutOff { until } if now >= until) {
            self.state = State::OnProbation { left: self.limits.probation };
            self.score = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: Span = Span::from_millis(50);

    fn source() -> (SourceHealth, Time) {
        (SourceHealth::new(HealthLimits::default(), Time::ZERO), Time::ZERO)
    }

    #[test]
    fn a_source_that_lies_is_cut_off_and_must_earn_its_way_back() {
        let (mut source, mut now) = source();
        let cut = (1..).find(|_| source.fault(now)).unwrap();
        assert_eq!(cut, 10);
        assert_eq!(source.state(now), HealthState::CutOff);
        assert!(!source.good(now + Span::from_secs(9)));
        now += Span::from_secs(10);
        assert_eq!(source.state(now), HealthState::OnProbation);
        let believed_after = (1..).find(|_| source.good(now)).unwrap();
        assert_eq!(believed_after, 21);
        assert_eq!(source.state(now), HealthState::Believed);
    }

    #[test]
    fn a_lie_on_probation_doubles_the_penalty() {
        let (mut source, mut now) = source();
        for _ in 0..10 {
            source.fault(now);
        }
        now += Span::from_secs(10);
        assert!(source.fault(now));
        assert_eq!(source.state(now + Span::from_secs(19)), HealthState::CutOff);
        assert_eq!(source.state(now + Span::from_secs(20)), HealthState::OnProbation);
    }

    #[test]
    fn silence_is_a_stall_that_ends_with_the_next_word() {
        let (mut source, mut now) = source();
        assert!(source.good(now));
        now += Span::from_millis(1_001);
        assert_eq!(source.state(now), HealthState::Stalled);
        assert!(source.good(now));
        assert_eq!(source.state(now), HealthState::Believed);
    }

    proptest! {
        /// One fault in ten readings never cuts a source off; two in ten always do.
        #[test]
        fn what_decides_is_the_share_of_faults(offset in 0usize..10, often in any::<bool>()) {
            let (mut source, mut now) = source();
            let mut cut = false;
            for index in 0..1_000 {
                now += WINDOW;
                let fault = index % 10 == offset || often && index % 10 == (offset + 5) % 10;
                cut |= if fault { source.fault(now) } else { !source.good(now) };
            }
            prop_assert_eq!(cut, often);
        }
    }
}
