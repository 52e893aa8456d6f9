//! `midspan lab record` and `midspan lab verify`: what is kept of results, and whether it is of this program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser};
use midspan_lab::recorded::{Kept, Recorded, Simulated, TRACES, summary_of};

use super::BadInput;
use super::lab::{BackendName, Run, open, read_scenario, scenario_of};

#[derive(Debug, Args)]
pub(crate) struct Record {
    /// Folder that `lab run` made
    #[arg(value_name = "DIR")]
    results: PathBuf,
    /// Folder to keep them in; those of this project are below bench/runs/
    #[arg(value_name = "RECORD")]
    record: PathBuf,
    /// Folder of the recorded traces that the scenario names [default: that of the run]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Keep records of a simulated run too, where a page draws more than its summary has
    #[arg(long)]
    records: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Recorded runs. Simulated ones are made again, from the folder in which their commands name scenarios
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Folder of the recorded traces that scenarios name [default: the scenario file's]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Write anew what is stale
    #[arg(long)]
    renew: bool,
}

/// A recorded command is one of `lab run`, and read as such.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Recorder {
    #[command(flatten)]
    run: Run,
}

/// What a check found.
enum Finding {
    /// As recorded; with what was looked at.
    Holds(String),
    /// Written anew, because of this.
    Renewed(String),
    /// Not what this program gives; with what it is instead.
    Stale(String),
}

