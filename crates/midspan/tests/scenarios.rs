//! The short versions of the repository's scenarios: the first of each folder and the one in which splitting must
//! help run live, and with MIDSPAN_TEST_ALL all that can; the others are simulated.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use midspan_lab::results::Results;
use midspan_scenario::record::{Outcome, Record, Variant};

/// Has cells with a loss of 0.5 % on the radio.
const LOSSY: &str = "mec/3a.toml";

#[test]
fn short_versions_run_and_splitting_helps_where_the_radio_loses() {
    if !common::can_run() {
        return;
    }
    let (mut lossy_cells, mut lossy_runs) = (0, 0);
    let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios"));
    let all_live = std::env::var_os("MIDSPAN_TEST_ALL").is_some();
    let mut folder_before = None;
    for file in files {
        let first_of_folder = folder_before.as_deref() != file.parent();
        folder_before = file.parent().map(Path::to_owned);
        let live = all_live || first_of_folder || file.ends_with(LOSSY);
        let out = tempfile::tempdir().unwrap();
        let run = |backend| {
            let mut command = common::midspan();
            command.args(["lab", "run", "--short", "--backend", backend, "--out"]);
            let output = command.arg(out.path().join(backend)).arg(&file).output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            (backend, String::from_utf8_lossy(&said).into_owned())
        };
        let (mut backend, mut said) = run(if live { "live" } else { "sim" });
        if said.contains("only simulated: `--backend sim`") {
            (backend, said) = run("sim");
        } else if said.contains("is not simulated; run it live") {
            (backend, said) = run("live");
        }
        let sweeps = out.path().join(backend);
        let sweep = fs::read_dir(sweeps).expect(&said).next().expect(&said).unwrap().path();
        let results = Results::read(&sweep).unwrap();
        assert!(!results.records().is_empty(), "{said}");
        for record in results.records() {
            // Others may use the machine: a run may be untrusted, but it may not fail.
            let failed = matches!(record.outcome, Outcome::Failed { .. });
            assert!(!failed, "{}: {record:?}", file.display());
            check_held(record);
        }
        lossy_cells += check_gains(results.records());
        lossy_runs += results.records().iter().filter(|record| is_lossy(record)).count();
    }
    assert!(lossy_runs > 0, "no scenario has a lossy cell any more");
    eprintln!("{lossy_cells} lossy cells had a trusted run with and without the relay");
}

/// How long a proxy held the data is known where there was one, and only there.
fn check_held(record: &Record) {
    let Some(run) = record.measurement() else { return };
    let splits = record.variant != Variant::None
        && run.legs.iter().any(|leg| leg.host == "mec" && leg.leg == "server");
    assert!(run.bulk().is_none_or(|bulk| bulk.held.is_some() == splits), "{record:?}");
}

/// Holds every cell with losses in it, and a trusted run of both variants, to a gain of five. How
/// many there were.
fn check_gains(records: &[Record]) -> usize {
    let mut goodputs: BTreeMap<_, BTreeMap<Variant, f64>> = BTreeMap::new();
    for record in records {
        if let Outcome::Measured(measurement) = &record.outcome
            && is_lossy(record)
        {
            let cell = goodputs.entry((&record.scenario, &record.cell)).or_default();
            cell.insert(record.variant, measurement.bulk().unwrap().goodput_bps);
        }
    }
    let mut cells = 0;
    for (cell, goodputs) in &goodputs {
        if let (Some(none), Some(midspan)) =
            (goodputs.get(&Variant::None), goodputs.get(&Variant::Midspan))
        {
            assert!(midspan > &(5.0 * none), "{cell:?}: {midspan} with, {none} without");
            cells += 1;
        }
    }
    cells
}

fn is_lossy(record: &Record) -> bool {
    let is_bulk = record.measurement().is_none_or(|measured| measured.bulk().is_some());
    is_bulk && record.cell.get("loss").is_some_and(|loss| loss == "0.5 %")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}
