//! Every cell of the reference curves of a real Linux 6.1, simulated, beside it.
//!
//! The curves are kept outside the repository; without them this is skipped. What the simulator gives is
//! compared with `reference.txt`, line by line: it is the simulator's headline, so whatever changes
//! it must say so. `MIDSPAN_UPDATE=1` writes the table anew. Only the long tests
//! (`MIDSPAN_TEST_ALL=1`) run all cells; `MIDSPAN_TEST_CONTROL` picks one control and only prints.
//!
//! A quarter of the cells is kept back, by [`is_kept_back`]: how well the model does there says whether
//! it was fitted to the others. They are printed with everything else only when the table is written.

#![allow(clippy::disallowed_methods, reason = "tests read files")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fmt::Write, fs, path::Path, thread};

use midspan_path::Traces;
use midspan_scenario::record::{Backend, Outcome, Record, SCHEMA, Variant};
use midspan_scenario::reference::{self, Conditions, Pair, Route, Row};
use midspan_scenario::summary::Summary;
use midspan_scenario::{Cell, Scenario};
use midspan_units::Share;

/// Seeds of each cell; the mean over them is compared.
const SEEDS: u32 = 8;
/// Rows of the reference with fewer retransmissions say little.
const FEW: u64 = 20;
/// The first one runs always.
const SCENARIOS: [&str; 4] = ["every-relay-at-5ms", "every-clean", "every-loss", "every-late"];

#[test]
fn the_reference_is_met() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let curves = here.join("../../../../shared/reference/linux-6.1.csv");
    let Ok(text) = fs::read_to_string(&curves) else {
        eprintln!("skipped: no {}", curves.display());
        return;
    };
    let rows = reference::parse_csv(&text, "linux-6.1.csv").unwrap();
    let all = env::var_os("MIDSPAN_TEST_ALL").is_some();
    let update = env::var_os("MIDSPAN_UPDATE").is_some();
    let only = env::var("MIDSPAN_TEST_CONTROL").ok();
    let mut pairs = Vec::new();
    for name in &SCENARIOS[..if all || update { SCENARIOS.len() } else { 1 }] {
        let file = here.join(format!("../../../scenarios/reference/{name}.toml"));
        let scenario = Scenario::parse(&fs::read_to_string(file).unwrap(), name).unwrap();
        pairs.extend(compare(&rows, &scenario, only.as_deref()));
    }
    if let Some(only) = only {
        pairs.retain(|pair| !is_kept_back(&pair.theirs.conditions));
        println!("{only}, of what is not kept back:\n{}", table(&pairs));
        return;
    }
    let snapshot = here.join("tests/reference.txt");
    let table = table(&pairs);
    if update {
        assert_eq!(pairs.len(), rows.len(), "a row of the reference has no cell");
        fs::write(snapshot, table).unwrap();
        return;
    }
    let expected = fs::read_to_string(snapshot).unwrap();
    // The shares at the end are of all cells.
    let lines = if all { usize::MAX } else { 1 + pairs.len() };
    for line in table.lines().take(lines) {
        assert!(
            expected.lines().any(|known| known == line),
            "not in tests/reference.txt: `{line}`; MIDSPAN_UPDATE=1 writes it anew"
        );
    }
    assert!(!pairs.is_empty() && (!all || table.lines().count() == expected.lines().count()));
}

/// Whether a cell is not looked at while the model is worked on: a hash of its conditions decides (FNV-1a).
fn is_kept_back(conditions: &Conditions) -> bool {
    let hash = key(conditions).bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash >> 32).is_multiple_of(4)
}

fn key(conditions: &Conditions) -> String {
    let share = |share: Share| format!("{:.2}", share.as_fraction() * 100.0);
    format!(
        "{:<8} {:<6} {:>3} ms {:>1} ms {:>4} % lost {:>4} % late by {:>2} ms",
        conditions.congestion_control,
        if conditions.route == Route::Direct { "direct" } else { "proxy" },
        conditions.rtt.as_micros() / 1000,
        conditions.access_rtt.as_micros() / 1000,
        share(conditions.loss),
        share(conditions.late),
        conditions.late_by.as_micros() / 1000,
    )
}

