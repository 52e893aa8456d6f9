//! How fast the simulator is: one bulk flow over one bottleneck, against the clock.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use midspan_path::Traces;
use midspan_scenario::record::Variant;
use midspan_scenario::{CellSpec, Scenario};
use midspan_units::{Rate, Span};
use serde::Serialize;

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

    /// Repetitions of each case, interleaved.
    #[arg(long, default_value_t = 5)]
    repetitions: u32,

    /// Keep raw results, summary, machine and command under bench/runs.
    #[arg(long)]
    record: bool,
}

/// One run of one case.
#[derive(Debug, Clone, Serialize)]
struct Run {
    rate: String,
    time: String,
    repetition: u32,
    /// By the clock.
    seconds: f64,
    simulated_s: f64,
    events: u64,
    goodput_mbps: f64,
    /// Greatest resident memory of the program so far, KiB.
    peak_kib: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut runs = Vec::new();
    for repetition in 0..options.repetitions {
        for &time in &options.times {
            for &rate in &options.rates {
                runs.push(measure(options, rate, time, repetition)?);
            }
        }
    }
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

fn measure(options: &Options, rate: Rate, time: Span, repetition: u32) -> Result<Run> {
    let cell = cell(rate, time, &options.control)?;
    let begin = Instant::now();
    let (measurement, work) = midspan_sim::run(&cell, Variant::None, &Traces::new(), 1)?;
    Ok(Run {
        rate: rate.to_string(),
        time: time.to_string(),
        repetition,
        seconds: begin.elapsed().as_secs_f64(),
        simulated_s: work.simulated.as_secs_f64(),
        events: work.events,
        goodput_mbps: measurement.goodput_bps / 1e6,
        peak_kib: peak_kib()?,
    })
}

fn peak_kib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.context("the kernel does not say how much memory was used")
}

fn summary(runs: &[Run]) -> String {
    let mut cases: Vec<(&str, &str)> = Vec::new();
    for run in runs {
        if !cases.contains(&(&run.rate, &run.time)) {
            cases.push((&run.rate, &run.time));
        }
    }
    let mut text = format!(
        "{:>12} {:>8} {:>12} {:>16} {:>12} {:>14} {:>10}\n",
        "rate", "time", "median, ms", "simulated s/s", "million/s", "goodput", "peak MiB"
    );
    for (rate, time) in cases {
        let mut of_case: Vec<&Run> =
            runs.iter().filter(|run| run.rate == rate && run.time == time).collect();
        of_case.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let median = of_case[of_case.len() / 2];
        let peak = of_case.iter().map(|run| run.peak_kib).max().unwrap_or(0);
        text += &format!(
            "{rate:>12} {time:>8} {:>12.1} {:>16.0} {:>12.2} {:>14.1} {:>10.1}\n",
            median.seconds * 1e3,
            median.simulated_s / median.seconds,
            median.events as f64 / median.seconds / 1e6,
            median.goodput_mbps,
            peak as f64 / 1024.0,
        );
    }
    text
}
