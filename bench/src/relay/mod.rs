//! The relay against its peers: HAProxy and nginx, as shipped and as tuned, in one interleaved run.

mod contender;
mod load;
mod summary;
mod world;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use midspan_sys::userns;
use midspan_units::Span;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::record;
use contender::{Contender, Running};
use load::{Server, Service};
use world::World;

#[derive(Args)]
pub(crate) struct Options {
    /// Repetitions of everything, interleaved.
    #[arg(long, default_value_t = 5)]
    repetitions: u32,

    /// Measured time of each run.
    #[arg(long, default_value = "2 s")]
    time: Span,

    /// Only these figures.
    #[arg(long = "figure", value_enum)]
    figures: Vec<Figure>,

    /// Only these contenders.
    #[arg(long = "contender", value_enum)]
    contenders: Vec<Contender>,

    /// Another build of Midspan's program, measured beside this one.
    #[arg(long)]
    baseline: Option<PathBuf>,

    /// Keep raw results, summary, machine and command under bench/runs.
    #[arg(long)]
    record: bool,

    /// Keep what today's recorded run has of other figures, so that it can be made in pieces.
    #[arg(long, requires = "record")]
    add: bool,
}

/// What is measured.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
enum Figure {
    /// Throughput of one flow.
    Bulk1,
    /// Throughput of 16 flows.
    Bulk16,
    /// Throughput of 64 flows.
    Bulk64,
    /// New connections per second, each with one small message to and fro.
    Connections,
    /// Small messages per second on 64 open connections.
    Messages,
    /// Memory of 4,000 idle connections.
    Idle,
}

impl Figure {
    const ALL: [Figure; 6] = [
        Figure::Bulk1,
        Figure::Bulk16,
        Figure::Bulk64,
        Figure::Connections,
        Figure::Messages,
        Figure::Idle,
    ];

    fn flows(self) -> usize {
        match self {
            Figure::Bulk1 => 1,
            Figure::Bulk16 => 16,
            Figure::Bulk64 | Figure::Messages => 64,
            Figure::Connections => 0,
            Figure::Idle => 4000,
        }
    }

    /// Its quantities: the first is what the figure is about. With each whether more is better.
    fn quantities(self) -> &'static [(&'static str, bool)] {
        match self {
            Figure::Bulk1 | Figure::Bulk16 | Figure::Bulk64 => {
                &[("Gbit/s", true), ("CPU s per GB", false)]
            }
            Figure::Connections => &[("connections/s", true), ("CPU us each", false)],
            Figure::Messages => &[
                ("messages/s", true),
                ("p50 us", false),
                ("p99 us", false),
                ("CPU us each", false),
            ],
            Figure::Idle => &[("bytes per connection", false)],
        }
    }

    fn title(self) -> &'static str {
        match self {
            Figure::Bulk1 => "bulk, 1 flow",
            Figure::Bulk16 => "bulk, 16 flows",
            Figure::Bulk64 => "bulk, 64 flows",
            Figure::Connections => "new connections",
            Figure::Messages => "small messages, 64 connections",
            Figure::Idle => "memory, 4,000 idle connections",
        }
    }
}