/// Every cell: goodput of the reference and ours (mean, least, greatest over seeds), in kbit/s. Then what
/// share of cells agrees.
fn table(pairs: &[Pair]) -> String {
    let mut pairs: Vec<&Pair> = pairs.iter().filter(|pair| pair.ratio.is_some()).collect();
    pairs.sort_by_key(|pair| key(&pair.theirs.conditions));
    let mut text = format!(
        "{:<58} {:>9} {:>5} {:>7} {:>7} {:>7} {:>6}\n",
        "cell", "reference", "lost", "mean", "least", "most", "off"
    );
    for pair in &pairs {
        let (theirs, ours) = (&pair.theirs, pair.ours.unwrap());
        let _ = writeln!(
            text,
            "{:<58} {:>9.0} {:>5} {:>7.0} {:>7.0} {:>7.0} {:>+4.0} %{}{}",
            key(&theirs.conditions),
            theirs.goodput.as_bps() as f64 / 1e3,
            theirs.retransmits,
            ours.mean / 1e3,
            ours.min / 1e3,
            ours.max / 1e3,
            (pair.ratio.unwrap() - 1.0) * 100.0,
            if theirs.retransmits < FEW { ", few losses" } else { "" },
            if is_kept_back(&theirs.conditions) { ", kept back" } else { "" },
        );
    }
    let counted = || pairs.iter().filter(|pair| pair.theirs.retransmits >= FEW).copied();
    let kept_back = |pair: &&Pair| is_kept_back(&pair.theirs.conditions);
    let _ = writeln!(text, "\nOf the cells with {FEW} retransmissions or more in the reference:");
    let _ = writeln!(text, "{}", shares("all", counted()));
    let _ = writeln!(text, "{}", shares("kept back", counted().filter(kept_back)));
    let _ =
        writeln!(text, "{}", shares("not kept back", counted().filter(|pair| !kept_back(pair))));
    for control in ["bbr", "cubic", "dctcp", "illinois", "lp", "reno", "westwood"] {
        let of_control = |pair: &&Pair| pair.theirs.conditions.congestion_control == control;
        let _ = writeln!(text, "{}", shares(control, counted().filter(of_control)));
    }
    text
}

fn shares<'a>(name: &str, pairs: impl Iterator<Item = &'a Pair>) -> String {
    let errors: Vec<f64> = pairs.map(|pair| (pair.ratio.unwrap() - 1.0).abs()).collect();
    let within = |most: f64| errors.iter().filter(|error| **error <= most).count();
    let percent = |most: f64| 100 * within(most) / errors.len().max(1);
    format!(
        "{name:<13} {:>3} cells, {:>3} % within 10 %, {:>3} % within 25 %",
        errors.len(),
        percent(0.1),
        percent(0.25)
    )
}

fn compare(rows: &[Row], scenario: &Scenario, only: Option<&str>) -> Vec<Pair> {
    let mut runs: Vec<(&Cell, Variant, u32)> = Vec::new();
    for cell in scenario.cells() {
        let control = cell.spec.hosts.ue.congestion_control.as_str();
        if only.is_none_or(|only| control == only) && is_known(control) {
            for &variant in &cell.variants {
                runs.extend((0..SEEDS).map(|repetition| (cell, variant, repetition)));
            }
        }
    }
    let (next, records) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let record = simulate(scenario, run);
                    records.lock().unwrap().push(record);
                }
            });
        }
    });
    let summary = Summary::of(scenario, &records.into_inner().unwrap()).unwrap();
    let mut pairs = reference::compare(rows, scenario, &summary).pairs;
    pairs.retain(|pair| only.is_none_or(|only| pair.theirs.conditions.congestion_control == only));
    pairs
}

fn is_known(control: &str) -> bool {
    midspan_cc::names().any(|name| name == control)
}

fn simulate(scenario: &Scenario, (cell, variant, repetition): (&Cell, Variant, u32)) -> Record {
    let seed = scenario.run_seed(cell, repetition);
    let (measurement, _) = midspan_sim::run(&cell.spec, variant, &Traces::new(), seed)
        .unwrap_or_else(|error| {
            panic!("{:?}, {variant}: {error}", cell.labels);
        });
    Record {
        schema: SCHEMA,
        scenario: scenario.name.clone(),
        digest: scenario.digest(),
        backend: Backend::Sim,
        cell: cell.labels.clone(),
        variant,
        repetition,
        seed,
        started_unix_ms: 0,
        outcome: Outcome::Measured(measurement),
    }
}
