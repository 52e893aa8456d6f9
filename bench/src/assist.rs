//! One NetAssist daemon on one core: how late feedback is, and what it costs, by UEs and senders.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use hdrhistogram::Histogram;
use midspan_assist::config::DaemonConfig;
use midspan_assist::daemon::Daemon;
use midspan_assist::now;
use midspan_assist::source::{Embedded, UeName};
use midspan_assist::tls::{Audit, DevSet, Identity};
use midspan_assist_proto::{BasisKind, Causal, Inbox, LinkReading, Reading, ToDaemon};
use midspan_units::{Rate, Span, Time};
use quinn::{ClientConfig, Connection, Endpoint};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;

use crate::record;

#[derive(Args)]
pub(crate) struct Options {
    /// UEs, each a case with each number of senders.
    #[arg(long = "ues", default_values_t = [1_000, 10_000])]
    ues: Vec<u32>,

    /// Senders among whom the UEs are divided.
    #[arg(long = "senders", default_values_t = [1, 100])]
    senders: Vec<u32>,

    /// Cells that report one after the other within a period; in each all UEs at one moment.
    #[arg(long, default_value_t = 10)]
    cells: u32,

    /// Measured time of each run; a second of warm-up comes before it.
    #[arg(long, default_value = "5 s")]
    time: Span,

    /// Repetitions of each case, interleaved.
    #[arg(long, default_value_t = 3)]
    repetitions: u32,

    /// Each case once more beside a sender that misbehaves: three connections of one certificate, each of
    /// which registers for all UEs at 10 ms, again and again.
    #[arg(long)]
    misbehaving: bool,

    /// Keep raw results, summary, machine and command under bench/runs.
    #[arg(long)]
    record: bool,
}

const PERIOD: Span = Span::from_millis(50);
const NAME: &str = "netassist.example";
/// Connections of the sender that misbehaves, and how often each registers for everything anew.
const GREEDY: u32 = 3;
const AGAIN: Duration = Duration::from_millis(500);
/// What the first reading of a run says, in bit/s; each later round a bit more, so that feedback
/// tells of which reading it is.
const FIRST: u64 = 100_000_000;

/// One run's numbers, one JSON object a line in the raw results.
#[derive(Debug, Serialize)]
struct Run {
    ues: u32,
    senders: u32,
    /// Beside one that misbehaves.
    misbehaving: bool,
    cells: u32,
    repetition: u32,
    measured_s: f64,
    datagrams_per_s: f64,
    /// To the one that misbehaves, beside those.
    misbehaving_datagrams_per_s: f64,
    /// Measurements that a sender was told of, of those that were made.
    delivered_share: f64,
    /// From the measurement's hand-over to the daemon until its sender has read of it for the first
    /// time.
    delay_p50_us: u64,
    delay_p99_us: u64,
    delay_max_us: u64,
    /// Of one processor: the daemon's thread.
    daemon_cpu_share: f64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.cells >= 1, "--cells must be at least 1");
    let folder = tempfile::tempdir().context("no folder for certificates")?;
    let mut runs = Vec::new();
    for repetition in 0..options.repetitions {
        for &ues in &options.ues {
            for &senders in &options.senders {
                ensure!((1..=ues).contains(&senders), "--senders must be between 1 and --ues");
                for &misbehaving in if options.misbehaving { &[false, true][..] } else { &[false] }
                {
                    let case = Case { ues, senders, misbehaving };
                    let run = measure(folder.path(), options, case, repetition)?;
                    eprintln!("{}", line(&run));
                    runs.push(run);
                }
            }
        }
    }
    let summary = summary(&runs);
    print!("{summary}");
    if options.record {
        let kept = record::keep("assist", &runs, &summary, false)?;
        eprintln!("kept in {}", kept.display());
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    ues: u32,
    senders: u32,
    misbehaving: bool,
}

