use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use midspan_emu::{Backend, Emulator, Report};
use midspan_path::{ElementSpec, LinkSpec, QueueSpec, RateSpec};
use midspan_sys::userns;
use midspan_units::{ByteSize, Rate, Span};
use serde::Serialize;

use crate::chain::Chain;
use crate::flow::BulkFlow;
use crate::record;

#[derive(Args)]
pub(crate) struct Options {
    /// Rate of the link, counted on IP packets with their headers.
    #[arg(long, default_value = "1 Gbit/s")]
    rate: Rate,

    /// Round-trip times, each a case.
    #[arg(long = "rtt", value_name = "TIME", default_values = ["1 ms", "50 ms"])]
    rtts: Vec<Span>,

    /// Links in a row, with a router between two; the round-trip time is that of the whole path,
    /// and the first link is the bottleneck.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    links: u8,

    /// Repetitions of each case, interleaved.
    #[arg(long, default_value_t = 3)]
    repetitions: u32,

    /// Measured time of each run. A second and twenty round trips of warm-up come before it.
    #[arg(long, default_value = "3 s")]
    time: Span,

    /// Backends to measure: those that this user may use, unless named here.
    #[arg(long = "backend", value_enum)]
    backends: Vec<Kind>,

    /// Keep raw results, summary, machine and command under bench/runs.
    #[arg(long)]
    record: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// A TUN device at each end.
    Tun,
    /// A veth pair and a packet socket at each end.
    Packet,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Tun => "tun",
            Kind::Packet => "packet",
        }
    }
}

