//! What accounts and decisions cost: switched on and off by turns inside one running relay, under load by wrk. Two relays
//! beside each other differ by more than that, as the machine changes meanwhile.

use std::fmt::Write as _;
use std::fs;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use midspan_steer::Bare;
use midspan_sys::netns::Netns;
use midspan_sys::{process, userns};
use midspan_units::Span;
use serde::Serialize;

use super::contender::{Contender, Running};
use super::place::{Autogroup, Place};
use super::tools::{self, Server, Service};
use super::world::World;
use crate::statistics::{Interval, median, median_interval};
use crate::{program, record};

#[derive(Args)]
pub(crate) struct Options {
    /// Time under load, of each of the two figures.
    #[arg(long, default_value = "260 s")]
    time: Span,

    /// How the ends and the relay are placed.
    #[arg(long, value_enum, default_value = "apart")]
    place: Place,

    /// How often both are measured, each time with another relay.
    #[arg(long, default_value_t = 1)]
    repetitions: u32,

    /// Keep raw results, summary, machine and command under bench/runs.
    #[arg(long)]
    record: bool,
}

/// All connections are split, whatever is found, and nobody is asked before: what is on and what is off do the same.
const CONFIGURATION: &str = "handshake = \"early\"\n[decide]\nalways_split = [\"0.0.0.0/0\"]\n";

/// Until the load is there.
const WARM: Duration = Duration::from_secs(3);
/// Of each turn what is left out, and what counts.
const SETTLE: Duration = Duration::from_millis(60);
const TURN: Duration = Duration::from_millis(300);
/// Turns of a block: what else changes steadily within one changes both alike.
const BLOCKS: [[bool; 4]; 2] = [[true, false, false, true], [false, true, true, false]];

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Figure {
    /// A connection for each request.
    Connections,
    /// Requests on connections that are kept.
    Messages,
}

impl Figure {
    fn title(self) -> &'static str {
        match self {
            Figure::Connections => "connections, one a request, 64 at a time (wrk)",
            Figure::Messages => "segments of answers on 64 connections that are kept (wrk)",
        }
    }

    /// What the server's kernel counts of it.
    fn counter(self) -> &'static str {
        match self {
            Figure::Connections => "PassiveOpens",
            Figure::Messages => "OutSegs",
        }
    }
}

/// A turn, one JSON object a line in the raw results.
#[derive(Debug, Clone, Copy, Serialize)]
struct Turn {
    figure: Figure,
    repetition: u32,
    block: u32,
    on: bool,
    seconds: f64,
    count: u64,
    /// Of all processors.
    busy_us: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !userns::is_root() {
        bail!("the relay's own steering takes root; run this as root");
    }
    if process::command("wrk").arg("-v").output().is_err() {
        bail!("wrk is not installed: apt-get install wrk nginx-light");
    }
    let midspan = program::build()?;
    let mut turns = Vec::new();
    let mut summary = format!("accounts and [decide], on over off; {}\n", options.place.title());
    for repetition in 0..options.repetitions {
        for figure in [Figure::Connections, Figure::Messages] {
            let _autogroup = Autogroup::of(options.place)?;
            let world = World::build()?;
            let _server = Server::start(&world, options.place, Service::Web)?;
            let contender = Contender::MidspanTransparent;
            let relay = Running::start(contender, &world, options.place, &midspan, CONFIGURATION)?;
            let relay = relay.context("it is not direct")?;
            let switch = Bare::of(relay.id()).context("the steering program's settings")?;
            let time = Duration::from(options.time);
            let new = thread::scope(|scope| {
                let kept = figure == Figure::Messages;
                let (world, place, to) = (&world, options.place, contender.target());
                // Until the last block has ended, too.
                let whole = WARM + time + 2 * (SETTLE + TURN) * 4;
                let load = scope.spawn(move || tools::wrk(world, place, to, 64, kept, whole));
                let turns = take_turns(figure, repetition, &world.server, &switch, time);
                let said = load.join().expect("load threads do not panic")?;
                eprintln!("{}: wrk says {:.0} requests/s", figure.title(), said.rate);
                turns
            })?;
            let said = summarized(&new);
            eprint!("{said}");
            summary += &said;
            turns.extend(new);
        }
    }
    print!("\n{summary}");
    if options.record {
        let directory = record::keep("overhead", &turns, &summary, false)?;
        println!("kept in {}", directory.display());
    }
    Ok(())
}