fn measure(
    folder: &std::path::Path,
    options: &Options,
    case: Case,
    repetition: u32,
) -> Result<Run> {
    let Case { ues, senders, misbehaving } = case;
    // The daemon's thread starts on a core of its own; everything else has the others.
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let _ = sched_setaffinity(None, &cpus(0..1));
    let daemon: Daemon<Causal> = Daemon::start(config(folder)?)?;
    let _ = sched_setaffinity(None, &cpus(1.min(cores - 1)..cores));
    let cell = daemon.embedded("cell").context("no way in")?;
    let client = identity(folder, "server").load()?.client(&Audit::default())?;
    let stop = Arc::new(AtomicBool::new(false));
    let (address, stopped) = (daemon.address(), stop.clone());
    let receiver = thread::spawn(move || receive(client, address, ues, senders, &stopped));
    let greedy = misbehaving
        .then(|| -> Result<_> {
            let client = identity(folder, "greedy").load()?.client(&Audit::default())?;
            let stopped = stop.clone();
            Ok(thread::spawn(move || misbehave(client, address, ues, &stopped)))
        })
        .transpose()?;
    let reporter = {
        let (stopped, cells) = (stop.clone(), options.cells);
        thread::spawn(move || report(&cell, ues, cells, &stopped))
    };
    thread::sleep(Duration::from_secs(1) + Duration::from_micros(u64::from(ues) * 100));
    let (from, cpu) = (now(), daemon_cpu()?);
    thread::sleep(options.time.into());
    let (until, used) = (now(), daemon_cpu()?.saturating_sub(cpu));
    stop.store(true, Ordering::Relaxed);
    let said = reporter.join().expect("the reporter lives");
    let read = receiver.join().expect("the receiver lives")?;
    let misbehaving_datagrams = match greedy {
        Some(greedy) => greedy.join().expect("it lives")?,
        None => 0.0,
    };
    let mut delays = Histogram::<u64>::new(3)?;
    // What a UE was last told of: a measurement that is repeated is no news.
    let mut latest = vec![None; ues as usize];
    let mut datagrams = 0u64;
    for (at, ue, bits) in read {
        let round = (bits - FIRST) as usize;
        let news = latest[ue as usize].replace(round) != Some(round);
        if !(from..until).contains(&at) {
            continue;
        }
        datagrams += 1;
        if news {
            let cell = cell_of(ue, ues, options.cells);
            let reported = said.get(&cell).and_then(|rounds| rounds.get(round));
            let reported = reported.context("feedback of a reading that nobody made")?;
            delays.record(at.since(*reported).as_micros())?;
        }
    }
    let measured_s = until.since(from).as_secs_f64();
    let news_per_s = delays.len() as f64 / measured_s;
    Ok(Run {
        ues,
        senders,
        misbehaving,
        cells: options.cells,
        repetition,
        measured_s,
        datagrams_per_s: datagrams as f64 / measured_s,
        misbehaving_datagrams_per_s: misbehaving_datagrams,
        delivered_share: news_per_s / (f64::from(ues) / PERIOD.as_secs_f64()),
        delay_p50_us: delays.value_at_quantile(0.5),
        delay_p99_us: delays.value_at_quantile(0.99),
        delay_max_us: delays.max(),
        daemon_cpu_share: used.as_secs_f64() / measured_s,
    })
}

fn address_of(ue: u32) -> IpAddr {
    IpAddr::from((0x0a2d_0000 + ue).to_be_bytes())
}

fn cell_of(ue: u32, ues: u32, cells: u32) -> u32 {
    (u64::from(ue) * u64::from(cells) / u64::from(ues)) as u32
}

/// The base stations: each reports all its UEs once a period. Answers when, cell by cell.
fn report(
    to: &Embedded<Causal>,
    ues: u32,
    cells: u32,
    stop: &AtomicBool,
) -> BTreeMap<u32, Vec<Time>> {
    let mut said: BTreeMap<u32, Vec<Time>> = BTreeMap::new();
    let start = now();
    for turn in 0.. {
        let wait = (start + PERIOD * turn / u64::from(cells)).since(now());
        thread::sleep(wait.into());
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let cell = (turn % u64::from(cells)) as u32;
        let rounds = said.entry(cell).or_default();
        let bits = FIRST + rounds.len() as u64;
        let link = LinkReading { capacity: Some(Rate::from_bps(bits)), ..LinkReading::default() };
        let at = now();
        let readings = (0..ues)
            .filter(|ue| cell_of(*ue, ues, cells) == cell)
            .map(|ue| (UeName::Address(address_of(ue)), Reading::passed(at, PERIOD, link, link)))
            .collect();
        rounds.push(at);
        if !to.report(readings) {
            rounds.pop();
        }
    }
    said
}