/// One run's numbers, one JSON object a line in the raw results.
#[derive(Debug, Serialize)]
struct Run {
    backend: Kind,
    links: u8,
    rtt_ms: f64,
    rate_mbps: f64,
    repetition: u32,
    measured_s: f64,
    /// What the receiving application read.
    goodput_mbps: f64,
    /// Of the most that the link's rate leaves to TCP payload.
    goodput_share: f64,
    /// Of one processor, the emulator's thread, whatever the number of links.
    cpu_share: f64,
    /// Of the link that was later.
    lateness_us: Percentiles,
    intake_gap_us: Percentiles,
    /// By the link's queue: intended.
    queue_drops: u64,
    unintended_drops: u64,
    scheduling: String,
    trusted: bool,
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct Percentiles {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !userns::is_root() {
        userns::become_root().context(
            "neither root nor allowed to be root in a user namespace of its own: \
             run as root, or allow unprivileged user namespaces",
        )?;
    }
    let backends = match (&options.backends[..], Backend::available()) {
        ([], Backend::Tun) => vec![Kind::Tun, Kind::Packet],
        ([], Backend::Packet) => vec![Kind::Packet],
        (named, _) => named.to_vec(),
    };
    println!("{}", header());
    let mut runs = Vec::new();
    for repetition in 0..options.repetitions {
        for &rtt in &options.rtts {
            for &backend in &backends {
                let run = measure(options, backend, rtt, repetition)?;
                println!("{}", row(&run));
                runs.push(run);
            }
        }
    }
    let summary = summary(&runs);
    print!("\n{summary}");
    if options.record {
        let table: Vec<String> = std::iter::once(header()).chain(runs.iter().map(row)).collect();
        let text = format!("{}\n\n{summary}", table.join("\n"));
        let directory = record::keep("emu", &runs, &text, false)?;
        println!("kept in {}", directory.display());
    }
    Ok(())
}

/// Of a 1500-byte packet TCP payload has 1448: IPv4 header 20, TCP header 20, timestamps 12.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

fn measure(options: &Options, backend: Kind, rtt: Span, repetition: u32) -> Result<Run> {
    let backend_of_links = match backend {
        Kind::Tun => Backend::Tun,
        Kind::Packet => Backend::Packet,
    };
    let mut specs = vec![link(options.rate, rtt / u64::from(options.links)); options.links.into()];
    // The first link is the bottleneck, and the only one that queues.
    for spec in &mut specs[1..] {
        spec.up.remove(0);
    }
    let chain = Chain::build(backend_of_links, &specs, u64::from(repetition))?;
    let flow = BulkFlow::start(chain.first(), chain.last(), (chain.address(), 5001).into())
        .context("the flow across the link could not start")?;
    sleep(Duration::from_secs(1) + Duration::from(rtt * 20));
    chain.links.iter().for_each(Emulator::restart_statistics);
    let (started, before) = (Instant::now(), flow.received());
    sleep(options.time.into());
    let goodput = Rate::of(flow.received() - before, started.elapsed().into());
    let reports: Vec<Report> = chain.links.iter().map(Emulator::report).collect();
    drop(flow);
    Ok(numbers(options, backend, rtt, repetition, goodput, &reports))
}

/// The rate and a queue of one bandwidth-delay product (at least 1 MB) upwards, half the round
/// trip each way.
fn link(rate: Rate, rtt: Span) -> LinkSpec {
    let product = rate.bytes_in(rtt).as_bytes();
    let queue =
        QueueSpec { bytes: Some(ByteSize::from_bytes(product.max(1_000_000))), packets: None };
    let delay = ElementSpec::Delay(rtt / 2);
    LinkSpec {
        up: vec![ElementSpec::Rate(RateSpec { rate, queue, aqm: None }), delay.clone()],
        down: vec![delay],
    }
}

fn numbers(
    options: &Options,
    backend: Kind,
    rtt: Span,
    repetition: u32,
    goodput: Rate,
    reports: &[Report],
) -> Run {
    let report =
        reports.iter().max_by_key(|report| report.lateness.p99).expect("one link at least");
    let micros = |span: Span| span.as_nanos() as f64 / 1000.0;
    let percentiles = |d: midspan_emu::Distribution| Percentiles {
        p50: micros(d.p50),
        p99: micros(d.p99),
        p999: micros(d.p999),
        max: micros(d.max),
    };
    let distrust = reports.iter().find_map(|report| report.distrust(rtt));
    Run {
        backend,
        links: options.links,
        rtt_ms: rtt.as_millis_f64(),
        rate_mbps: options.rate.as_mbps(),
        repetition,
        measured_s: report.elapsed.as_secs_f64(),
        goodput_mbps: goodput.as_mbps(),
        goodput_share: goodput.as_mbps() / (options.rate.as_mbps() * PAYLOAD_SHARE),
        cpu_share: report.cpu_share(),
        lateness_us: percentiles(report.lateness),
        intake_gap_us: percentiles(report.intake_gap),
        queue_drops: reports.iter().map(|report| report.up.packets_dropped()).sum(),
        unintended_drops: reports.iter().map(|report| report.drops.total()).sum(),
        scheduling: format!("{:?}", report.scheduling),
        trusted: distrust.is_none(),
        reason: distrust.map(|reason| reason.to_string()),
    }
}

/// Widths of the table's columns but the last, and what stands above them.
const COLUMNS: [(usize, &str, &str); 13] = [
    (7, "backend", ""),
    (6, "RTT", "ms"),
    (4, "rep", ""),
    (8, "goodput", "Mbit/s"),
    (7, "of max", "%"),
    (6, "CPU", "%"),
    (8, "p50", "us late"),
    (8, "p99", "us late"),
    (8, "p99.9", "us late"),
    (8, "worst", "us late"),
    (8, "gap p99", "us"),
    (6, "queue", "drops"),
    (6, "lost", ""),
];

fn header() -> String {
    let names = COLUMNS.map(|(_, name, _)| name.to_owned());
    let units = COLUMNS.map(|(_, _, unit)| unit.to_owned());
    line(names, "trusted") + "\n" + line(units, "").trim_end()
}

fn row(run: &Run) -> String {
    let late = &run.lateness_us;
    let micros = |value: f64| format!("{value:.1}");
    let cells = [
        run.backend.name().to_owned(),
        run.rtt_ms.to_string(),
        run.repetition.to_string(),
        format!("{:.1}", run.goodput_mbps),
        format!("{:.1}", 100.0 * run.goodput_share),
        format!("{:.1}", 100.0 * run.cpu_share),
        micros(late.p50),
        micros(late.p99),
        micros(late.p999),
        micros(late.max),
        micros(run.intake_gap_us.p99),
        run.queue_drops.to_string(),
        run.unintended_drops.to_string(),
    ];
    line(cells, run.reason.as_deref().unwrap_or("yes"))
}

fn line(cells: [String; 13], last: &str) -> String {
    let mut line = String::new();
    for (cell, (width, _, _)) in cells.iter().zip(COLUMNS) {
        line += &format!("{cell:>width$} ");
    }
    line + " " + last
}

/// One line for each case: the range of what was measured, and how many runs can be trusted.
fn summary(runs: &[Run]) -> String {
    let mut cases: Vec<(Kind, f64)> = runs.iter().map(|run| (run.backend, run.rtt_ms)).collect();
    cases.sort_by(|a, b| a.0.name().cmp(b.0.name()).then(a.1.total_cmp(&b.1)));
    cases.dedup();
    let mut text = String::new();
    for (backend, rtt) in cases {
        let of_case = || runs.iter().filter(|run| run.backend == backend && run.rtt_ms == rtt);
        let range = |value: fn(&Run) -> f64| {
            let least = of_case().map(value).fold(f64::INFINITY, f64::min);
            let most = of_case().map(value).fold(f64::NEG_INFINITY, f64::max);
            format!("{least:.1} - {most:.1}")
        };
        text += &format!(
            "{} at {rtt} ms: goodput {} % of the most, p99 {} us late, {} of {} runs trusted\n",
            backend.name(),
            range(|run| 100.0 * run.goodput_share),
            range(|run| run.lateness_us.p99),
            of_case().filter(|run| run.trusted).count(),
            of_case().count(),
        );
    }
    text
}
