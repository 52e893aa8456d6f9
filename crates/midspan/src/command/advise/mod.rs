//! `midspan advise`: from measured figures of a path to whether a relay would pay there, by simulation.

mod given;
mod measured;
mod table;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use midspan_advise::{Advice, Plan, Planned};
use midspan_lab::simulation::{Externals, Simulation};
use midspan_lab::sweep::PlannedRun;
use midspan_path::Traces;
use midspan_scenario::Scenario;

use self::given::Given;
use self::table::AdviceTable;
use super::BadInput;

/// Quantities are read here and not by clap, so that what is wrong with one is said in one line.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Round trip between UE and server, such as 60ms
    #[arg(long, value_name = "TIME")]
    rtt: Option<String>,
    /// Of that the radio leg, which is as near to the UE as a relay can stand
    #[arg(long, value_name = "TIME")]
    radio_rtt: Option<String>,
    /// Rate of the radio leg in each direction, such as 50Mbit/s
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Rate of the way behind the radio leg [default: never the limit]
    #[arg(long, value_name = "RATE")]
    wide_rate: Option<String>,
    /// What the queue before each rate holds [default: what the rate carries in a round trip, at least 15 KB]
    #[arg(long, value_name = "SIZE")]
    queue: Option<String>,
    /// Packets of the data that the radio leg loses, such as 0.5% [default: none]
    #[arg(long, value_name = "SHARE")]
    loss: Option<String>,
    /// Packets of the data that the radio leg delivers late, overtaken by others [default: none]
    #[arg(long, value_name = "SHARE")]
    late: Option<String>,
    /// By how much these are late
    #[arg(long, value_name = "TIME")]
    late_by: Option<String>,
    /// Sizes of flows, or for how long they send, such as 100KB,10MB or 8s [default: 100 KB, 1 MB, 10 MB, 100 MB]
    #[arg(long, value_name = "SIZE|TIME", value_delimiter = ',')]
    size: Vec<String>,
    /// Who sends the data [default: download, or what is measured]
    #[arg(long, value_enum)]
    direction: Option<DirectionName>,
    /// Congestion control of the server
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    server_control: String,
    /// Congestion control of the UE
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    ue_control: String,
    /// TCP buffers of UE, server and the relay's host: Linux's, or without a limit
    #[arg(long, value_enum, default_value_t = BuffersName::Default)]
    host_buffers: BuffersName,
    /// Take what is not given from the flow log of a relay on the path; may be given several times
    #[arg(long, value_name = "FILE", conflicts_with = "pcap")]
    flow_log: Vec<PathBuf>,
    /// Take what is not given from a capture (pcap, pcapng) made at the UE or at a box on the path
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Places to compare, as round trips from the UE [default: from the radio leg's end to the middle of the rest]
    #[arg(long, value_name = "TIME", value_delimiter = ',')]
    relay: Vec<String>,
    /// Congestion controls towards the UE to compare; the first is preferred [default: ms_radio, and of downloads cubic]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    control: Vec<String>,
    /// Buffers of the relay to compare, with the first control; the first is preferred [default: 1 MiB, 256 KiB, 4 MiB]
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    buffer: Vec<String>,
    /// Congestion control of the relay towards the server
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    relay_control: String,
    /// How long the relay keeps holes from UEs at most [default: 50 ms, the relay's own]
    #[arg(long, value_name = "TIME")]
    reordering_hold: Option<String>,
    /// How many seeds: a third to choose by, the others for what is expected
    #[arg(long, value_name = "N", default_value_t = 12)]
    seeds: u32,
    /// Where all chance comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the scenario file that is simulated
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DirectionName {
    /// The UE sends
    Upload,
    /// The server sends
    Download,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BuffersName {
    /// What Linux gives a machine with enough memory
    Default,
    /// No limit that a connection could reach
    Max,
}

/// Says whether to split, where and how.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let given = Given::of(arguments)?;
    let mut plan = Plan::new(&given.figures, &given.tried, arguments.seed, arguments.seeds)
        .map_err(BadInput::because)?;
    if let Some(path) = &arguments.write {
        std::fs::write(path, plan.text()).map_err(|error| {
            BadInput::because(format!("cannot write {}: {error}", path.display()))
        })?;
    }
    let advice = simulate(&mut plan)?;
    let table = AdviceTable {
        given: &given,
        advice: &advice,
        seeds: arguments.seeds,
        broken: plan.broken(),
    };
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&table)?),
        false => print!("{table}"),
    }
    if let (Some(path), false) = (&arguments.write, arguments.json) {
        println!("Scenario: {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn simulate(plan: &mut Plan) -> Result<Advice> {
    // Of the second part as many runs are made whatever is chosen.
    let (choosing, others) = (plan.choosing(), plan.expecting(0).len());
    let progress = bar(choosing.len() + others);
    make(plan, &choosing, &progress)?;
    let chosen = plan.choose();
    make(plan, &plan.expecting(chosen), &progress)?;
    progress.finish_and_clear();
    plan.advise(chosen).context("runs are missing")
}

fn make(plan: &mut Plan, planned: &[Planned], progress: &ProgressBar) -> Result<()> {
    let scenario: Scenario = plan.scenario().clone();
    let runs: Vec<PlannedRun<'_>> = planned
        .iter()
        .map(|run| PlannedRun {
            cell: &scenario.cells()[run.cell],
            variant: run.variant,
            repetition: run.repetition,
        })
        .collect();
    let simulation = Simulation {
        scenario: &scenario,
        traces: &Traces::new(),
        externals: &Externals::default(),
        captures: None,
        qlogs: None,
        within: None,
    };
    simulation.run_all(&runs, |_, record| {
        progress.inc(1);
        plan.add(&record).map_err(|error| anyhow!(error))
    })
}

/// Where somebody watches.
fn bar(runs: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} simulations, {eta} left")
        .expect("the template is right");
    ProgressBar::new(runs as u64).with_style(style)
}