type Received = Vec<(Time, u32, u64)>;

/// The senders: each registers its UEs and reads what comes. Answers when what came of which UE.
fn receive(
    config: ClientConfig,
    daemon: SocketAddr,
    ues: u32,
    senders: u32,
    stop: &AtomicBool,
) -> Result<Received> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let (to, mut all) = tokio::sync::mpsc::unbounded_channel();
        for sender in 0..senders {
            let connection = endpoint.connect_with(config.clone(), daemon, NAME)?.await?;
            let mine: Vec<u32> =
                (0..ues).filter(|ue| cell_of(*ue, ues, senders) == sender).collect();
            tokio::spawn(sender_of(connection, mine, to.clone()));
        }
        drop(to);
        let (mut received, mut batch) = (Vec::new(), Vec::new());
        while !stop.load(Ordering::Relaxed) {
            let wait =
                tokio::time::timeout(Duration::from_millis(100), all.recv_many(&mut batch, 4096));
            if wait.await == Ok(0) {
                break;
            }
            received.append(&mut batch);
        }
        endpoint.close(0u32.into(), b"");
        Ok(received)
    })
}

async fn sender_of(
    connection: Connection,
    ues: Vec<u32>,
    to: tokio::sync::mpsc::UnboundedSender<(Time, u32, u64)>,
) -> Result<()> {
    let (mut send, _receive) = connection.open_bi().await?;
    let mut inbox = Inbox::new(BasisKind::Causal, Span::from_secs(1), Rate::from_bps(u64::MAX));
    let mut hello = ToDaemon::HELLO.encode().to_vec();
    for registration in &ues {
        let ue = address_of(*registration);
        inbox.register(*registration, ue);
        let register = ToDaemon::Register { registration: *registration, ue, period: PERIOD };
        hello.extend(register.encode());
    }
    send.write_all(&hello).await?;
    loop {
        let datagram = connection.read_datagram().await?;
        let at = now();
        if let Ok(update) = inbox.accept(&datagram, at) {
            let IpAddr::V4(ue) = update.ue else { continue };
            to.send((at, u32::from(ue) - 0x0a2d_0000, update.bandwidth.as_bps()))?;
        }
    }
}

