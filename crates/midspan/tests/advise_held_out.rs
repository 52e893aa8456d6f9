//! `midspan advise` beside recorded live runs that it was not made by: is its choice the better one, and its gain the one that was
//! measured? Asked for are all paths that were drawn by chance for this (scenarios/radio/drawn.toml), and of the cells of other recorded
//! runs so many, drawn by a hash of their names. The table is `advise_held_out.txt`, which a change of the
//! simulator or of the advice must write anew: MIDSPAN_UPDATE=1 with MIDSPAN_TEST_ALL=1. Without the latter only the quick ones of them are
//! asked for, and held against their lines.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use midspan_lab::results::Results;
use midspan_path::{ElementSpec, LateSpec, LossSpec, RateSpec, Unit};
use midspan_scenario::record::{Backend, Outcome, Record, Variant, WorkloadRecord};
use midspan_scenario::summary::{Gain, Summary};
use midspan_scenario::{
    Buffers, CellSpec, Direction, Host, LegConfig, Relay, Scenario, ServiceHost, Workload,
};
use midspan_units::{Rate, Span};
use serde_json::Value;
use sha2::{Digest, Sha256};

const TABLE: &str = "tests/advise_held_out.txt";

/// A factor less than this is no difference (as the relay's own decisions have it): either choice is right.
const MARGIN: f64 = 0.03;
/// How close a predicted gain is to be.
const CLOSE: f64 = 0.25;
/// The scenario all of whose cells are asked for.
const DRAWN: &str = "radio-drawn: ";
/// How many cells of other scenarios are asked for.
const SAMPLE: usize = 24;
/// What is simulated in a moment.
const QUICK: Rate = Rate::from_bps(30_000_000);

/// A cell that was measured live, with and without the relay.
struct Cell {
    name: String,
    options: Vec<String>,
    rate: Rate,
    live: Gain,
    alone: Alone,
}

/// How many live pairs of a cell, with and without the relay, are as close to the mean of its others as is asked of a
/// prediction: what a run tells of the next ones.
#[derive(Clone, Copy)]
struct Alone {
    pairs: usize,
    close: usize,
}

impl Alone {
    fn of(records: &[Record], cell: &BTreeMap<String, String>) -> Alone {
        let mut goodput = BTreeMap::new();
        for record in records.iter().filter(|record| record.cell == *cell) {
            if let Outcome::Measured(measurement) = &record.outcome
                && let WorkloadRecord::Bulk(bulk) = &measurement.workload
            {
                goodput.insert((record.repetition, record.variant), bulk.goodput_bps);
            }
        }
        let pair = |(&(repetition, variant), with): (&(u32, Variant), &f64)| {
            let without = goodput.get(&(repetition, Variant::None))?;
            (variant == Variant::Midspan).then(|| (with / without).ln())
        };
        let gains: Vec<f64> = goodput.iter().filter_map(pair).collect();
        let others = gains.len().saturating_sub(1) as f64;
        let sum: f64 = gains.iter().sum();
        let is_close = |gain: &&f64| ((*gain - (sum - *gain) / others).exp() - 1.0).abs() <= CLOSE;
        Alone { pairs: gains.len(), close: gains.iter().filter(is_close).count() }
    }
}

/// What came of asking.
struct Row {
    name: String,
    live: Gain,
    alone: Alone,
    verdict: String,
    gain: f64,
}

#[test]
fn advice_holds_against_live_runs() {
    let all = std::env::var_os("MIDSPAN_TEST_ALL").is_some();
    let (mut cells, mut others): (Vec<Cell>, Vec<Cell>) =
        cells().into_iter().partition(|cell| cell.name.starts_with(DRAWN));
    let known = others.len();
    assert!(!cells.is_empty() && known > 40, "{} and {known}", cells.len());
    others.sort_by_key(|cell| Sha256::digest(&cell.name));
    cells.extend(others.into_iter().take(SAMPLE));
    if !all {
        cells.retain(|cell| cell.rate < QUICK);
        assert!(cells.len() > 2);
    }
    let mut rows: Vec<Row> = cells.iter().map(ask).collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    let lines: Vec<String> = rows.iter().map(Row::line).collect();
    if !all {
        let kept = fs::read_to_string(file).unwrap();
        for line in &lines {
            assert!(kept.lines().any(|kept| kept == line), "{line}\nis not in {TABLE}:\n{kept}");
        }
        return;
    }
    let table = format!("{}\n{}\n\n{}", Row::headings(), lines.join("\n"), account(&rows, known));
    println!("\n{table}");
    if std::env::var_os("MIDSPAN_UPDATE").is_some() {
        fs::write(&file, &table).unwrap();
    }
    assert!(fs::read_to_string(&file).unwrap() == table, "{TABLE} is of another program:\n{table}");
}

