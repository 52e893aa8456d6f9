//! `midspan demo`: a scenario that is built in, run at once.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use midspan_scenario::record::Backend;

use super::lab::{self, Job};

/// What the demo runs: kept as a file like every other scenario.
const SCENARIO: &str = include_str!("../../../../scenarios/demo.toml");

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder for the results
    #[arg(long, value_name = "DIR", default_value = "results/demo")]
    out: PathBuf,
}

/// Runs the demo and shows its table, its report and what to do next.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let job = Job {
        text: SCENARIO.to_owned(),
        file: "demo.toml".to_owned(),
        directory: Path::new(".").to_owned(),
        base: arguments.out,
        backend: Backend::Live,
        short: false,
        fresh: true,
        selection: Default::default(),
    };
    let status = lab::execute(&job)?;
    println!("Next: `midspan doctor` says what this machine can do; scenarios/ has the papers'");
    println!("experiments: `midspan lab run scenarios/mec/3a.toml`.");
    Ok(status)
}
