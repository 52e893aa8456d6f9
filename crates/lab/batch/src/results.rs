//! The folder that a sweep leaves: records, machine, scenario, report.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use midspan_report::Machine;
use midspan_scenario::Scenario;
use midspan_scenario::record::{self, Backend, Record, SCHEMA};
use rustix::fs::FlockOperation;

use crate::machine;
use crate::sweep::{self, Selection};

/// The records, one a line.
pub const RECORDS: &str = "records.jsonl";
/// The same, of a run that is kept: nothing is added to it.
pub const COMPRESSED: &str = "records.jsonl.gz";
/// The scenario's text.
pub const SCENARIO: &str = "scenario.toml";
/// The machine's description.
pub const MACHINE: &str = "machine.json";
/// What somebody has written about why the results differ.
pub const EXPLANATIONS: &str = "explanations.txt";
/// The command that asked for the results.
pub const COMMAND: &str = "command.txt";

/// Makes a folder of this name, or with a number behind it if others came first.
fn new_folder(base: &Path, name: &str) -> io::Result<PathBuf> {
    let mut folder = base.join(name);
    let mut others = 1;
    while let Err(error) = fs::create_dir(&folder) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        others += 1;
        folder = base.join(format!("{name}-{others}"));
    }
    Ok(folder)
}

/// A sweep whose results go into a folder.
#[derive(Debug, Clone, Copy)]
pub struct Sweep<'a> {
    /// The scenario, or its short version.
    pub scenario: &'a Scenario,
    /// The text of its file, kept with the results.
    pub text: &'a str,
    /// What runs it.
    pub backend: Backend,
    /// The part of it that is asked for.
    pub selection: &'a Selection,
}

impl Sweep<'_> {
    /// The newest folder below `base`, if this very sweep was begun in it on this machine and is not through, to go on
    /// there; a new one otherwise, or if it is to begin afresh. `command` is what asked for it.
    ///
    /// # Errors
    /// When the folder cannot be read or written, or somebody else is at work in it.
    pub fn folder(&self, base: &Path, fresh: bool, command: &str) -> Result<Results> {
        let is_unfinished = |done: &[Record]| {
            done.iter().all(|record| record.backend == self.backend)
                && !sweep::plan(self.scenario, self.selection, done).is_empty()
        };
        if !fresh && let Some(results) = Results::unfinished(base, self.scenario, is_unfinished) {
            let results = results.locked()?;
            let directory = results.directory().display();
            if results.machine()? == machine::inspect() {
                eprintln!(
                    "going on with the unfinished sweep in {directory} (--fresh begins anew)"
                );
                return Ok(results);
            }
            eprintln!("the sweep in {directory} was begun on another machine: this is a new one");
        }
        Results::create(base, self.text, command)
    }
}

/// A results folder.
#[derive(Debug)]
pub struct Results {
    directory: PathBuf,
    /// Held as long as this may write, so that no two sweeps write into one folder.
    lock: Option<File>,
    done: Vec<Record>,
    /// Bytes of the records' file up to the end of the last whole line.
    whole: u64,
}

