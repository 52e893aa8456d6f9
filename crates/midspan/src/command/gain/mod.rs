//! `midspan relay gain`: what a flow log with a holdout says of how much faster splitting is.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use midspan_gain::{
    Arm, Estimate, Estimator, Id, Interval, Observation, Place, Settings, SizeClass, Unit,
};
use midspan_units::Span;
use serde::{Deserialize, Serialize};

use super::BadInput;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Flow logs of a relay with a holdout, and the files that they were rotated to, in any order
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// What rows are of
    #[arg(long, value_enum, default_value_t = By::Size)]
    by: By,
    /// How much of the beginning of each slot is left out, in which what began before still has a say
    #[arg(long, value_name = "TIME", default_value = "30 s")]
    settle: Span,
    /// How many rows, those with most connections first
    #[arg(long, value_name = "N", default_value_t = 20)]
    most: usize,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum By {
    /// What connections carried
    Size,
    /// Servers' addresses
    Service,
    /// Servers' networks, /24 and /48
    Prefix,
}

/// The keys of a flow log's line that matter.
#[derive(Debug, Deserialize)]
struct Line {
    kind: String,
    start: Option<String>,
    client: Option<String>,
    server: Option<SocketAddr>,
    verdict: Option<String>,
    holdout: Option<f64>,
    slot: Option<String>,
    up: Option<Direction>,
    down: Option<Direction>,
}

#[derive(Debug, Default, Deserialize)]
struct Direction {
    bytes: u64,
    last_acknowledged_us: Option<u64>,
}

/// What was read of the logs.
#[derive(Debug, Default)]
struct Read {
    /// By slot, in seconds.
    slots: BTreeMap<u64, Vec<Observation>>,
    /// Connections that were drawn one by one.
    alone: usize,
    /// Connections in the beginning of a slot.
    unsettled: usize,
    /// Connections that carried nothing, or whose carrying nobody acknowledged.
    empty: usize,
}

/// What is known of some of the connections.
#[derive(Debug, Serialize)]
struct Row {
    of: String,
    split: u64,
    held_out: u64,
    /// How many times faster, if anything can be said.
    gain: Option<f64>,
    /// Where that is, but for one time in twenty, however often one looks.
    at_least: Option<f64>,
    at_most: Option<f64>,
    verdict: &'static str,
}

#[derive(Debug, Serialize)]
struct Table {
    rows: Vec<Row>,
    notes: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut read = Read::default();
    for path in &arguments.logs {
        let unreadable =
            |error| BadInput::because(format!("cannot read {}: {error}", path.display()));
        let file = File::open(path).map_err(unreadable)?;
        for (number, line) in BufReader::new(file).lines().enumerate() {
            let line = line.map_err(unreadable)?;
            let parsed = serde_json::from_str(&line).map_err(|error| error.to_string());
            parsed.and_then(|line| read.add(&line, arguments.settle)).map_err(|error| {
                let at = format!("{}:{}", path.display(), number + 1);
                BadInput::because(format!("{at}: not a line of a flow log: {error}"))
            })?;
        }
    }
    if read.slots.is_empty() {
        return Err(BadInput::because(
            "no connection in these logs was split or held out by chance: set `policy.holdout`, and `[flow_log]`, and come back \
             when some have ended",
        ));
    }
    let table = estimate(read, arguments).context("the connections cannot be compared")?;
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&table)?),
        false => print!("{table}"),
    }
    Ok(ExitCode::SUCCESS)
}

impl Read {
    fn add(&mut self, line: &Line, settle: Span) -> Result<(), String> {
        let Line { start: Some(start), client: Some(client), server: Some(server), .. } = line
        else {
            return Ok(());
        };
        let arm = match line.verdict.as_deref() {
            Some("split") if line.kind == "path" => Arm::Split,
            Some("pass_holdout") => Arm::Unsplit,
            _ => return Ok(()),
        };
        let Some(share) = line.holdout.filter(|share| (1e-4..=1.0 - 1e-4).contains(share)) else {
            return Ok(());
        };
        let second = |text: &str| {
            Timestamp::from_str(text)
                .map(|time| time.as_second())
                .map_err(|error| error.to_string())
        };
        let began = second(start)?;
        // In plain each connection has its port.
        let name = client.parse::<SocketAddr>().map_or(client.clone(), |at| at.ip().to_string());
        let (slot, subscriber) = match &line.slot {
            Some(slot) => (second(slot)?, hash_of(&name)),
            None => {
                self.alone += 1;
                (began, hash_of(&(client, start)))
            }
        };
        if line.slot.is_some() && ((began - slot) as f64) < settle.as_secs_f64() {
            self.unsettled += 1;
            return Ok(());
        }
        let ways = [&line.up, &line.down].into_iter().flatten();
        let bytes = ways.clone().map(|way| way.bytes).sum();
        let Some(completion_us) = ways.filter_map(|way| way.last_acknowledged_us).max() else {
            self.empty += 1;
            return Ok(());
        };
        let (service, prefix) = place_of(server.ip());
        self.slots.entry(slot.max(0).unsigned_abs()).or_default().push(Observation {
            place: Place { group: Id(0), service: Id(service), prefix: Id(prefix) },
            subscriber: Id(subscriber),
            slot: slot.max(0).unsigned_abs(),
            arm,
            probability: if arm == Arm::Split { 1.0 - share } else { share },
            bytes,
            // Not known of those that were passed.
            connect_rtt: 1.0,
            completion: completion_us.max(1) as f64 / 1e6,
        });
        Ok(())
    }
}

fn hash_of(what: &impl Hash) -> u128 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    u128::from(hasher.finish())
}