/// Asks for all that there is as often as it can, by several connections of one certificate. Answers how
/// many datagrams a second came of it.
fn misbehave(config: ClientConfig, daemon: SocketAddr, ues: u32, stop: &AtomicBool) -> Result<f64> {
    // What it does with what it gets must not keep the others' receiver from its processor.
    let _ = rustix::process::nice(19);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let from = now();
    let datagrams = runtime.block_on(async {
        let endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let datagrams = Arc::new(AtomicU64::new(0));
        for _ in 0..GREEDY {
            let connection = endpoint.connect_with(config.clone(), daemon, NAME)?.await?;
            let count = datagrams.clone();
            let asking = connection.clone();
            tokio::spawn(async move {
                let (mut send, mut answers) = asking.open_bi().await?;
                // Whoever does not read what he is told would be sent away.
                tokio::spawn(async move {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(Some(_)) = answers.read(&mut buffer).await {}
                });
                send.write_all(&ToDaemon::HELLO.encode()).await?;
                for round in 0u32.. {
                    let mut all = Vec::new();
                    for ue in 0..ues {
                        let registration = round.wrapping_mul(ues).wrapping_add(ue);
                        let period = Span::from_millis(10);
                        let ue = address_of(ue);
                        all.extend(ToDaemon::Register { registration, ue, period }.encode());
                    }
                    send.write_all(&all).await?;
                    tokio::time::sleep(AGAIN).await;
                }
                anyhow::Ok(())
            });
            tokio::spawn(async move {
                while connection.read_datagram().await.is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        endpoint.close(0u32.into(), b"");
        anyhow::Ok(datagrams.load(Ordering::Relaxed))
    })?;
    Ok(datagrams as f64 / now().since(from).as_secs_f64())
}

fn config(folder: &std::path::Path) -> Result<DaemonConfig> {
    let path = folder.join("daemon.toml");
    if !path.exists() {
        let hosts = [
            ("daemon", vec![NAME]),
            ("server", vec!["server.example"]),
            ("greedy", vec!["greedy.example"]),
        ];
        DevSet::create()?.write(folder, &hosts)?;
        let peer = |name| format!("[[peer]]\nname = \"{name}\"\nmay_ask = [\"10.45.0.0/16\"]\n");
        let policy = ["server.example", "greedy.example"].map(peer).concat();
        fs::write(folder.join("policy.toml"), policy)?;
        let in_folder = |name: &str| folder.join(name);
        let text = format!(
            "listen = \"127.0.0.1:0\"\npolicy = {:?}\n[identity]\ncertificate = {:?}\nkey = {:?}\n\
             authority = {:?}\n[[source]]\nname = \"cell\"\nkind = \"embedded\"\n",
            in_folder("policy.toml"),
            in_folder("daemon.pem"),
            in_folder("daemon.key"),
            in_folder("authority.pem"),
        );
        fs::write(&path, text)?;
    }
    Ok(DaemonConfig::load(&path)?)
}

fn identity(folder: &std::path::Path, name: &str) -> Identity {
    Identity {
        certificate: folder.join(format!("{name}.pem")),
        key: folder.join(format!("{name}.key")),
        authority: folder.join("authority.pem"),
        revocation_lists: Vec::new(),
    }
}

fn cpus(range: std::ops::Range<usize>) -> CpuSet {
    let mut set = CpuSet::new();
    range.for_each(|cpu| set.set(cpu));
    set
}

/// Processor time of the daemon's thread.
fn daemon_cpu() -> Result<Duration> {
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        if name.trim() == "assist" {
            let stat = fs::read_to_string(task.join("schedstat"))?;
            let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
            return Ok(Duration::from_nanos(nanos.context("schedstat makes no sense")?));
        }
    }
    anyhow::bail!("the daemon has no thread")
}

fn line(run: &Run) -> String {
    format!(
        "{:>6} {:>8} {:>11.0} {:>6} {:>12.0} {:>9.1} % {:>9} {:>9} {:>9} {:>7.0} %",
        run.ues,
        run.senders,
        run.misbehaving_datagrams_per_s,
        run.cells,
        run.datagrams_per_s,
        run.delivered_share * 100.0,
        run.delay_p50_us,
        run.delay_p99_us,
        run.delay_max_us,
        run.daemon_cpu_share * 100.0,
    )
}

/// The run of each case whose 99th percentile is the middle one.
fn summary(runs: &[Run]) -> String {
    let mut cases: BTreeMap<(u32, u32, bool), Vec<&Run>> = BTreeMap::new();
    for run in runs {
        cases.entry((run.ues, run.senders, run.misbehaving)).or_default().push(run);
    }
    let mut text = String::from(
        "One daemon on one core, a measurement and a datagram for each UE every 50 ms. Delay from the\n\
         measurement's hand-over to its first arrival at the sender, in us; of the repetitions the one\n\
         whose 99th percentile is the middle one. Misbehaving: datagrams a second to a sender beside the others\n\
         that registers for all UEs at 10 ms, by three connections, again and again.\n\n   \
         UEs  senders misbehaving  cells  datagrams/s  delivered   median       99 %  greatest  daemon\n",
    );
    for runs in cases.values_mut() {
        runs.sort_by_key(|run| run.delay_p99_us);
        text += &line(runs[runs.len() / 2]);
        text.push('\n');
    }
    text
}