impl Results {
    /// A new folder in `base`, named by the time, with everything but records in it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(base: &Path, scenario_text: &str, command: &str) -> Result<Results> {
        let now = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
        let directory = &fs::create_dir_all(base)
            .and_then(|()| new_folder(base, &now))
            .with_context(|| format!("cannot create {}", base.join(&now).display()))?;
        let machine = serde_json::to_string_pretty(&machine::inspect())?;
        write(&directory.join(SCENARIO), scenario_text)?;
        write(&directory.join(MACHINE), &format!("{machine}\n"))?;
        write(&directory.join(COMMAND), &format!("{command}\n"))?;
        Results::read(directory)?.locked()
    }

    /// The same, to be written to by nobody else while this lives.
    ///
    /// # Errors
    /// When another program has it, or it is a recorded run.
    pub fn locked(mut self) -> Result<Results> {
        if self.directory.join(COMPRESSED).exists() {
            bail!("{} is a recorded run: nothing is added to it", self.directory.display());
        }
        let folder = File::open(&self.directory)?;
        rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).with_context(
            || format!("another `midspan lab run` is at work in {}", self.directory.display()),
        )?;
        self.lock = Some(folder);
        Ok(self)
    }

    /// A folder that exists, with the records that are in it, compressed or not. A last line that was cut
    /// off is dropped: its run will be made again.
    ///
    /// # Errors
    /// When it cannot be read, or holds something else than records.
    pub fn read(directory: &Path) -> Result<Results> {
        let mut path = directory.join(RECORDS);
        let mut text = fs::read_to_string(&path);
        if text.as_ref().is_err_and(is_absent) {
            path = directory.join(COMPRESSED);
            text = unpacked(&path);
        }
        let text = match text {
            Err(error) if is_absent(&error) => String::new(),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        let done = record::parse_lines(&text[..whole], &path.display().to_string())?;
        Ok(Results { directory: directory.to_owned(), lock: None, done, whole: whole as u64 })
    }

    /// The newest folder below `base` that has results, if they are unfinished ones of this very
    /// scenario.
    pub fn unfinished(
        base: &Path,
        scenario: &Scenario,
        is_unfinished: impl Fn(&[Record]) -> bool,
    ) -> Option<Results> {
        let mut folders: Vec<PathBuf> =
            fs::read_dir(base).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        folders.sort();
        let newest = folders
            .into_iter()
            .rev()
            .filter_map(|folder| Results::read(&folder).ok())
            .find(|results| !results.done.is_empty())?;
        let same = newest.done.first()?.digest == scenario.digest();
        (same && is_unfinished(&newest.done)).then_some(newest)
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// All records, in the order in which they were made.
    pub fn records(&self) -> &[Record] {
        &self.done
    }

    /// Adds a record, on disk before this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, record: Record) -> Result<()> {
        let line = format!("{}\n", serde_json::to_string(&record)?);
        let path = self.directory.join(RECORDS);
        self.append(&path, &line).with_context(|| format!("cannot write {}", path.display()))?;
        self.done.push(record);
        Ok(())
    }

    /// Puts a line after the last whole one, in the place of one that was cut off.
    fn append(&mut self, path: &Path, line: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.set_len(self.whole)?;
        file.write_all(line.as_bytes())?;
        file.sync_data()?;
        self.whole += line.len() as u64;
        Ok(())
    }

    /// Writes all records into the folder `directory`, compressed. The same records always give the same
    /// bytes.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn compress_into(&self, directory: &Path) -> Result<()> {
        compress(&self.done, directory)
    }

    /// The text of the scenario that was run.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn scenario_text(&self) -> Result<String> {
        read(&self.directory.join(SCENARIO))
    }

    /// The scenario as its file was meant when the records were made: the full version.
    ///
    /// # Errors
    /// When it cannot be read, or is no scenario.
    pub fn scenario_file(&self) -> Result<Scenario> {
        let file = self.directory.join(SCENARIO).display().to_string();
        let schema = self.done.first().map_or(SCHEMA, |record| record.schema);
        Ok(Scenario::parse(&self.scenario_text()?, &file)?.as_of(schema))
    }

    /// The same in the version that the records are of, the full or the short one.
    ///
    /// # Errors
    /// As above, and when there are no records, or they are of neither.
    pub fn scenario(&self) -> Result<Scenario> {
        let Some(record) = self.done.first() else { bail!("the folder holds no records") };
        let file = self.scenario_file()?;
        let mut versions = [Some(&file), file.short()].into_iter().flatten();
        let version = versions.find(|version| version.has(record)).cloned();
        version.context("the records are of another scenario than the one beside them")
    }

    /// The machine that it was run on.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn machine(&self) -> Result<Machine> {
        let path = self.directory.join(MACHINE);
        serde_json::from_str(&read(&path)?)
            .with_context(|| format!("{} is not a machine's description", path.display()))
    }

    /// The command that asked for it, and what somebody has written below it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn command(&self) -> Result<String> {
        read(&self.directory.join(COMMAND))
    }

    /// Why the results differ from a paper's, as somebody has written beside them: the paragraphs
    /// of `explanations.txt`, if there is one.
    ///
    /// # Errors
    /// When it is there but cannot be read.
    pub fn explanations(&self) -> Result<Vec<String>> {
        let text = self.explanations_text()?.unwrap_or_default();
        let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
        Ok(paragraphs.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).collect())
    }

    /// The same as it stands there; none if there is none.
    ///
    /// # Errors
    /// When it is there but cannot be read.
    pub fn explanations_text(&self) -> Result<Option<String>> {
        let path = self.directory.join(EXPLANATIONS);
        path.exists().then(|| read(&path)).transpose()
    }

    /// Writes a file beside the records and answers its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        write(&path, text)?;
        Ok(path)
    }
}

/// Writes `records` into the folder `directory`, as a run that is kept has them.
pub fn compress(records: &[Record], directory: &Path) -> Result<()> {
    let path = directory.join(COMPRESSED);
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    for record in records {
        serde_json::to_writer(&mut packed, record)?;
        packed.write_all(b"\n")?;
    }
    fs::write(&path, packed.finish()?).with_context(|| format!("cannot write {}", path.display()))
}

fn unpacked(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    MultiGzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
