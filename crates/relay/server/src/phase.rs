//! What the workers are to do.

use std::sync::atomic::{AtomicU8, Ordering};

/// What the workers are to do. It only ever becomes a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Take new flows.
    Run,
    /// Take no new flows, and end when the last one has.
    Drain,
    /// The same, and another relay has everything that is not the flows' own.
    Retire,
    /// Reset all flows and end.
    Stop,
}

/// A phase that one thread advances and others read.
#[derive(Debug)]
pub(crate) struct PhaseCell(AtomicU8);

impl PhaseCell {
    pub(crate) fn new() -> PhaseCell {
        PhaseCell(AtomicU8::new(Phase::Run as u8))
    }

    pub(crate) fn get(&self) -> Phase {
        match self.0.load(Ordering::Acquire) {
            0 => Phase::Run,
            1 => Phase::Drain,
            2 => Phase::Retire,
            _ => Phase::Stop,
        }
    }

    /// Goes on to a phase, unless it is past it already.
    pub(crate) fn advance(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_and_never_back() {
        let phase = PhaseCell::new();
        for to in [Phase::Run, Phase::Drain, Phase::Retire, Phase::Stop] {
            phase.advance(to);
            assert_eq!(phase.get(), to);
        }
        phase.advance(Phase::Drain);
        assert_eq!(phase.get(), Phase::Stop);
    }
}
