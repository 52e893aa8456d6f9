//! How fast the simulator is: one bulk flow over one bottleneck, against the clock and against ns-3.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use midspan_path::Traces;
use midspan_scenario::record::Variant;
use midspan_scenario::{CellSpec, Scenario};
use midspan_units::{Rate, Span};
use serde::{Deserialize, Serialize};

use crate::record;

#[derive(Args)]
pub(crate) struct Options {
    /// Rates of the bottleneck, each a case.
    #[arg(long = "rate", value_name = "RATE", default_values = ["100 Mbit/s", "1 Gbit/s"])]
    rates: Vec<Rate>,

    /// Simulated times, each a case.
    #[arg(long = "time", value_name = "TIME", default_values = ["10 s", "100 s"])]
    times: Vec<Span>,

    /// Congestion control of the sender.
    #[arg(long, default_value = "cubic")]
    control: String,

    /// Repetitions of each case, interleaved; Midspan runs the shortest five times in each.
    #[arg(long, default_value_t = 5)]
    repetitions: u32,

    /// Keep raw results, summary, machine and command under bench/runs.
    #[arg(long)]
    record: bool,

    /// Simulate the one case that is given, and print what it took as JSON.
    #[arg(long, hide = true)]
    once: bool,
}

/// One run of one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Run {
    simulator: Simulator,
    rate: Rate,
    time: Span,
    repetition: u32,
    #[serde(flatten)]
    taken: Taken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Simulator {
    Midspan,
    Ns3,
}

impl Simulator {
    fn name(self) -> &'static str {
        match self {
            Simulator::Midspan => "midspan",
            Simulator::Ns3 => "ns-3",
        }
    }
}

/// What a process that simulates one case says of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Taken {
    /// Its version.
    version: String,
    /// By the clock, for the simulation alone: neither for starting the process nor for the set-up.
    seconds: f64,
    events: u64,
    goodput_mbps: f64,
    /// Greatest resident memory of the process.
    peak_kib: u64,
}

/// Names the driver of bench/ns3, compiled, which is then measured too.
const NS3: &str = "MIDSPAN_NS3";
/// What a case that it is measured in may transfer. ns-3 takes 40 s for a second of 1 Gbit/s.
const NS3_MOST_BITS: f64 = 1e9;
/// How often Midspan runs such a case in each repetition: single runs of some 40 ms differ by half.
const SHORT_RUNS: u32 = 5;

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.once {
        let [rate, time] = [options.rates.len(), options.times.len()];
        ensure!(rate == 1 && time == 1, "one rate and one time, not {rate} and {time}");
        let taken = simulate(options.rates[0], options.times[0], &options.control)?;
        println!("{}", serde_json::to_string(&taken)?);
        return Ok(());
    }
    let ns3 = env::var_os(NS3).map(PathBuf::from);
    let mut runs = Vec::new();
    for repetition in 0..options.repetitions {
        for &time in &options.times {
            for &rate in &options.rates {
                let bits = rate.as_bps() as f64 * time.as_secs_f64();
                let is_short = bits <= NS3_MOST_BITS;
                for _ in 0..if is_short { SHORT_RUNS } else { 1 } {
                    let ours = midspan(rate, time, &options.control)?;
                    runs.push((Simulator::Midspan, rate, time, repetition, ours));
                }
                if let Some(program) = ns3.as_deref().filter(|_| is_short) {
                    let theirs = ns3_driver(program, rate, time, &options.control)?;
                    runs.push((Simulator::Ns3, rate, time, repetition, theirs));
                }
            }
        }
    }
    let runs: Vec<Run> = runs
        .into_iter()
        .map(|(simulator, rate, time, repetition, taken)| Run {
            simulator,
            rate,
            time,
            repetition,
            taken,
        })
        .collect();
    let summary = summary(&runs);
    print!("{summary}");
    if options.record {
        println!("Kept in {}", record::keep("sim", &runs, &summary, false)?.display());
    }
    Ok(())
}

/// 50 ms, a queue of one bandwidth-delay product.
fn cell(rate: Rate, time: Span, control: &str) -> Result<CellSpec> {
    let queue = rate.bytes_in(Span::from_millis(50));
    let text = format!(
        "name = 'bench'\ntitle = 'Bench'\nseed = 1\nvariants = ['none']\n\
         [path.access]\n\
         up = [{{ rate = {{ rate = '{rate}', queue = {{ bytes = '{queue}' }} }} }}, {{ delay = '0.5 ms' }}]\n\
         down = [{{ delay = '0.5 ms' }}]\n\
         [path.wide]\nup = [{{ delay = '24.5 ms' }}]\ndown = [{{ delay = '24.5 ms' }}]\n\
         [hosts]\n\
         ue = {{ congestion_control = '{control}', buffers = 'max' }}\n\
         server = {{ buffers = 'max' }}\n\
         [workload]\nkind = 'bulk'\ndirection = 'upload'\ntime = '{time}'\n"
    );
    let scenario = Scenario::parse(&text, "bench.toml")?;
    Ok(scenario.cells()[0].spec.clone())
}

fn simulate(rate: Rate, time: Span, control: &str) -> Result<Taken> {
    let cell = cell(rate, time, control)?;
    let begin = Instant::now();
    let (measurement, work) = midspan_sim::run(&cell, Variant::None, &Traces::new(), 1)?;
    Ok(Taken {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seconds: begin.elapsed().as_secs_f64(),
        events: work.events,
        goodput_mbps: measurement.bulk().unwrap().goodput_bps / 1e6,
        peak_kib: peak_kib()?,
    })
}