fn take_turns(
    figure: Figure,
    repetition: u32,
    server: &Netns,
    switch: &Bare,
    time: Duration,
) -> Result<Vec<Turn>> {
    sleep(WARM);
    let (begin, mut turns) = (Instant::now(), Vec::new());
    for block in 0.. {
        if begin.elapsed() >= time {
            break;
        }
        for on in BLOCKS[block as usize % BLOCKS.len()] {
            switch.set(!on)?;
            sleep(SETTLE);
            let before = (Instant::now(), counted(server, figure)?, busy()?);
            sleep(TURN);
            let after = (Instant::now(), counted(server, figure)?, busy()?);
            turns.push(Turn {
                figure,
                repetition,
                block,
                on,
                seconds: after.0.duration_since(before.0).as_secs_f64(),
                count: after.1 - before.1,
                busy_us: (after.2 - before.2).as_micros() as u64,
            });
        }
    }
    switch.set(false)?;
    Ok(turns)
}

/// What the server's kernel has counted so far (RFC 4022).
fn counted(server: &Netns, figure: Figure) -> Result<u64> {
    let text = server.run(|| fs::read_to_string("/proc/thread-self/net/snmp"))??;
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    let value = both.find(|(name, _)| *name == figure.counter()).map(|(_, value)| value.parse());
    Ok(value.with_context(|| format!("the kernel does not count {}", figure.counter()))??)
}

/// Time that all processors together have been busy so far, that of interrupts too.
fn busy() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let all = text.lines().next().context("/proc/stat is empty")?;
    let hundredths: Vec<u64> =
        all.split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>()?;
    // user, nice, system, and behind those that wait: interrupts, of both kinds.
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|index| hundredths.get(*index)).sum::<u64>();
    Ok(Duration::from_millis(10 * busy))
}

/// What the turns of one relay come to.
fn summarized(turns: &[Turn]) -> String {
    let Some(Turn { figure, .. }) = turns.first() else { return String::new() };
    let all: Vec<&Turn> = turns.iter().collect();
    let blocks: Vec<Vec<&Turn>> = turns
        .chunk_by(|one, other| one.block == other.block)
        .map(|block| block.iter().collect())
        .collect();
    let mut text = format!("{}\n", figure.title());
    for (name, on) in [("off", false), ("on", true)] {
        let _ = writeln!(
            text,
            "  {name:<14} {:>8.0}/s {:>8.2} us each",
            rate(&all, on),
            cost(&all, on)
        );
    }
    for (name, of) in [("rate", rate as fn(&[&Turn], bool) -> f64), ("processor time", cost)] {
        let ratio = |turns: &[&Turn]| of(turns, true) / of(turns, false);
        let ratios: Vec<f64> = blocks.iter().map(|block| ratio(block)).collect();
        let Interval { least, most } = median_interval(ratios.clone());
        let _ = writeln!(
            text,
            "  {name:<14} x{:.3} (95 %: {least:.3} - {most:.3}), median of {} blocks; x{:.3} all together",
            median(ratios),
            blocks.len(),
            ratio(&all),
        );
    }
    text
}

/// Counted each second, of these turns that are on, or off.
fn rate(turns: &[&Turn], on: bool) -> f64 {
    let seconds: f64 = turns.iter().filter(|turn| turn.on == on).map(|turn| turn.seconds).sum();
    count(turns, on) / seconds
}

/// Processor time of each that was counted, in microseconds.
fn cost(turns: &[&Turn], on: bool) -> f64 {
    let busy: u64 = turns.iter().filter(|turn| turn.on == on).map(|turn| turn.busy_us).sum();
    busy as f64 / count(turns, on)
}

fn count(turns: &[&Turn], on: bool) -> f64 {
    turns.iter().filter(|turn| turn.on == on).map(|turn| turn.count).sum::<u64>() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_is_compared_with_what_is_off_within_each_block() {
        let turn = |block, on, count, busy_us| Turn {
            figure: Figure::Connections,
            repetition: 0,
            block,
            on,
            seconds: 0.5,
            count,
            busy_us,
        };
        // The machine is half as fast in the second block: the ratios are as in the first.
        let turns = [
            turn(0, true, 900, 9_000),
            turn(0, false, 1_000, 8_000),
            turn(1, false, 500, 8_000),
            turn(1, true, 450, 9_000),
        ];
        let said = summarized(&turns);
        assert!(
            said.contains(
                "rate           x0.900 (95 %: 0.900 - 0.900), median of 2 blocks; x0.900"
            ),
            "{said}"
        );
        assert!(said.contains("processor time x1.250"), "{said}");
        assert!(said.contains("off                1500/s    10.67 us each"), "{said}");
    }
}
