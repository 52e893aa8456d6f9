//! Every cell of the reference curves of a real Linux 6.1, simulated, beside it.
//!
//! The curves are kept outside the repository; without them this is skipped. Only the long tests run
//! all cells. The shares that agree
//! are the headline of the simulator: a change that lowers them fails, one that raises them raises
//! the marks below.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, path::Path, thread};

use midspan_path::Traces;
use midspan_scenario::record::{Backend, Outcome, Record, SCHEMA, Variant};
use midspan_scenario::reference::{self, Pair, Row};
use midspan_scenario::summary::Summary;
use midspan_scenario::{Cell, Scenario};

/// Of the cells with 20 retransmissions or more in the reference, in per cent: those within 10 %,
/// those within 25 %.
const MARKS: [usize; 2] = [65, 80];

/// Of the scenarios' eight; they take a minute or two of two cores.
const REPETITIONS: u32 = 2;

#[test]
fn the_reference_is_met() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let curves = root.join("../shared/reference/linux-6.1.csv");
    let Ok(text) = fs::read_to_string(&curves) else {
        eprintln!("skipped: no {}", curves.display());
        return;
    };
    let rows = reference::parse_csv(&text, "linux-6.1.csv").unwrap();
    let all = std::env::var_os("MIDSPAN_TEST_ALL").is_some();
    let only = std::env::var("MIDSPAN_TEST_CONTROL").ok();
    let mut pairs = Vec::new();
    let names = ["every-relay-at-5ms", "every-clean", "every-loss", "every-late"];
    for name in &names[..if all { names.len() } else { 1 }] {
        let file = root.join(format!("scenarios/reference/{name}.toml"));
        let text = fs::read_to_string(file).unwrap();
        let scenario = Scenario::parse(&text, name).unwrap();
        let repetitions = if all { REPETITIONS.min(scenario.repetitions) } else { 1 };
        pairs.extend(compare(&rows, &scenario, repetitions, only.as_deref()));
    }
    if all && only.is_none() {
        assert_eq!(pairs.len(), rows.len(), "a row of the reference has no cell");
    }
    let errors: Vec<(f64, &Pair)> =
        pairs.iter().filter_map(|pair| Some(((pair.ratio? - 1.0).abs(), pair))).collect();
    for (error, pair) in &errors {
        let theirs = &pair.theirs;
        println!(
            "{:5.1} % {} {:>9} {:<60} {:>6} retransmits: {:.0} kbit/s, ours {:.0}",
            error * 100.0,
            if theirs.retransmits < 20 { "aside" } else { "     " },
            theirs.conditions.congestion_control,
            format!("{:?} {} {:?}", pair.variant, theirs.conditions.rtt, pair.labels),
            theirs.retransmits,
            theirs.goodput.as_bps() as f64 / 1e3,
            pair.ours.map_or(0.0, |stats| stats.mean) / 1e3,
        );
    }
    let counted: Vec<f64> = errors
        .iter()
        .filter(|(_, pair)| pair.theirs.retransmits >= 20)
        .map(|(error, _)| *error)
        .collect();
    let shares = [0.1, 0.25].map(|most| {
        100 * counted.iter().filter(|error| **error <= most).count() / counted.len().max(1)
    });
    let unknown = pairs.iter().filter(|pair| pair.ratio.is_none()).count();
    println!("{unknown} of {} cells are of controls that there are no models of", pairs.len());
    println!(
        "of {} cells, {} % within 10 %, {} % within 25 %",
        counted.len(),
        shares[0],
        shares[1]
    );
    assert!(
        !all || shares.iter().zip(MARKS).all(|(share, mark)| *share >= mark),
        "{shares:?} per cent of cells agree; it was {MARKS:?}"
    );
}

fn compare(rows: &[Row], scenario: &Scenario, repetitions: u32, only: Option<&str>) -> Vec<Pair> {
    let mut runs: Vec<(&Cell, Variant, u32)> = Vec::new();
    for cell in scenario.cells() {
        let control = cell.spec.hosts.ue.congestion_control.as_str();
        if only.is_none_or(|only| control == only) && is_known(control) {
            for &variant in &cell.variants {
                runs.extend((0..repetitions).map(|repetition| (cell, variant, repetition)));
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