/// An address, IPv4 as IPv4-mapped IPv6, and the network that it is in.
fn place_of(address: IpAddr) -> (u128, u128) {
    let number = match address {
        IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
        IpAddr::V6(v6) => u128::from(v6),
    };
    (number, number >> network_bits(address) << network_bits(address))
}

/// How many bits of an address name a host in its network.
fn network_bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 8 } else { 80 }
}

fn name_of(id: Id) -> IpAddr {
    Ipv6Addr::from(id.0).to_canonical()
}

fn estimate(read: Read, arguments: &Arguments) -> Result<Table> {
    let all: usize = read.slots.values().map(Vec::len).sum();
    let mut counts = BTreeMap::<(Unit, Option<SizeClass>), [u64; 2]>::new();
    let mut estimator = Estimator::new(Settings { max_clusters: all, ..Settings::default() })?;
    for (slot, observations) in &read.slots {
        for observation in observations {
            estimator.observe(observation)?;
            let class = SizeClass::of(observation.bytes);
            let units = Unit::around(observation.place).map(|unit| (unit, None));
            for key in units.into_iter().chain([(Unit::All, Some(class))]) {
                counts.entry(key).or_default()[usize::from(observation.arm == Arm::Unsplit)] += 1;
            }
        }
        estimator.close(*slot);
    }
    let counts_of = |unit, class| counts.get(&(unit, class)).copied().unwrap_or_default();
    let whole = |name: String, estimate: Estimate| {
        row(name, counts_of(estimate.unit, None), Some(estimate.gain), Some(estimate.interval))
    };
    let mut rows: Vec<Row> = match arguments.by {
        By::Size => SizeClass::ALL
            .into_iter()
            .map(|class| {
                let interval = estimator.of_class(Unit::All, class);
                row(label(class).into(), counts_of(Unit::All, Some(class)), None, interval)
            })
            .filter(|row| row.split + row.held_out > 0)
            .collect(),
        By::Service | By::Prefix => estimator
            .estimates()
            .filter_map(|estimate| match (arguments.by, estimate.unit) {
                (By::Service, Unit::Service { service, .. }) => {
                    Some(whole(name_of(service).to_string(), estimate))
                }
                (By::Prefix, Unit::Prefix(prefix)) => {
                    let address = name_of(prefix);
                    let length = if address.is_ipv4() { 24 } else { 48 };
                    Some(whole(format!("{address}/{length}"), estimate))
                }
                _ => None,
            })
            .collect(),
    };
    let more = rows.len().saturating_sub(arguments.most);
    if more > 0 {
        rows.sort_by_key(|row| std::cmp::Reverse(row.split + row.held_out));
        rows.truncate(arguments.most);
    }
    if let Some(estimate) = estimator.estimate(Unit::All) {
        rows.insert(0, whole("all".into(), estimate));
    }
    Ok(Table { rows, notes: notes(&read, more, arguments.settle) })
}

fn notes(read: &Read, more: usize, settle: Span) -> Vec<String> {
    let told = [
        (more, "rows more: --most shows them".to_owned()),
        (
            read.alone,
            "connections were drawn one by one: those of one page share a link, and slow down what they are compared with. \
             `policy.holdout_slot` draws subscribers"
                .into(),
        ),
        (
            read.unsettled,
            format!("connections began in the first {settle} of a slot, and are left out (--settle)"),
        ),
        (read.empty, "connections carried nothing that was acknowledged, and are left out".into()),
    ];
    told.into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
}

fn label(class: SizeClass) -> &'static str {
    match class {
        SizeClass::Below10Kb => "below 10 kB",
        SizeClass::Below100Kb => "10 to 100 kB",
        SizeClass::Below1Mb => "100 kB to 1 MB",
        SizeClass::Below10Mb => "1 to 10 MB",
        SizeClass::Larger => "10 MB and more",
    }
}

fn row(
    of: String,
    [split, held_out]: [u64; 2],
    gain: Option<f64>,
    interval: Option<Interval>,
) -> Row {
    // What bounds of logarithms are as good as none.
    let interval = interval.filter(|interval| interval.upper - interval.lower < 4.0);
    let verdict = match interval {
        Some(Interval { lower, .. }) if lower > 0.0 => "faster",
        Some(Interval { upper, .. }) if upper < 0.0 => "slower",
        Some(Interval { lower, .. }) if lower > -Settings::default().margin => "no slower",
        _ => "not known yet",
    };
    let middle = interval.map(|interval| (interval.lower + interval.upper) / 2.0);
    Row {
        of,
        split,
        held_out,
        gain: interval.and(gain.or(middle)).map(f64::exp),
        at_least: interval.map(|interval| interval.lower.exp()),
        at_most: interval.map(|interval| interval.upper.exp()),
        verdict,
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings =
            ["connections", "split", "held out", "gain", "at least", "at most", "splitting is"];
        let times = |gain: Option<f64>| gain.map_or("-".into(), |gain| format!("{gain:.2} x"));
        let cells = |row: &Row| {
            [
                row.of.clone(),
                row.split.to_string(),
                row.held_out.to_string(),
                times(row.gain),
                times(row.at_least),
                times(row.at_most),
                row.verdict.to_owned(),
            ]
        };
        let rows: Vec<_> = std::iter::once(headings.map(str::to_owned))
            .chain(self.rows.iter().map(cells))
            .collect();
        let widths: [usize; 7] =
            std::array::from_fn(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0));
        for row in &rows {
            let cells = row.iter().zip(widths).enumerate().map(|(at, (cell, width))| {
                // Words to the left, numbers to the right.
                if at == 0 || at == 6 {
                    format!("{cell:width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        writeln!(
            f,
            "\nHow many times faster connections were done if they were split, by when their ends acknowledged. Bounds hold together \
             at all times but for one time in twenty."
        )?;
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}."))
    }
}
