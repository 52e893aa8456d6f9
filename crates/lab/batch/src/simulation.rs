//! Runs in virtual time, spread over the machine's cores.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::Result;
use midspan_path::{Externals, Traces};
use midspan_scenario::Scenario;
use midspan_scenario::record::{Backend, Outcome, Record, SCHEMA};

use crate::sweep::PlannedRun;

/// What every simulated run of a scenario shares.
pub struct Simulation<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The traces that its path names, read already.
    pub traces: &'a Traces,
    /// The elements from outside that its path names.
    pub externals: &'a Externals,
}

impl Simulation<'_> {
    /// Makes all `runs` and hands each record to `keep`, in the order of the runs, whatever order
    /// they end in. Congestion controls that the scenario names are those that the user has built, too.
    ///
    /// # Errors
    /// When one of these cannot be had; else the first of `keep`: runs that are under way are made to their end, no
    /// others.
    pub fn run_all(
        &self,
        runs: &[PlannedRun<'_>],
        mut keep: impl FnMut(&PlannedRun<'_>, Record) -> Result<()>,
    ) -> Result<()> {
        midspan_ccown::open_named(self.scenario.controls().iter().map(String::as_str))?;
        let cores = thread::available_parallelism().map_or(1, usize::from).min(runs.len());
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..cores {
                let sender = sender.clone();
                scope.spawn(|| {
                    let sender = sender;
                    while !stop.load(Ordering::Relaxed) {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(run) = runs.get(number) else { return };
                        if sender.send((number, self.run(run))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            let mut early = BTreeMap::new();
            let mut kept = 0;
            for (number, record) in receiver {
                early.insert(number, record);
                while let Some(record) = early.remove(&kept) {
                    if let Err(error) = keep(&runs[kept], record) {
                        stop.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                    kept += 1;
                }
            }
            Ok(())
        })
    }

    /// Makes one run. One that fails is a record too, which says why.
    pub fn run(&self, run: &PlannedRun<'_>) -> Record {
        let seed = self.scenario.run_seed(run.cell, run.repetition);
        let Simulation { traces, externals, .. } = *self;
        let made = midspan_sim::run_with(&run.cell.spec, run.variant, traces, externals, seed);
        let outcome = match made {
            Ok((measurement, _)) => Outcome::Measured(measurement),
            Err(error) => Outcome::Failed { reason: error.to_string() },
        };
        Record {
            schema: SCHEMA,
            scenario: self.scenario.name.clone(),
            digest: self.scenario.digest(),
            backend: Backend::Sim,
            cell: run.cell.labels.clone(),
            variant: run.variant,
            repetition: run.repetition,
            seed,
            started_unix_ms: 0,
            outcome,
        }
    }
}
