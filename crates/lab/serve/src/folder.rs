//! The folder that is shown, and what is in it: read anew as it grows.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use midspan_batch::results::{self, Results};
use midspan_batch::sweep::{Selection, plan};
use midspan_report::browse::{Listed, State, Sweep};
use midspan_report::{Machine, Report};
use midspan_scenario::Scenario;
use midspan_scenario::record::{Backend, Record, Variant};

use crate::locks::Locks;

/// Folders below the one that is shown are looked into this far down.
const DEPTH: usize = 6;

/// What a results folder's command asked for.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The short version of the scenario.
    pub short: bool,
    /// The part of it.
    pub selection: Selection,
}

/// Reads the command that stands in a results folder; none if it is no such command.
pub type Asker = fn(&str) -> Option<Asked>;

/// A folder with results somewhere below it, or itself one.
#[derive(Debug)]
pub struct Folder {
    /// Without links, so that what is below can be told from what is not.
    root: PathBuf,
    /// As its user named it.
    name: String,
    asker: Asker,
    /// What is known of each run, and of which state of its files.
    known: Mutex<BTreeMap<String, (Stamp, Listed)>>,
}

/// Changes when a run's records do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Stamp {
    begun: Option<SystemTime>,
    changed: Option<SystemTime>,
    bytes: u64,
    is_held: bool,
}

/// All that a report is made of.
pub(crate) struct Loaded {
    scenario: Scenario,
    results: Results,
    source: String,
    machine: Option<Machine>,
    explanations: Vec<String>,
    asked: Asked,
}

impl Folder {
    /// The folder at `path`.
    ///
    /// # Errors
    /// When it is not there, or no folder.
    pub fn open(path: &Path, asker: Asker) -> io::Result<Folder> {
        let root = path.canonicalize()?;
        // Says what is wrong with it, if something is.
        fs::read_dir(&root)?;
        let name = path.display().to_string();
        Ok(Folder { root, name, asker, known: Mutex::default() })
    }

    /// As its user named it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// All runs, in the order of their paths.
    pub(crate) fn runs(&self) -> Vec<Listed> {
        let runs: Vec<Listed> =
            self.stamps().into_iter().map(|(id, stamp)| self.listed(id, stamp)).collect();
        let is_there = |id: &String| runs.iter().any(|run| run.id == *id);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| is_there(id));
        runs
    }

    /// One run; none if there is none of that path.
    pub(crate) fn run(&self, id: &str) -> Option<Listed> {
        let directory = self.find(id)?;
        Some(self.listed(id.to_owned(), Stamp::of(&directory, &Locks::now())))
    }

    /// A word that is another one once anything has changed.
    pub(crate) fn fingerprint(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.stamps().hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// What is in a run's folder.
    pub(crate) fn load(&self, id: &str) -> Result<Loaded> {
        let directory = self.find(id).context("there are no such results")?;
        for name in FILES {
            let path = directory.join(name);
            // A link may lead anywhere.
            if path.canonicalize().is_ok_and(|path| !path.starts_with(&self.root)) {
                bail!("{name} is a link out of the folder");
            }
        }
        let results = Results::read(&directory)?;
        let command = results.command().unwrap_or_default();
        let asked = command.lines().next().and_then(self.asker).unwrap_or_default();
        let scenario = match results.records() {
            [] => {
                let file = results.scenario_file()?;
                file.short().filter(|_| asked.short).unwrap_or(&file).clone()
            }
            _ => results.scenario()?,
        };
        Ok(Loaded {
            scenario,
            source: results.scenario_text()?,
            machine: results.machine().ok(),
            explanations: results.explanations()?,
            asked,
            results,
        })
    }

    /// Where a run is. An id that leads out of the folder, by dots or by a link, has none.
    fn find(&self, id: &str) -> Option<PathBuf> {
        let below = Path::new(id);
        let is_below = below.components().all(|part| matches!(part, Component::Normal(_)));
        let directory = is_below.then(|| self.root.join(below).canonicalize().ok()).flatten()?;
        let is_run = directory.starts_with(&self.root) && is_results(&directory);
        is_run.then_some(directory)
    }

    /// Every run's path and stamp.
    fn stamps(&self) -> Vec<(String, Stamp)> {
        let locks = Locks::now();
        let mut found = Vec::new();
        walk(&self.root, DEPTH, &mut found);
        let mut stamps: Vec<(String, Stamp)> = found
            .into_iter()
            .filter_map(|directory| {
                let id = directory.strip_prefix(&self.root).ok()?.to_str()?.to_owned();
                Some((id, Stamp::of(&directory, &locks)))
            })
            .collect();
        stamps.sort_by(|one, other| one.0.cmp(&other.0));
        stamps
    }

    fn listed(&self, id: String, stamp: Stamp) -> Listed {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, listed)) = known().get(&id)
            && *of == stamp
        {
            return listed.clone();
        }
        let listed = self.read(&id, stamp);
        known().insert(id, (stamp, listed.clone()));
        listed
    }

    fn read(&self, id: &str, stamp: Stamp) -> Listed {
        let begun_unix_ms = stamp.begun.map_or(0, unix_ms);
        let loaded = self.load(id).and_then(|loaded| {
            let planned = loaded.planned();
            let first = loaded.results.records().iter().map(|record| record.started_unix_ms);
            let first = first.filter(|start| *start > 0).min();
            Ok((Sweep::of(&loaded.report()?, planned), first))
        });
        let (sweep, begun_unix_ms) = match loaded {
            Ok((sweep, first)) => (Ok(sweep), first.unwrap_or(begun_unix_ms)),
            Err(error) => (Err(one_line(&error)), begun_unix_ms),
        };
        let is_done = |sweep: &Sweep| sweep.counts.total() as usize >= sweep.planned;
        let state = match &sweep {
            Ok(sweep) if is_done(sweep) => State::Finished,
            _ if stamp.is_held => State::Running,
            _ => State::Unfinished,
        };
        Listed { id: id.to_owned(), state, begun_unix_ms, sweep }
    }
}