/// In a process of its own, as ns-3 is, and so that its memory is its own.
fn midspan(rate: Rate, time: Span, control: &str) -> Result<Taken> {
    let program = env::current_exe().context("where is this program?")?;
    let (rate, time) = (rate.to_string(), time.to_string());
    let mut command = Command::new(program);
    ask(command.args(["sim", "--once", "--rate", &rate, "--time", &time, "--control", control]))
}

fn ns3_driver(program: &Path, rate: Rate, time: Span, control: &str) -> Result<Taken> {
    let control = match control {
        "cubic" => "ns3::TcpCubic",
        "reno" => "ns3::TcpLinuxReno",
        "bbr" => "ns3::TcpBbr",
        other => bail!("ns-3 has no `{other}`: cubic, reno, bbr, or no {NS3}"),
    };
    ask(Command::new(program).args([
        format!("--rate={}", rate.as_bps()),
        format!("--time={}", time.as_secs_f64()),
        format!("--control={control}"),
    ]))
}

fn ask(command: &mut Command) -> Result<Taken> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}: {}", output.status, said.trim());
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{name}: {}", String::from_utf8_lossy(&output.stdout).trim()))
}

fn peak_kib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.context("the kernel does not say how much memory was used")
}

/// A row for each case and simulator, by its median run; then the goals.
fn summary(runs: &[Run]) -> String {
    let mut text = format!(
        "{:>12} {:>8} {:>14} {:>12} {:>14} {:>12} {:>14} {:>10}\n",
        "rate",
        "time",
        "simulator",
        "median, ms",
        "simulated s/s",
        "million/s",
        "Mbit/s",
        "peak MiB"
    );
    let mut cases: Vec<(Rate, Span, Simulator)> = Vec::new();
    for run in runs {
        let case = (run.rate, run.time, run.simulator);
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    for &(rate, time, simulator) in &cases {
        let Some(median) = median(runs, rate, time, simulator) else { continue };
        let (rate, time) = (rate.to_string(), time.to_string());
        text += &format!(
            "{rate:>12} {time:>8} {:>14} {:>12.1} {:>14.1} {:>12.2} {:>14.1} {:>10.1}\n",
            format!("{} {}", simulator.name(), median.taken.version),
            median.taken.seconds * 1e3,
            median.time.as_secs_f64() / median.taken.seconds,
            median.taken.events as f64 / median.taken.seconds / 1e6,
            median.taken.goodput_mbps,
            median.taken.peak_kib as f64 / 1024.0,
        );
    }
    text + &goals(runs)
}

fn median(runs: &[Run], rate: Rate, time: Span, simulator: Simulator) -> Option<&Run> {
    let mut of_case: Vec<&Run> = runs
        .iter()
        .filter(|run| run.rate == rate && run.time == time && run.simulator == simulator)
        .collect();
    of_case.sort_by(|a, b| a.taken.seconds.total_cmp(&b.taken.seconds));
    of_case.get(of_case.len() / 2).copied()
}

/// What was set as a goal, and what was reached; nothing of what was not measured.
fn goals(runs: &[Run]) -> String {
    let [slow, fast] = [100, 1000].map(|mbps| Rate::from_bps(mbps * 1_000_000));
    let [short, long] = [10, 100].map(Span::from_secs);
    let ours = |rate, time| median(runs, rate, time, Simulator::Midspan).map(|run| &run.taken);
    let theirs = median(runs, slow, short, Simulator::Ns3).map(|run| &run.taken);
    let times_ns3 = ours(slow, short).zip(theirs).map(|(ours, ns3)| ns3.seconds / ours.seconds);
    let times_real = ours(fast, short).map(|ours| short.as_secs_f64() / ours.seconds);
    let growth = ours(fast, long)
        .zip(ours(fast, short))
        .map(|(long, short)| long.peak_kib as f64 / short.peak_kib as f64);
    let mut text = String::new();
    let mut goal = |what: &str, wanted: &str, reached: Option<f64>, met: fn(f64) -> bool| {
        if let Some(reached) = reached {
            let verdict = if met(reached) { "met" } else { "missed" };
            text += &format!("{what}: wanted {wanted}, reached {reached:.2}: {verdict}\n");
        }
    };
    goal("10 s of 100 Mbit/s, times as fast as ns-3", "50", times_ns3, |reached| reached >= 50.0);
    goal("10 s of 1 Gbit/s, times as fast as real time", "5", times_real, |reached| reached >= 5.0);
    let most = "1.1 at most";
    goal("memory of 100 s of 1 Gbit/s over that of 10 s", most, growth, |reached| reached <= 1.1);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(simulator: Simulator, mbps: u64, secs: u64, seconds: f64, peak_kib: u64) -> Run {
        Run {
            simulator,
            rate: Rate::from_bps(mbps * 1_000_000),
            time: Span::from_secs(secs),
            repetition: 0,
            taken: Taken {
                version: "1".to_owned(),
                seconds,
                events: 1,
                goodput_mbps: 1.0,
                peak_kib,
            },
        }
    }

    #[test]
    fn goals_are_judged_by_medians() {
        use Simulator::{Midspan, Ns3};
        let runs = [
            run(Midspan, 100, 10, 0.1, 1),
            run(Midspan, 100, 10, 0.01, 1),
            run(Midspan, 100, 10, 0.02, 1),
            run(Ns3, 100, 10, 2.0, 1),
            run(Midspan, 1000, 10, 4.0, 1000),
            run(Midspan, 1000, 100, 40.0, 1101),
        ];
        let text = goals(&runs);
        let verdicts: Vec<&str> =
            text.lines().map(|line| line.rsplit(", reached ").next().unwrap()).collect();
        assert_eq!(verdicts, ["100.00: met", "2.50: missed", "1.10: missed"]);
        assert_eq!(goals(&runs[4..5]).lines().count(), 1, "what was not measured is not judged");
    }
}