/// All cells of recorded live runs whose path the options can tell. Folders with runs of the same scenario are one.
fn cells() -> Vec<Cell> {
    let mut groups = BTreeMap::<(String, String), (Scenario, Vec<Record>)>::new();
    for folder in folders() {
        let Ok(results) = Results::read(&folder) else { continue };
        let Some(first) = results.records().first() else { continue };
        if first.backend != Backend::Live {
            continue;
        }
        let text = results.scenario_text().unwrap();
        let scenario = Scenario::parse(&text, "scenario.toml").unwrap().as_of(first.schema);
        let key = (first.scenario.clone(), first.digest.clone());
        let group = groups.entry(key).or_insert_with(|| (scenario, Vec::new()));
        group.1.extend(results.records().to_vec());
    }
    let mut cells = Vec::new();
    for (scenario, records) in groups.values() {
        let Ok(summary) = Summary::of(scenario, records) else { continue };
        for (cell, measured) in scenario.cells().iter().zip(&summary.cells) {
            let relay = measured.variant(Variant::Midspan).and_then(|variant| variant.gain);
            let (Some(live), Some((options, rate))) = (relay, options(&cell.spec)) else {
                continue;
            };
            let labels: Vec<&str> = cell.labels.values().map(String::as_str).collect();
            let name = format!("{}: {}", scenario.name, labels.join(", "));
            let alone = Alone::of(records, &cell.labels);
            cells.push(Cell { name, options, rate, live, alone });
        }
    }
    cells
}

fn folders() -> Vec<PathBuf> {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/runs");
    let mut folders: Vec<PathBuf> =
        fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.join("records.jsonl.gz").exists());
    folders.sort();
    folders
}

/// What is asked for a cell, and its rate; none where options cannot tell what its path is.
fn options(spec: &CellSpec) -> Option<(Vec<String>, Rate)> {
    let Workload::Bulk(bulk) = &spec.workload else { return None };
    let is_plain =
        spec.cells.is_none() && spec.assist.is_none() && spec.service.at == ServiceHost::Server;
    if !is_plain || bulk.flows != 1 || !bulk.controls.is_empty() {
        return None;
    }
    let (data, back) = match bulk.direction {
        Direction::Upload => (&spec.path.access.up, &spec.path.access.down),
        Direction::Download => (&spec.path.access.down, &spec.path.access.up),
    };
    let (data, back) = (Leading::of(data)?, Leading::of(back)?);
    let (up, down) = (Leading::of(&spec.path.wide.up)?, Leading::of(&spec.path.wide.down)?);
    let is_clean = |way: &Leading| way.loss.is_none() && way.late.is_none();
    if ![&back, &up, &down].into_iter().all(is_clean)
        || up.rate != down.rate
        || up.delay != down.delay
    {
        return None;
    }
    let rate = data.rate?;
    // The queue behind the radio leg is as large.
    if up.rate.is_some_and(|wide| wide.queue != rate.queue) || data.delay != back.delay {
        return None;
    }
    let near = data.delay * 2;
    let Relay { client_leg, server_leg, .. } = &spec.relay;
    // Recorded runs had the host's first windows and timeouts, which bulk transfers hardly feel.
    let usual_leg = LegConfig {
        congestion_control: client_leg.congestion_control.clone(),
        initial_window_beside: client_leg.initial_window_beside,
        initial_receive_window: client_leg.initial_receive_window,
        rto_min: client_leg.rto_min,
        ..LegConfig::default()
    };
    let is_usual = spec.relay.read_ahead.is_none()
        && spec.relay.shared.is_none()
        && *server_leg == LegConfig::default()
        && *client_leg == usual_leg;
    let hosts = &spec.hosts;
    let buffers = hosts.ue.buffers;
    let is_usual_host = |host: &Host| {
        let control = host.congestion_control.clone();
        *host == Host { congestion_control: control, buffers, ..Host::default() }
    };
    if !is_usual || ![&hosts.ue, &hosts.mec, &hosts.server].into_iter().all(is_usual_host) {
        return None;
    }
    let host_buffers = match buffers {
        Buffers::MAX => "max",
        Buffers::DEFAULT => "default",
        _ => return None,
    };
    let direction = match bulk.direction {
        Direction::Upload => "upload",
        Direction::Download => "download",
    };
    let mut options = vec![
        ("--rtt", (near + up.delay * 2).to_string()),
        ("--relay", near.to_string()),
        ("--rate", rate.rate.to_string()),
        ("--queue", rate.queue.bytes?.to_string()),
        ("--direction", direction.to_owned()),
        ("--size", bulk.time.to_string()),
        ("--server-control", hosts.server.congestion_control.clone()),
        ("--ue-control", hosts.ue.congestion_control.clone()),
        ("--relay-control", hosts.mec.congestion_control.clone()),
        ("--control", spec.relay.client_control().to_owned()),
        ("--buffer", spec.relay.buffer().to_string()),
        ("--reordering-hold", spec.relay.reordering_hold().to_string()),
        ("--host-buffers", host_buffers.to_owned()),
    ];
    options.extend(up.rate.map(|wide| ("--wide-rate", wide.rate.to_string())));
    options.extend(data.loss.map(|loss| ("--loss", loss.share.to_string())));
    if let Some(late) = data.late {
        options.extend([("--late", late.share.to_string()), ("--late-by", late.by.to_string())]);
    }
    let words = options.into_iter().flat_map(|(option, value)| [option.to_owned(), value]);
    Some((words.collect(), rate.rate))
}