/// One run's numbers, one JSON object a line in the raw results.
#[derive(Debug, Serialize, Deserialize)]
struct Run {
    figure: Figure,
    contender: Contender,
    repetition: u32,
    /// In the order of the figure's quantities; none if the run failed.
    values: Vec<f64>,
    /// Why it failed: a contender of which this happened gets no number for the figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !userns::is_root() {
        bail!("the relay's own steering takes root; run this as root");
    }
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })?;
    let midspan = build()?;
    let figures = if options.figures.is_empty() { &Figure::ALL[..] } else { &options.figures };
    let programs = Programs { own: midspan, baseline: options.baseline.clone() };
    let wanted = if options.contenders.is_empty() { Contender::all() } else { &options.contenders };
    let wanted = wanted.iter().filter(|one| !one.is_baseline() || programs.baseline.is_some());
    let (contenders, absent): (Vec<Contender>, Vec<Contender>) =
        wanted.partition(|contender| contender.is_here());
    for contender in &absent {
        eprintln!("{} is left out: it is not installed", contender.name());
    }
    if contenders.is_empty() {
        bail!("nobody is left to be measured");
    }
    let mut runs = Vec::new();
    if options.add {
        runs = record::kept::<Run>("relay")?;
        runs.retain(|run| !figures.contains(&run.figure));
    }
    if record::sessions_are_groups() {
        eprintln!(
            "the kernel schedules sessions as groups, which makes small messages waver; \
             steadier with: sysctl -w kernel.sched_autogroup_enabled=0"
        );
    }
    for repetition in 0..options.repetitions {
        for &figure in figures {
            // Each goes first in turn, so that what changes with time hits all alike.
            let first = repetition as usize % contenders.len();
            for &contender in contenders[first..].iter().chain(&contenders[..first]) {
                let (title, name) = (figure.title(), contender.name());
                let measured = measure(figure, contender, &programs, options.time.into());
                let (values, failed) = match measured {
                    Ok(values) => (values, None),
                    Err(error) => (Vec::new(), Some(format!("{error:#}"))),
                };
                let said = match &failed {
                    None => summary::said(figure, &values),
                    Some(reason) => format!("failed: {reason}"),
                };
                eprintln!("{title}, {name}, repetition {}: {said}", repetition + 1);
                runs.push(Run { figure, contender, repetition, values, failed });
            }
        }
    }
    runs.sort_by_key(|run| (run.figure, run.repetition));
    let mut summary = summary::of(&runs);
    for contender in absent {
        summary += &format!("{} was not installed.\n", contender.name());
    }
    print!("\n{summary}");
    if options.record {
        let directory = record::keep("relay", &runs, &summary, options.add)?;
        println!("kept in {}", directory.display());
    }
    match runs.iter().filter(|run| run.failed.is_some()).count() {
        0 => Ok(()),
        failed => bail!("{failed} runs failed; the contenders concerned have no number"),
    }
}

/// Midspan's programs.
struct Programs {
    own: PathBuf,
    baseline: Option<PathBuf>,
}

impl Programs {
    fn of(&self, contender: Contender) -> &Path {
        self.baseline.as_ref().filter(|_| contender.is_baseline()).unwrap_or(&self.own)
    }
}

/// Midspan's own program, built beside this one.
fn build() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let directory = own.parent().context("this program stands nowhere")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--quiet", "--package", "midspan"]);
    if !cargo.status().context("cannot run cargo")?.success() {
        bail!("midspan could not be built");
    }
    Ok(directory.join("midspan"))
}

fn measure(
    figure: Figure,
    contender: Contender,
    programs: &Programs,
    time: Duration,
) -> Result<Vec<f64>> {
    let world = World::build()?;
    let service = match figure {
        Figure::Bulk1 | Figure::Bulk16 | Figure::Bulk64 => Service::Stream,
        Figure::Connections => Service::Once,
        Figure::Messages | Figure::Idle => Service::Echo,
    };
    let _server = Server::start(&world, service)?;
    let running = Running::start(contender, &world, programs.of(contender))?;
    let to = contender.target();
    match figure {
        Figure::Bulk1 | Figure::Bulk16 | Figure::Bulk64 => {
            let mut busy = Duration::ZERO;
            let started = || busy = running.busy();
            let (bytes, elapsed) = load::bulk(&world, to, figure.flows(), time, started)?;
            let busy = running.busy().saturating_sub(busy);
            Ok(vec![
                bytes as f64 * 8.0 / elapsed.as_secs_f64() / 1e9,
                busy.as_secs_f64() / (bytes as f64 / 1e9),
            ])
        }
        Figure::Connections => {
            let before = running.busy();
            let rate = load::connections(&world, to, time)?;
            let busy = running.busy().saturating_sub(before);
            // The warm-up's connections are in both.
            let all = rate * (time + load::WARM_UP).as_secs_f64();
            Ok(vec![rate, busy.as_secs_f64() * 1e6 / all])
        }
        Figure::Messages => {
            let mut busy = Duration::ZERO;
            let started = || busy = running.busy();
            let answered = load::messages(&world, to, figure.flows(), time, started)?;
            let busy = running.busy().saturating_sub(busy).as_secs_f64();
            let all = answered.rate * time.as_secs_f64();
            Ok(vec![answered.rate, answered.p50, answered.p99, busy * 1e6 / all])
        }
        Figure::Idle => {
            // The first few make it allocate what it has once.
            let _first = load::idle(&world, to, 50)?;
            let before = running.memory();
            let _open = load::idle(&world, to, figure.flows())?;
            let grown = running.memory().saturating_sub(before);
            Ok(vec![grown as f64 / figure.flows() as f64])
        }
    }
}
