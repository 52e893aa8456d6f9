//! Runs in virtual time, spread over the machine's cores.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, anyhow};
use midspan_path::Traces;
use midspan_scenario::record::{Backend, Measurement, Outcome, Record, SCHEMA};
use midspan_scenario::{Scenario, external_control};
pub use midspan_sim::Externals;
use midspan_sim::{Log, Observers, Place, Sight, Tap, run_observed};
use midspan_units::Time;

use crate::capture::{CaptureWriter, Captures};
use crate::qlog::{QlogFiles, Qlogs};
use crate::sweep::PlannedRun;

/// What every simulated run of a scenario shares.
pub struct Simulation<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The traces that its path names, read already.
    pub traces: &'a Traces,
    /// What it names of the caller's own.
    pub externals: &'a Externals,
    /// What to keep of packets, if anything.
    pub captures: Option<&'a Captures>,
    /// What to keep of what senders do, if anything.
    pub qlogs: Option<&'a Qlogs>,
    /// What each thread makes all its runs in, if it needs something for them.
    pub within: Option<Within>,
}

/// Does what it is given, once.
pub type Within = fn(&mut (dyn FnMut() + Send));

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
        let mut controls = self.scenario.controls();
        controls.retain(|name| external_control(name).is_none());
        midspan_ccown::open_named(controls.iter().map(String::as_str))?;
        let cores = thread::available_parallelism().map_or(1, usize::from).min(runs.len());
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..cores {
                let sender = sender.clone();
                let (next, stop) = (&next, &stop);
                scope.spawn(move || {
                    let mut work = || {
                        while !stop.load(Ordering::Relaxed) {
                            let number = next.fetch_add(1, Ordering::Relaxed);
                            let Some(run) = runs.get(number) else { return };
                            if sender.send((number, self.run(run))).is_err() {
                                return;
                            }
                        }
                    };
                    match self.within {
                        Some(within) => within(&mut work),
                        None => work(),
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
        let outcome = match self.attempt(run, seed) {
            Ok(measurement) => Outcome::Measured(measurement),
            Err(error) => Outcome::Failed { reason: format!("{error:#}") },
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

    fn attempt(&self, run: &PlannedRun<'_>, seed: u64) -> Result<Measurement> {
        let Simulation { traces, externals, .. } = *self;
        let files = self.captures.map(|captures| self.files(captures, run)).transpose()?;
        let files = files.map(|files| Rc::new(RefCell::new(files)));
        let tap = files
            .clone()
            .map(|files| -> Tap { Box::new(move |sight| files.borrow_mut().add(sight)) });
        let qlogs = self.qlogs.map(|qlogs| QlogFiles::new(qlogs, self.scenario, run));
        let qlogs = qlogs.map(|files| Rc::new(RefCell::new(files)));
        let log = qlogs
            .clone()
            .map(|files| -> Log { Box::new(move |end, told| files.borrow_mut().take(end, told)) });
        let (spec, variant) = (&run.cell.spec, run.variant);
        let observers = Observers { tap, log };
        let (measurement, _) = run_observed(spec, variant, traces, externals, seed, observers)
            .map_err(|error| anyhow!("{error}"))?;
        if let Some(files) = files {
            files.borrow_mut().finish().context("the captures are not complete")?;
        }
        if let Some(files) = qlogs {
            files.borrow_mut().finish().context("the files of qlog are not complete")?;
        }
        Ok(measurement)
    }

    /// Begins the files of a run's packets.
    fn files(&self, captures: &Captures, run: &PlannedRun<'_>) -> Result<Files> {
        let places: &[Place] = match run.cell.spec.cells {
            None => &Place::ROW,
            Some(_) => &Place::CELLS,
        };
        let begin = |place: &Place| {
            let file = captures.file(self.scenario, run, *place);
            let writer = CaptureWriter::create(&file)
                .with_context(|| format!("cannot write the capture {}", file.path.display()))?;
            Ok((*place, writer))
        };
        let writers = places.iter().map(begin).collect::<Result<_>>()?;
        Ok(Files { writers, written: Ok(()) })
    }
}

/// The files of a simulated run's packets.
struct Files {
    writers: BTreeMap<Place, CaptureWriter>,
    /// After what could not be written there is no more.
    written: io::Result<()>,
}

impl Files {
    fn add(&mut self, sight: &Sight<'_>) {
        if self.written.is_ok()
            && let Some(writer) = self.writers.get_mut(&sight.place)
        {
            let at = sight.at.since(Time::ZERO).into();
            self.written = writer.add(at, sight.wire_bytes, sight.headers);
        }
    }

    /// Whether everything is written.
    fn finish(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.written, Ok(()))?;
        self.writers.values_mut().try_for_each(CaptureWriter::flush)
    }
}
