//! The daemon's view of its sources: what they are worth, and which address an RNTI is.

use std::fs;
use std::net::IpAddr;
use std::time::SystemTime;

use midspan_assist_proto::{Basis, HealthState, Reading, Registry, SourceHealth, SourceId, UeMap};
use midspan_units::Time;

use super::status::{SourceCounts, SourceStatus};
use crate::source::{SourceConfig, SourceEvent, UeName};
use crate::tls::modified;

/// One source.
pub(super) struct Source {
    id: SourceId,
    config: SourceConfig,
    health: SourceHealth,
    /// What was last done about its health.
    state: HealthState,
    map: UeMap,
    map_changed: Option<SystemTime>,
    counts: SourceCounts,
    last_fault: Option<String>,
    newest: Option<Time>,
}

impl Source {
    pub(super) fn new(id: SourceId, config: SourceConfig, now: Time) -> Source {
        Source {
            id,
            health: SourceHealth::new(config.trust, now),
            state: HealthState::Believed,
            map: UeMap::default(),
            map_changed: None,
            counts: SourceCounts::default(),
            last_fault: None,
            newest: None,
            config,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// Takes what it says.
    pub(super) fn handle<B: Basis>(
        &mut self,
        event: SourceEvent<B>,
        registry: &mut Registry<B>,
        now: Time,
    ) {
        match event {
            SourceEvent::Readings(readings) => {
                if readings.is_empty() {
                    self.health.good(now);
                }
                for (name, reading) in readings {
                    self.reading(name, &reading, registry, now);
                }
            }
            SourceEvent::Unreadable(why) => {
                self.counts.unreadable += 1;
                self.fault(why, now);
            }
            SourceEvent::Stale(count) => {
                self.counts.stale += count as u64;
                self.fault("its clock stands still or goes backwards".into(), now);
            }
            SourceEvent::Down(why) => {
                self.counts.down += 1;
                if self.last_fault.as_ref() != Some(&why) {
                    tracing::warn!(source = self.config.name, "{why}");
                }
                self.last_fault = Some(why);
            }
        }
        self.update(registry, now);
    }

    fn reading<B: Basis>(
        &mut self,
        name: UeName,
        reading: &Reading<B>,
        registry: &mut Registry<B>,
        now: Time,
    ) {
        self.counts.readings += 1;
        self.newest = self.newest.max(Some(reading.at));
        if self.health.state(now) == HealthState::CutOff {
            self.counts.ignored += 1;
            return;
        }
        let address = match name {
            UeName::Address(address) => Some(address.to_canonical()),
            UeName::Rnti(rnti) => self.map.address(rnti),
        };
        let Some(address) = address else {
            // Not its fault.
            self.counts.unmapped += 1;
            self.health.good(now);
            return;
        };
        // On probation before it is told to anybody.
        registry.withhold(self.id, self.health.state(now) == HealthState::OnProbation);
        match registry.observe(self.id, address, reading, now) {
            Some(clip) => {
                self.counts.implausible += 1;
                self.fault(format!("{name}: implausible ({clip:?})").to_lowercase(), now);
            }
            None => {
                self.health.good(now);
            }
        }
    }

    fn fault(&mut self, why: String, now: Time) {
        if self.health.fault(now) {
            self.counts.cut_off += 1;
            tracing::warn!(source = self.config.name, "cut off: {why}");
        }
        self.last_fault = Some(why);
    }

    /// Acts on what it is worth now: once for each change.
    pub(super) fn update<B: Basis>(&mut self, registry: &mut Registry<B>, now: Time) {
        let state = self.health.state(now);
        if state == self.state {
            return;
        }
        match state {
            HealthState::CutOff => registry.forget_source(self.id),
            HealthState::Stalled => {
                self.counts.stalled += 1;
                tracing::warn!(source = self.config.name, "stalled");
                registry.forget_source(self.id);
            }
            HealthState::OnProbation | HealthState::Believed => {
                tracing::info!(source = self.config.name, verdict = ?state, "heard again");
            }
        }
        registry.withhold(self.id, state == HealthState::OnProbation);
        self.state = state;
    }

    /// Reads the file of RNTIs again if it changed. What it says replaces all that was known.
    ///
    /// # Errors
    /// When it cannot be used; then what was known holds.
    pub(super) fn read_map<B: Basis>(&mut self, registry: &mut Registry<B>) -> Result<(), String> {
        let Some(path) = &self.config.rnti else { return Ok(()) };
        let changed = modified(path);
        if changed == self.map_changed {
            return Ok(());
        }
        self.map_changed = changed;
        let in_file = |error: String| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| in_file(error.to_string()))?;
        let map = UeMap::parse(&text).map_err(|error| in_file(error.to_string()))?;
        for (rnti, address) in self.map.iter() {
            if map.address(rnti) != Some(address) {
                registry.forget_ue(self.id, address);
            }
        }
        self.map = map;
        Ok(())
    }

    /// From now on `rnti` is `address`.
    pub(super) fn map<B: Basis>(&mut self, rnti: u32, address: IpAddr, registry: &mut Registry<B>) {
        let before = self.map.address(rnti);
        if self.map.set(rnti, address.to_canonical()) {
            for stranger in before.into_iter().chain([address.to_canonical()]) {
                registry.forget_ue(self.id, stranger);
            }
        }
    }

    /// `rnti` is nobody's any more. False if it was nobody's.
    pub(super) fn unmap<B: Basis>(&mut self, rnti: u32, registry: &mut Registry<B>) -> bool {
        if let Some(address) = self.map.address(rnti) {
            registry.forget_ue(self.id, address);
        }
        self.map.remove(rnti)
    }

    pub(super) fn status(&self, now: Time) -> SourceStatus {
        SourceStatus {
            name: self.config.name.clone(),
            verdict: self.health.state(now),
            counts: self.counts,
            last_fault: self.last_fault.clone(),
            age: self.newest.map(|newest| now.since(newest)),
            mapped: self.map.iter().count(),
        }
    }
}
