//! The relay against its peers: HAProxy and nginx, as shipped and as tuned, in one interleaved run, under load by
//! iperf3, wrk and h2load.

mod contender;
mod load;
pub(crate) mod overhead;
mod place;
pub(crate) mod plain;
mod summary;
mod tools;
mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use midspan_sys::{process, userns};
use midspan_units::Span;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::{program, record};
use contender::{Contender, Running};
use load::Echo;
use place::{Autogroup, Place};
use tools::{Measured, Server, Service};
use world::World;

#[derive(Args)]
pub(crate) struct Options {
    /// Repetitions of everything, interleaved.
    #[arg(long, default_value_t = 5)]
    repetitions: u32,

    /// Time of each run, in whole seconds.
    #[arg(long, default_value = "2 s")]
    time: Span,

    /// Only with the ends and the relay placed so.
    #[arg(long = "place", value_enum)]
    places: Vec<Place>,

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
    /// Download by one connection: iperf3.
    Bulk1,
    /// Downloads by 16 connections: iperf3.
    Bulk16,
    /// A connection for each request, 64 at a time: wrk.
    Connections,
    /// Requests on 8 connections that are kept: wrk.
    Kept8,
    /// Requests on 64 connections that are kept: wrk.
    Kept64,
    /// Requests by HTTP/2 on 64 connections, ten at a time on each: h2load.
    Http2,
    /// Memory of 4,000 idle connections.
    Idle,
}

impl Figure {
    const ALL: [Figure; 7] = [
        Figure::Bulk1,
        Figure::Bulk16,
        Figure::Connections,
        Figure::Kept8,
        Figure::Kept64,
        Figure::Http2,
        Figure::Idle,
    ];

    /// Its quantities: the first is what the figure is about. With each whether more is better.
    fn quantities(self) -> &'static [(&'static str, bool)] {
        match self {
            Figure::Bulk1 | Figure::Bulk16 => &[("Gbit/s", true), ("CPU s per GB", false)],
            Figure::Connections | Figure::Kept8 | Figure::Kept64 => &[
                ("requests/s", true),
                ("CPU us each", false),
                ("p50 us", false),
                ("p99 us", false),
            ],
            Figure::Http2 => &[("requests/s", true), ("CPU us each", false)],
            Figure::Idle => &[("bytes per connection", false)],
        }
    }

    fn title(self) -> &'static str {
        match self {
            Figure::Bulk1 => "one download (iperf3)",
            Figure::Bulk16 => "16 downloads (iperf3)",
            Figure::Connections => "a connection a request (wrk)",
            Figure::Kept8 => "kept connections, 8 (wrk)",
            Figure::Kept64 => "kept connections, 64 (wrk)",
            Figure::Http2 => "HTTP/2 (h2load)",
            Figure::Idle => "memory, 4,000 idle connections",
        }
    }

    /// Without a relay there is no memory of one; of the plain ones, one loses what does not go into a socket at once, and one has
    /// two threads a connection.
    fn is_for(self, contender: Contender) -> bool {
        match contender {
            Contender::Direct => self != Figure::Idle,
            Contender::Plain | Contender::PlainTransparent => {
                !matches!(self, Figure::Bulk1 | Figure::Bulk16 | Figure::Idle)
            }
            Contender::PlainSplicing | Contender::PlainSplicingTransparent => {
                self.service() == Service::Iperf
            }
            _ => true,
        }
    }

    fn service(self) -> Service {
        match self {
            Figure::Bulk1 | Figure::Bulk16 => Service::Iperf,
            Figure::Connections | Figure::Kept8 | Figure::Kept64 => Service::Web,
            Figure::Http2 | Figure::Idle => Service::Web2,
        }
    }

    fn tool(self) -> &'static str {
        match self {
            Figure::Bulk1 | Figure::Bulk16 => "iperf3",
            Figure::Connections | Figure::Kept8 | Figure::Kept64 => "wrk",
            Figure::Http2 => "h2load",
            Figure::Idle => "nginx",
        }
    }
}

