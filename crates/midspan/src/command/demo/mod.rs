//! `midspan demo`: a scenario that is built in, live as far as this machine can be trusted, else simulated.

mod choice;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use midspan_lab::trial;
use midspan_path::Traces;
use midspan_scenario::Scenario;
use midspan_scenario::record::{Backend, Outcome};

use self::choice::{BOTTLENECKS, Bottleneck, Choice};
use super::acquire_privileges;
use super::lab::{self, Job, NEEDS_PRIVILEGES};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder for the results
    #[arg(long, value_name = "DIR", default_value = "results/demo")]
    out: PathBuf,
    /// Run the short version: a run of each, two seconds long, without HAProxy
    #[arg(long)]
    short: bool,
}

/// Runs the demo and shows its table, its report and what to do next.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let status = match choose()? {
        Choice::Live(bottleneck) => live(&arguments, bottleneck)?,
        Choice::Simulated { because } => {
            simulated(&arguments, &BOTTLENECKS[0], &format!("not live: {because}"))?
        }
    };
    println!("Next: `midspan doctor` says what this machine can do; scenarios/ has the papers'");
    println!("experiments: `midspan lab run scenarios/mec/3a.toml`.");
    Ok(status)
}

/// Asks the machine.
fn choose() -> Result<Choice> {
    if let Err(error) = acquire_privileges().context(NEEDS_PRIVILEGES) {
        return Ok(Choice::Simulated { because: format!("{error:#}") });
    }
    eprintln!("Which of {} does this machine hold punctually?", choice::rates());
    let midspan = lab::this_program()?;
    let traces = Traces::new();
    Ok(choice::choose(|bottleneck| {
        let scenario = Scenario::parse(&bottleneck.scenario(), "demo.toml");
        let outcome = trial::run(&scenario.expect("a test parses it"), &traces, &midspan);
        match &outcome {
            Outcome::Measured(_) => eprintln!("{}: held", bottleneck.rate),
            Outcome::Untrusted { reason, .. } => eprintln!("{}: {reason}", bottleneck.rate),
            Outcome::Failed { .. } => {}
        }
        outcome
    }))
}

/// Runs the demo live, and simulated beside it where that gave no number. Fails if a run failed.
fn live(arguments: &Arguments, bottleneck: &Bottleneck) -> Result<ExitCode> {
    let job = job(arguments, bottleneck, Backend::Live);
    let scenario = job.scenario()?;
    println!(
        "Live at {}, the fastest of {} that this machine holds punctually.",
        bottleneck.rate,
        choice::rates()
    );
    let results = job.run(&scenario)?;
    println!("\nLive: real kernel TCP over emulated links");
    let summary = lab::show(&results, &scenario)?;
    let missing = choice::missing(&summary);
    let status = if missing.is_empty() {
        ExitCode::SUCCESS
    } else {
        let because = format!("beside live runs that gave no number for {}", missing.join(", "));
        simulated(arguments, bottleneck, &because)?
    };
    Ok(if summary.counts.failed > 0 { ExitCode::FAILURE } else { status })
}

/// Simulates the demo. Fails if a run failed.
fn simulated(arguments: &Arguments, bottleneck: &Bottleneck, because: &str) -> Result<ExitCode> {
    let job = job(arguments, bottleneck, Backend::Sim);
    let scenario = job.scenario()?;
    let results = job.run(&scenario)?;
    println!("\nSimulated (Midspan's own TCP in virtual time), {because}");
    lab::conclude(&results, &scenario)
}

fn job(arguments: &Arguments, bottleneck: &Bottleneck, backend: Backend) -> Job {
    Job {
        text: bottleneck.scenario(),
        file: "demo.toml".to_owned(),
        directory: Path::new(".").to_owned(),
        base: arguments.out.clone(),
        backend,
        short: arguments.short,
        fresh: true,
        selection: Default::default(),
        captures: None,
        qlogs: None,
        ray: None,
    }
}
