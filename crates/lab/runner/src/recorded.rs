//! Recorded runs: what is kept of results that docs quote, so that it can be judged and checked.
//!
//! A folder holds the command, the machine, the summary, and what somebody has written about it. Of a **live** run it has
//! the scenario and the records too, compressed: they cannot be had again. Of a **simulated** one it has a [`Digest`] in their
//! place, since the same scenario by the same program gives the same records, byte for byte: the command makes them again,
//! and what gives another digest today is stale. Its scenario is the file that the command names, not a copy of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use midspan_path::Traces;
use midspan_report::{Report, Terminal};
use midspan_scenario::record::{Record, Variant};
use midspan_scenario::{Scenario, digest_of_results};
use serde::{Deserialize, Serialize};

use crate::machine;
use crate::results::{COMMAND, COMPRESSED, EXPLANATIONS, MACHINE, Results, SCENARIO, compress};
use crate::simulation::{Externals, Simulation};
use crate::sweep::{self, Selection};

/// Stands in a recorded command for the folder of recorded traces, which is not part of the project.
pub const TRACES: &str = "RECORDINGS";

const DIGEST: &str = "digest.json";
const SUMMARY: &str = "summary.txt";

/// What stands for the records of a simulated run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digest {
    /// How many records it is of.
    pub records: usize,
    /// [`digest_of_results`] of them.
    pub sha256: String,
    /// Seconds of processor time that they took on the folder's machine, to a tenth: a guide to how long a check takes.
    pub processor_s: f64,
}

/// The folder of a recorded run.
#[derive(Debug)]
pub struct Recorded {
    directory: PathBuf,
}

/// What is kept of the records.
#[derive(Debug)]
pub enum Kept {
    /// Themselves, of a live run.
    Records(Results),
    /// Their digest, of a simulated one.
    Digest(Digest),
    /// Neither: `./run bench` made it, in a form of its own.
    Benchmark,
}

impl Recorded {
    /// The folder `directory`, which need not exist.
    pub fn at(directory: &Path) -> Recorded {
        Recorded { directory: directory.to_owned() }
    }

    /// What it keeps.
    ///
    /// # Errors
    /// When it cannot be read, or is no recorded run.
    pub fn kept(&self) -> Result<Kept> {
        let path = self.directory.join(DIGEST);
        if path.exists() {
            let digest = serde_json::from_str(&self.read(DIGEST)?);
            return digest.map(Kept::Digest).with_context(|| {
                format!("{}: wants `records`, `sha256` and `processor_s`", path.display())
            });
        }
        if self.directory.join("raw.jsonl").exists() || self.directory.join("machine.txt").exists()
        {
            return Ok(Kept::Benchmark);
        }
        let results = Results::read(&self.directory)?;
        anyhow::ensure!(
            !results.records().is_empty(),
            "{} is no recorded run: it holds neither records nor a {DIGEST}",
            self.directory.display()
        );
        Ok(Kept::Records(results))
    }

    /// The records beside the digest of a simulated run; none if there are none.
    ///
    /// # Errors
    /// When they cannot be read, or are not those of `digest`.
    pub fn records_of(&self, digest: &Digest) -> Result<Option<Vec<Record>>> {
        if !self.directory.join(COMPRESSED).exists() {
            return Ok(None);
        }
        let records = Results::read(&self.directory)?.records().to_vec();
        anyhow::ensure!(
            digest_of_results(&records) == digest.sha256,
            "{}: its records are not those of its {DIGEST}",
            self.directory.display()
        );
        Ok(Some(records))
    }

    /// The command, without what somebody has written below it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn command(&self) -> Result<String> {
        Ok(self.read(COMMAND)?.lines().next().unwrap_or_default().to_owned())
    }

    /// The summary, as it would be drawn today from the same results.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn summary(&self) -> Result<String> {
        self.read(SUMMARY)
    }

    /// Keeps live results: their records, and what stands beside them, with the summary drawn anew.
    ///
    /// # Errors
    /// When something cannot be read or written, or the records are not of `scenario`.
    pub fn keep_live(&self, results: &Results, scenario: &Scenario) -> Result<()> {
        let summary = summary_of(scenario, results.records())?;
        let machine = serde_json::to_string_pretty(&results.machine()?)?;
        self.create()?;
        results.compress_into(&self.directory)?;
        self.write(COMMAND, &results.command()?)?;
        self.write(MACHINE, &format!("{machine}\n"))?;
        self.write(SCENARIO, &results.scenario_text()?)?;
        self.write(SUMMARY, &summary)?;
        self.keep_explanations(results)
    }

    /// Keeps what was simulated, and the command that makes it again; the records too `with_records`, or if it had them.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn keep_simulated(
        &self,
        command: &str,
        simulated: &Simulated,
        with_records: bool,
    ) -> Result<()> {
        self.create()?;
        if with_records || self.directory.join(COMPRESSED).exists() {
            compress(&simulated.records, &self.directory)?;
        }
        let machine = serde_json::to_string_pretty(&machine::inspect())?;
        let digest = serde_json::to_string_pretty(&simulated.digest)?;
        self.write(COMMAND, &format!("{command}\n"))?;
        self.write(MACHINE, &format!("{machine}\n"))?;
        self.write(DIGEST, &format!("{digest}\n"))?;
        self.write(SUMMARY, &simulated.summary)
    }

    /// Takes over what somebody has written beside results.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn keep_explanations(&self, results: &Results) -> Result<()> {
        match results.explanations_text()? {
            Some(text) => self.write(EXPLANATIONS, &text),
            None => Ok(()),
        }
    }

    /// Draws the summary of a live run anew.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_summary(&self, text: &str) -> Result<()> {
        self.write(SUMMARY, text)
    }

    fn create(&self) -> Result<()> {
        fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot create {}", self.directory.display()))
    }

    fn read(&self, name: &str) -> Result<String> {
        let path = self.directory.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A scenario simulated now, as far as it is kept.
#[derive(Debug)]
pub struct Simulated {
    /// The records themselves.
    pub records: Vec<Record>,
    /// What stands for them.
    pub digest: Digest,
    /// Their summary, as on a terminal that knows nothing but text.
    pub summary: String,
}

impl Simulated {
    /// Simulates what `selection` asks for, on all cores, and writes nothing.
    ///
    /// # Errors
    /// When the selection leaves nothing to run.
    pub fn now(
        scenario: &Scenario,
        traces: &Traces,
        mut selection: Selection,
    ) -> Result<Simulated> {
        selection.unavailable.push(Variant::Haproxy);
        let runs = sweep::plan(scenario, &selection, &[]);
        anyhow::ensure!(!runs.is_empty(), "the selection leaves nothing to run");
        let before = processor_seconds();
        let mut records = Vec::with_capacity(runs.len());
        let simulation = Simulation {
            scenario,
            traces,
            externals: &Externals::default(),
            captures: None,
            qlogs: None,
            within: None,
        };
        simulation.run_all(&runs, |_, record| {
            records.push(record);
            Ok(())
        })?;
        let taken = processor_seconds() - before;
        let digest = Digest {
            records: records.len(),
            sha256: digest_of_results(&records),
            processor_s: (taken * 10.0).ceil() / 10.0,
        };
        Ok(Simulated { digest, summary: summary_of(scenario, &records)?, records })
    }
}

/// The text of a report on `records`.
///
/// # Errors
/// When they are not of `scenario`.
pub fn summary_of(scenario: &Scenario, records: &[Record]) -> Result<String> {
    Ok(Report::new(scenario, records)?.text(Terminal::PLAIN))
}

fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
