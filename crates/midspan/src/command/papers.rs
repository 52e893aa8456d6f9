//! `midspan lab papers`: the papers' figures and tables with the recorded runs beside them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use midspan_lab::recorded::{Kept, Recorded};
use midspan_report::papers::{Paper, Papers, Runs, Values};
use midspan_scenario::Scenario;

use super::lab::{scenario_of, selected};
use super::recorded::parse_command;
use super::{BadInput, read_input};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder of this project's repository: reads bench/papers and bench/runs in it, writes docs/papers.md and docs/papers/
    #[arg(value_name = "DIR", default_value = ".")]
    repository: PathBuf,
    /// Write nothing, and say what is stale
    #[arg(long)]
    check: bool,
    /// Write one HTML page that needs nothing but itself, in place of docs/
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    html: Option<PathBuf>,
}

/// The page, in docs/, and the folder of its drawings beside it.
const PAGE: &str = "papers.md";
const DRAWINGS: &str = "papers";

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let root = &arguments.repository;
    let papers = read_papers(&root.join("bench/papers"))?;
    let runs = read_runs(root, &papers)?;
    let papers = Papers::new(papers, &runs).map_err(BadInput::because)?;
    if let Some(page) = &arguments.html {
        fs::write(page, papers.html())
            .with_context(|| format!("cannot write {}", page.display()))?;
        println!("Page: {}", page.display());
        return Ok(ExitCode::SUCCESS);
    }
    let docs = root.join("docs");
    let mut files = vec![(docs.join(PAGE), papers.markdown(DRAWINGS, ".."))];
    let drawings = papers.drawings();
    files.extend(drawings.map(|(name, text)| (docs.join(DRAWINGS).join(name), text)));
    let stale = stale(&files, &docs.join(DRAWINGS))?;
    if arguments.check {
        for path in &stale {
            println!("{}: stale; `midspan lab papers` makes it anew", path.display());
        }
        return Ok(if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    write(&files, &stale, &docs.join(DRAWINGS))?;
    println!("Page: {}, {} files written anew", docs.join(PAGE).display(), stale.len());
    Ok(ExitCode::SUCCESS)
}

/// The descriptions in a folder.
fn read_papers(directory: &Path) -> Result<Vec<Paper>> {
    let mut papers = Vec::new();
    for path in
        listed(directory)?.iter().filter(|path| path.extension().is_some_and(|end| end == "toml"))
    {
        let paper = toml::from_str(&read_input(path)?).map_err(|error| {
            let line = error.to_string().replace('\n', " ");
            BadInput::because(format!("{}: {}", path.display(), line.trim()))
        })?;
        papers.push(paper);
    }
    if papers.is_empty() {
        return Err(BadInput::because(format!(
            "{}: no description of a paper",
            directory.display()
        )));
    }
    Ok(papers)
}

/// The recorded runs that descriptions name. One that is not there is told by who wants it.
fn read_runs(root: &Path, papers: &[Paper]) -> Result<Runs> {
    let directory = |name: &str| root.join("bench/runs").join(name);
    let mut runs = Runs::new();
    for name in Papers::evidence(papers).into_iter().filter(|name| directory(name).is_dir()) {
        runs.insert(name.to_owned(), None);
    }
    for name in Papers::runs_with_numbers(papers) {
        if directory(name).is_dir() {
            runs.insert(name.to_owned(), Some(numbers(root, &directory(name))?));
        }
    }
    Ok(runs)
}

/// From the records if they are kept, else from the summary, which tests hold to the digest.
fn numbers(root: &Path, directory: &Path) -> Result<Values> {
    let recorded = Recorded::at(directory);
    match recorded.kept().map_err(|error| BadInput::because(format!("{error:#}")))? {
        Kept::Benchmark => Err(BadInput::because(format!(
            "{}: of a benchmark, which has no numbers by cell",
            directory.display()
        ))),
        Kept::Records(results) => {
            Ok(Values::of_records(&scenario_of(&results)?, results.records())?)
        }
        Kept::Digest(digest) => {
            let run = parse_command(&recorded.command()?, directory)?;
            let file = run.file.display().to_string();
            let text = read_input(&root.join(&run.file))?;
            let parsed = Scenario::parse(&text, &file).map_err(BadInput::because)?;
            let scenario = selected(&parsed, run.short, &file)?;
            if let Some(records) = recorded.records_of(&digest)? {
                return Ok(Values::of_records(scenario, &records)?);
            }
            Values::of_summary(scenario, &recorded.summary()?).map_err(|what| {
                BadInput::because(format!("{}/summary.txt: {what}", directory.display()))
            })
        }
    }
}

/// The files that are not what they would be made to, and drawings that nothing shows.
fn stale(files: &[(PathBuf, String)], drawings: &Path) -> Result<Vec<PathBuf>> {
    let differs =
        |(path, text): &&(PathBuf, String)| fs::read_to_string(path).ok().as_ref() != Some(text);
    let mut stale: Vec<PathBuf> =
        files.iter().filter(differs).map(|(path, _)| path.clone()).collect();
    let known = |path: &PathBuf| files.iter().any(|(known, _)| known == path);
    if drawings.is_dir() {
        stale.extend(listed(drawings)?.into_iter().filter(|path| !known(path)));
    }
    Ok(stale)
}

/// Writes those of `files` that are stale, and takes away drawings that nothing shows.
fn write(files: &[(PathBuf, String)], stale: &[PathBuf], drawings: &Path) -> Result<()> {
    fs::create_dir_all(drawings)
        .with_context(|| format!("cannot create {}", drawings.display()))?;
    for path in stale {
        let known = files.iter().find(|(known, _)| known == path);
        let done = match known {
            Some((_, text)) => fs::write(path, text),
            None => fs::remove_file(path),
        };
        done.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A folder's files, by name.
fn listed(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).map_err(|error| {
        BadInput::because(format!("cannot read {}: {error}", directory.display()))
    })?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    Ok(files)
}