/// A direction of a link that has nothing else than these, by the packet; shares of zero and delays of zero are nothing.
#[derive(Default)]
struct Leading {
    rate: Option<RateSpec>,
    loss: Option<LossSpec>,
    late: Option<LateSpec>,
    delay: Span,
}

impl Leading {
    fn of(elements: &[ElementSpec]) -> Option<Leading> {
        let mut way = Leading::default();
        for element in elements {
            match element {
                ElementSpec::Rate(rate) if rate.aqm.is_none() => way.rate = Some(*rate),
                ElementSpec::Delay(delay) => way.delay = *delay,
                ElementSpec::Loss(loss) if loss.share.as_fraction() == 0.0 => {}
                ElementSpec::Loss(loss) if loss.unit == Unit::Packet => way.loss = Some(*loss),
                ElementSpec::Late(late)
                    if late.share.as_fraction() == 0.0 || late.by == Span::ZERO => {}
                ElementSpec::Late(late) if late.unit == Unit::Packet => way.late = Some(*late),
                _ => return None,
            }
        }
        Some(way)
    }
}

fn ask(cell: &Cell) -> Row {
    let output =
        common::midspan().arg("advise").args(&cell.options).arg("--json").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {:?}: {error}", cell.name, cell.options);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let advice = &told["advice"];
    let row = Row {
        name: cell.name.clone(),
        live: cell.live,
        alone: cell.alone,
        verdict: advice["verdict"].as_str().unwrap().to_owned(),
        gain: advice["gain"]["mean"].as_f64().unwrap(),
    };
    println!("{}", row.line());
    row
}

impl Row {
    fn headings() -> String {
        format!(
            "{:76}  {:>8}  {:>19}  {:>9}  {:>8}  {:6}  {:5}",
            "cell", "live", "least to greatest", "predicted", "verdict", "choice", "close"
        )
    }

    fn line(&self) -> String {
        let Row { name, live, verdict, gain, .. } = self;
        let spread = format!("{:.2} to {:.2}", live.min, live.max);
        let choice = if self.is_right() { "right" } else { "WRONG" };
        let close = if self.is_close() { "yes" } else { "NO" };
        let line = format!(
            "{name:76}  {:>8.2}  {spread:>19}  {gain:>9.2}  {verdict:>8}  {choice:6}  {close}",
            live.mean
        );
        line.trim_end().to_owned()
    }

    /// What is not clear is no right choice, but where there is no difference.
    fn is_right(&self) -> bool {
        let log = self.live.mean.ln();
        match self.verdict.as_str() {
            "split" => log > -MARGIN,
            "unclear" => log.abs() <= MARGIN,
            _ => log < MARGIN,
        }
    }

    fn is_close(&self) -> bool {
        (self.gain / self.live.mean - 1.0).abs() <= CLOSE
    }

    /// Whether the live runs agree with each other as closely as is asked of the prediction.
    fn is_steady(&self) -> bool {
        self.live.n > 1 && self.live.max / self.live.min - 1.0 <= CLOSE
    }
}

/// How many of all.
fn account(rows: &[Row], known: usize) -> String {
    let line = |what: &str, rows: &[&Row]| {
        let share = |of: usize| 100.0 * of as f64 / rows.len().max(1) as f64;
        let right = rows.iter().filter(|row| row.is_right()).count();
        let close = rows.iter().filter(|row| row.is_close()).count();
        format!(
            "{what}: {} cells, choice right in {right} ({:.1} %), gain within 25 % in {close} ({:.1} %)\n",
            rows.len(),
            share(right),
            share(close)
        )
    };
    let (drawn, others): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.name.starts_with(DRAWN));
    let several = drawn.iter().map(|row| row.alone).filter(|alone| alone.pairs > 1);
    let (pairs, close) =
        several.fold((0, 0), |(pairs, close), of| (pairs + of.pairs, close + of.close));
    let (steady, unsteady): (Vec<&Row>, Vec<&Row>) = others.iter().partition(|row| row.is_steady());
    [
        line("paths drawn by chance", &drawn),
        format!("a live pair of theirs is as close to the mean of its path's others in {close} of {pairs}\n"),
        line(&format!("of {known} cells of other runs"), &others),
        line("of which live runs agree within 25 %", &steady),
        line("of which they do not, or there is one", &unsteady),
    ]
    .concat()
}