impl Loaded {
    /// The report on it.
    pub(crate) fn report(&self) -> Result<Report<'_>> {
        let mut report = Report::new(&self.scenario, self.results.records())?;
        report.source = Some(&self.source);
        report.machine = self.machine.as_ref();
        report.explanations = &self.explanations;
        Ok(report)
    }

    /// Whether a run has ended.
    pub(crate) fn has_records(&self) -> bool {
        !self.results.records().is_empty()
    }

    /// How many runs were asked for.
    fn planned(&self) -> usize {
        let mut selection = self.asked.selection.clone();
        if lacks_haproxy(&self.scenario, self.results.records()) {
            selection.unavailable.push(Variant::Haproxy);
        }
        plan(&self.scenario, &selection, &[]).len()
    }
}

impl Stamp {
    fn of(directory: &Path, locks: &Locks) -> Stamp {
        let changed = |name| fs::metadata(directory.join(name)).ok();
        let begun = changed(results::SCENARIO);
        let records = changed(results::RECORDS).or_else(|| changed(results::COMPRESSED));
        Stamp {
            begun: begun.and_then(|file| file.modified().ok()),
            changed: records.as_ref().and_then(|file| file.modified().ok()),
            bytes: records.map_or(0, |file| file.len()),
            is_held: locks.hold(directory),
        }
    }
}

/// What is read of a results folder.
const FILES: [&str; 6] = [
    results::RECORDS,
    results::COMPRESSED,
    results::SCENARIO,
    results::MACHINE,
    results::COMMAND,
    results::EXPLANATIONS,
];

/// Whether HAProxy does not run here: it is not simulated, and where it is not installed live runs leave it out. Each cell's
/// variants run one after the other, so that it is seen early.
fn lacks_haproxy(scenario: &Scenario, records: &[Record]) -> bool {
    let is_simulated = records.first().is_some_and(|record| record.backend == Backend::Sim);
    let is_seen = records.iter().any(|record| record.variant == Variant::Haproxy);
    is_simulated || !is_seen && records.len() >= scenario.variants.len()
}

/// The results folders in `directory`, which are not looked into any further. Links are not followed.
fn walk(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if is_results(directory) {
        found.push(directory.to_owned());
        return;
    }
    // What cannot be read has nothing to show.
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), depth - 1, found);
        }
    }
}

/// Whether a sweep made this folder: recorded runs that keep a digest alone have no scenario.
fn is_results(directory: &Path) -> bool {
    let has = |name| directory.join(name).is_file();
    has(results::SCENARIO)
        && [results::MACHINE, results::RECORDS, results::COMPRESSED].into_iter().any(has)
}

fn unix_ms(instant: SystemTime) -> u64 {
    let since = instant.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn one_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