pub(crate) fn record(arguments: &Record) -> Result<ExitCode> {
    let results = open(&arguments.results)?;
    let kept = Recorded::at(&arguments.record);
    let command = results.command()?;
    let first = command.lines().next().unwrap_or_default();
    let run = parse_command(first, &arguments.results)?;
    if run.backend == BackendName::Live {
        kept.keep_live(&results, &scenario_of(&results)?)?;
    } else {
        let traces = arguments.traces.clone().or_else(|| run.traces.clone());
        let simulated = simulate(&run, traces)?;
        kept.keep_simulated(&recorded_command(&run)?, &simulated, arguments.records)?;
        kept.keep_explanations(&results)?;
    }
    println!("Recorded: {}", arguments.record.display());
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn verify(arguments: &Verify) -> Result<ExitCode> {
    let mut stale = false;
    for directory in &arguments.records {
        let name = directory.display();
        match verify_one(directory, arguments)? {
            Finding::Holds(what) => println!("{name}: {what}"),
            Finding::Renewed(why) => println!("{name}: renewed: {why}"),
            Finding::Stale(why) => {
                stale = true;
                println!(
                    "{name}: stale: {why}; `midspan lab verify --renew {name}` renews it, and what \
                     docs quote of it is to be read again"
                );
            }
        }
    }
    Ok(if stale { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn verify_one(directory: &Path, arguments: &Verify) -> Result<Finding> {
    let recorded = Recorded::at(directory);
    let kept = recorded.kept().map_err(|error| BadInput::because(format!("{error:#}")))?;
    match kept {
        Kept::Benchmark => {
            let command = recorded.command()?;
            Ok(Finding::Holds(format!("of a benchmark, nothing to hold it against: `{command}`")))
        }
        Kept::Records(results) => {
            let today = summary_of(&scenario_of(&results)?, results.records())?;
            let count = results.records().len();
            if recorded.summary().is_ok_and(|summary| summary == today) {
                return Ok(Finding::Holds(format!("{count} live records, which give its summary")));
            }
            let why = format!("its {count} live records give another summary.txt");
            if !arguments.renew {
                return Ok(Finding::Stale(why));
            }
            recorded.write_summary(&today)?;
            Ok(Finding::Renewed(why))
        }
        Kept::Digest(digest) => {
            let command = recorded.command()?;
            let run = parse_command(&command, directory)?;
            let today = simulate(&run, arguments.traces.clone())?;
            let why = if digest.sha256 != today.digest.sha256 {
                format!(
                    "{} simulated records have digest {}, recorded are {} with {}",
                    today.digest.records,
                    abridged(&today.digest.sha256),
                    digest.records,
                    abridged(&digest.sha256)
                )
            } else if let Err(error) = recorded.records_of(&digest) {
                format!("{error:#}")
            } else if recorded.summary().is_ok_and(|summary| summary == today.summary) {
                let (records, took) = (digest.records, today.digest.processor_s);
                return Ok(Finding::Holds(format!(
                    "{records} simulated records, byte for byte, in {took} s of processor time"
                )));
            } else {
                format!("its {} simulated records give another summary.txt", digest.records)
            };
            if !arguments.renew {
                return Ok(Finding::Stale(why));
            }
            recorded.keep_simulated(&command, &today, false)?;
            Ok(Finding::Renewed(why))
        }
    }
}

/// What `run` gives, in memory.
fn simulate(run: &Run, traces: Option<PathBuf>) -> Result<Simulated> {
    let directory = traces.unwrap_or_else(|| run.file.parent().unwrap_or(Path::new("")).to_owned());
    let (scenario, traces) = read_scenario(&run.file, run.short, &run.selection(), &directory)
        .context("recorded runs name scenarios from the repository's own folder")?;
    Simulated::now(&scenario, &traces, run.selection())
}

/// `command.txt` of the folder `directory`.
pub(super) fn parse_command(command: &str, directory: &Path) -> Result<Run> {
    let wrong = |why: String| {
        let file = directory.join("command.txt");
        BadInput::because(format!("{}: {why}; wants `midspan lab run FILE ...`", file.display()))
    };
    let words = shlex::split(command).ok_or_else(|| wrong("a quote does not end".to_owned()))?;
    let [program, lab, run, arguments @ ..] = &words[..] else {
        return Err(wrong(format!("`{command}` is too short")));
    };
    if !program.ends_with("midspan") || lab != "lab" || run != "run" {
        return Err(wrong(format!("`{command}` is another command")));
    }
    match Recorder::try_parse_from(arguments) {
        Ok(recorder) => Ok(recorder.run),
        Err(error) => {
            let first = error.to_string().lines().next().unwrap_or_default().to_owned();
            Err(wrong(first))
        }
    }
}

/// The command that gives the same as `run` in any clone, without where one machine has its files.
fn recorded_command(run: &Run) -> Result<String> {
    let file = run.file.display().to_string();
    if run.file.is_absolute() {
        return Err(BadInput::because(format!(
            "`{file}` is one machine's file: run a scenario of the repository, from its own folder"
        )));
    }
    let mut words = vec!["midspan".to_owned(), "lab".to_owned(), "run".to_owned(), file];
    words.extend(["--backend".to_owned(), "sim".to_owned()]);
    if run.short {
        words.push("--short".to_owned());
    }
    if run.traces.is_some() {
        words.extend(["--traces".to_owned(), TRACES.to_owned()]);
    }
    for variant in &run.variants {
        words.extend(["--variants".to_owned(), variant.to_string()]);
    }
    for (axis, label) in &run.only {
        words.extend(["--only".to_owned(), format!("{axis}={label}")]);
    }
    Ok(shlex::try_join(words.iter().map(String::as_str))?)
}

fn abridged(sha256: &str) -> &str {
    sha256.get(..16).unwrap_or(sha256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_command_is_the_same_in_any_clone() {
        let command = "target/release/midspan lab run --traces /somebody/traces --fresh --out r \
                       scenarios/a.toml --backend sim --variants none,midspan --only 'rtt=1 ms'";
        let run = parse_command(command, Path::new("r")).unwrap();
        let recorded = recorded_command(&run).unwrap();
        assert_eq!(
            recorded,
            "midspan lab run scenarios/a.toml --backend sim --traces RECORDINGS --variants none \
             --variants midspan --only 'rtt=1 ms'"
        );
        assert_eq!(
            recorded_command(&parse_command(&recorded, Path::new("r")).unwrap()).unwrap(),
            recorded
        );
    }

    #[test]
    fn what_is_no_command_of_the_lab_is_told_with_its_file() {
        for command in [
            "",
            "midspan lab",
            "midspan lab report x",
            "midspan lab run --backend sim",
            "midspan lab run 'x",
        ] {
            let error = parse_command(command, Path::new("r")).unwrap_err().to_string();
            assert!(error.starts_with("r/command.txt: "), "{error}");
            assert!(error.ends_with("wants `midspan lab run FILE ...`"), "{error}");
        }
    }
}
