//! The relay against its peers: HAProxy and nginx, as shipped and as tuned, in one interleaved run.

mod contender;
mod load;
mod world;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use midspan_sys::userns;
use midspan_units::Span;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

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

    /// Keep raw results, summary, machine and command under bench/runs.
    #[arg(long)]
    record: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
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
            Figure::Messages => &[("messages/s", true), ("p50 us", false), ("p99 us", false)],
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
#[derive(Debug, Serialize)]
struct Run {
    figure: Figure,
    contender: Contender,
    repetition: u32,
    /// In the order of the figure's quantities.
    values: Vec<f64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !userns::is_root() {
        bail!("the relay's own steering takes root; run this as root");
    }
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })?;
    let midspan = build()?;
    let figures = if options.figures.is_empty() { &Figure::ALL[..] } else { &options.figures };
    let wanted =
        if options.contenders.is_empty() { &Contender::ALL[..] } else { &options.contenders };
    let (contenders, absent): (Vec<Contender>, Vec<Contender>) =
        wanted.iter().partition(|contender| contender.is_here());
    for contender in absent {
        eprintln!("{} is left out: it is not installed", contender.name());
    }
    let mut runs = Vec::new();
    for repetition in 0..options.repetitions {
        for &figure in figures {
            // Each goes first in turn, so that what changes with time hits all alike.
            let first = repetition as usize % contenders.len();
            for &contender in contenders[first..].iter().chain(&contenders[..first]) {
                let values = measure(figure, contender, &midspan, options.time.into())
                    .with_context(|| format!("{}, {}", figure.title(), contender.name()))?;
                eprintln!(
                    "{}, {}, repetition {}: {}",
                    figure.title(),
                    contender.name(),
                    repetition + 1,
                    said(figure, &values)
                );
                runs.push(Run { figure, contender, repetition, values });
            }
        }
    }
    let summary = summary(&runs);
    print!("\n{summary}");
    if options.record {
        let directory = record::keep("relay", &runs, &summary)?;
        println!("kept in {}", directory.display());
    }
    Ok(())
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
    midspan: &Path,
    time: Duration,
) -> Result<Vec<f64>> {
    let world = World::build()?;
    let service = match figure {
        Figure::Bulk1 | Figure::Bulk16 | Figure::Bulk64 => Service::Stream,
        Figure::Connections => Service::Once,
        Figure::Messages | Figure::Idle => Service::Echo,
    };
    let _server = Server::start(&world, service)?;
    let running = Running::start(contender, &world, midspan)?;
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
            let answered = load::messages(&world, to, figure.flows(), time)?;
            Ok(vec![answered.rate, answered.p50, answered.p99])
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

fn said(figure: Figure, values: &[f64]) -> String {
    let all = figure.quantities().iter().zip(values);
    let all: Vec<String> =
        all.map(|((name, _), value)| format!("{} {name}", digits(*value))).collect();
    all.join(", ")
}

fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}

/// A table for each figure: medians, and how often Midspan's is each peer's, from the repetitions'
/// own ratios, with their range.
fn summary(runs: &[Run]) -> String {
    let mut text = String::new();
    let mut figures: Vec<Figure> = runs.iter().map(|run| run.figure).collect();
    figures.sort();
    figures.dedup();
    for figure in figures {
        text += &format!("{}\n", figure.title());
        let mut contenders: Vec<Contender> =
            runs.iter().filter(|run| run.figure == figure).map(|run| run.contender).collect();
        contenders.sort();
        contenders.dedup();
        let (own, more_is_better) = (0, figure.quantities()[0].1);
        for contender in contenders {
            let of = |contender| {
                runs.iter().filter(move |run| run.figure == figure && run.contender == contender)
            };
            let medians: Vec<String> = (0..figure.quantities().len())
                .map(|quantity| {
                    let name = figure.quantities()[quantity].0;
                    let value = median(of(contender).map(|run| run.values[quantity]).collect());
                    format!("{:>9} {name:<14}", digits(value))
                })
                .collect();
            let ratios = |midspan: Contender| -> Option<String> {
                let ratios: Vec<f64> = of(midspan)
                    .filter_map(|run| {
                        let other = of(contender).find(|one| one.repetition == run.repetition)?;
                        let ratio = run.values[own] / other.values[own];
                        Some(if more_is_better { ratio } else { 1.0 / ratio })
                    })
                    .collect();
                let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
                let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                (!ratios.is_empty() && contender != midspan)
                    .then(|| format!("{:.2} x ({least:.2} - {most:.2})", median(ratios)))
            };
            let beside = match contender.is_midspan() {
                true => String::new(),
                false => [Contender::Midspan, Contender::MidspanTransparent]
                    .into_iter()
                    .filter_map(|midspan| Some(format!("{}: {}", midspan.name(), ratios(midspan)?)))
                    .collect::<Vec<_>>()
                    .join("; "),
            };
            let line = format!("  {:<22}{}  {beside}", contender.name(), medians.concat());
            text += &format!("{}\n", line.trim_end());
        }
        text.push('\n');
    }
    text + "x: Midspan over that peer, better above 1; median of the repetitions' ratios (least - most).\n"
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}
