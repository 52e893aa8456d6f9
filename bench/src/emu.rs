use std::path::PathBuf;
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
    if options.record {
        let table: Vec<String> = std::iter::once(header()).chain(runs.iter().map(row)).collect();
        let directory: PathBuf = record::keep("emu", &runs, &(table.join("\n") + "\n"))?;
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

fn header() -> String {
    format!(
        "{:8} {:>6} {:>3} {:>8} {:>6} {:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6}  {}",
        "backend",
        "RTT",
        "rep",
        "goodput",
        "of max",
        "CPU",
        "p50",
        "p99",
        "p99.9",
        "worst",
        "gap p99",
        "queue",
        "lost",
        "trusted"
    ) + "\n"
        + &format!(
            "{:8} {:>6} {:>3} {:>8} {:>6} {:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6}",
            "",
            "ms",
            "",
            "Mbit/s",
            "%",
            "%",
            "us late",
            "us late",
            "us late",
            "us late",
            "us",
            "drops",
            ""
        )
}

fn row(run: &Run) -> String {
    let late = &run.lateness_us;
    format!(
        "{:8} {:>6} {:>3} {:>8.1} {:>6.1} {:>5.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>6} {:>6}  {}",
        format!("{:?}", run.backend).to_lowercase(),
        run.rtt_ms,
        run.repetition,
        run.goodput_mbps,
        100.0 * run.goodput_share,
        100.0 * run.cpu_share,
        late.p50,
        late.p99,
        late.p999,
        late.max,
        run.intake_gap_us.p99,
        run.queue_drops,
        run.unintended_drops,
        run.reason.as_deref().unwrap_or("yes"),
    )
}