/// One run's numbers, one JSON object a line in the raw results.
#[derive(Debug, Serialize, Deserialize)]
struct Run {
    place: Place,
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
    let midspan = program::build()?;
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
    for tool in figures.iter().map(|figure| figure.tool()).chain(["nginx"]) {
        if process::command(tool).arg("-v").output().is_err() {
            bail!("{tool} is not installed: apt-get install iperf3 wrk nghttp2-client nginx-light");
        }
    }
    let places = if options.places.is_empty() { &Place::ALL[..] } else { &options.places };
    for place in places {
        place.relays()?;
    }
    let mut runs = Vec::new();
    if options.add {
        runs = record::kept::<Run>("relay")?;
        runs.retain(|run| !(figures.contains(&run.figure) && places.contains(&run.place)));
    }
    let measurements =
        places.iter().flat_map(|place| figures.iter().map(move |figure| (*place, *figure)));
    // Memory is the same wherever the processors are.
    let first_place = places[0];
    let measurements: Vec<_> = measurements
        .filter(|(place, figure)| *figure != Figure::Idle || *place == first_place)
        .collect();
    for repetition in 0..options.repetitions {
        for &(place, figure) in &measurements {
            // Each goes first in turn, so that what changes with time hits all alike.
            let first = repetition as usize % contenders.len();
            for &contender in contenders[first..].iter().chain(&contenders[..first]) {
                if !figure.is_for(contender) {
                    continue;
                }
                let (title, name) = (figure.title(), contender.name());
                let measured = measure(figure, place, contender, &programs, options.time.into());
                let (values, failed) = match measured {
                    Ok(values) => (values, None),
                    Err(error) => (Vec::new(), Some(format!("{error:#}"))),
                };
                let said = match &failed {
                    None => summary::said(figure, &values),
                    Some(reason) => format!("failed: {reason}"),
                };
                eprintln!(
                    "{title}, {}, {name}, repetition {}: {said}",
                    place.title(),
                    repetition + 1
                );
                runs.push(Run { place, figure, contender, repetition, values, failed });
            }
        }
    }
    runs.sort_by_key(|run| (run.place, run.figure, run.repetition));
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

fn measure(
    figure: Figure,
    place: Place,
    contender: Contender,
    programs: &Programs,
    time: Duration,
) -> Result<Vec<f64>> {
    let _autogroup = Autogroup::of(place)?;
    let world = World::build()?;
    let start = || Running::start(contender, &world, place, programs.of(contender), "");
    let to = contender.target();
    if figure == Figure::Idle {
        let _server = Echo::start(&world)?;
        let running = start()?.context("without a relay nothing is to be measured")?;
        // The first few make it allocate what it has once.
        let _first = load::idle(&world, to, 50)?;
        let before = running.memory();
        let _open = load::idle(&world, to, IDLE)?;
        return Ok(vec![running.memory().saturating_sub(before) as f64 / IDLE as f64]);
    }
    let _server = Server::start(&world, place, figure.service())?;
    let running = start()?;
    let busy = || running.as_ref().map_or(Duration::ZERO, Running::busy);
    let before = busy();
    let Measured { rate, all, latency } = match figure {
        Figure::Bulk1 => tools::iperf(&world, place, to, 1, time),
        Figure::Bulk16 => tools::iperf(&world, place, to, 16, time),
        Figure::Connections => tools::wrk(&world, place, to, 64, false, time),
        Figure::Kept8 => tools::wrk(&world, place, to, 8, true, time),
        Figure::Kept64 => tools::wrk(&world, place, to, 64, true, time),
        Figure::Http2 | Figure::Idle => tools::h2load(&world, place, to, 64, time),
    }?;
    // Of all that was asked for, from the first connection on.
    let busy = busy().saturating_sub(before).as_secs_f64();
    Ok(match figure {
        Figure::Bulk1 | Figure::Bulk16 => vec![rate * 8.0 / 1e9, busy / (all / 1e9)],
        _ => [rate, busy * 1e6 / all].into_iter().chain(latency.into_iter().flatten()).collect(),
    })
}

/// Idle connections.
const IDLE: usize = 4_000;
