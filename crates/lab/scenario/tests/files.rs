//! Every scenario file of the repository is one that parses, full and short, and costs what it
//! should.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests read files")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use midspan_scenario::record::{Variant, parse_lines};
use midspan_scenario::{Scenario, Workload};

fn files() -> Vec<PathBuf> {
    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "toml") {
                files.push(path);
            }
        }
    }
    let mut files = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios"), &mut files);
    files.sort();
    assert!(!files.is_empty());
    files
}

fn read(path: &Path) -> Scenario {
    let text = fs::read_to_string(path).unwrap();
    Scenario::parse(&text, &path.display().to_string()).unwrap_or_else(|error| panic!("{error}"))
}

/// Seconds of load, without what setting up and tearing down adds; bulk workloads only.
fn seconds(scenario: &Scenario) -> f64 {
    let cells = scenario.cells().iter().map(|cell| match &cell.spec.workload {
        Workload::Bulk(bulk) => bulk.time.as_secs_f64() * cell.variants.len() as f64,
        Workload::Transfer(_) | Workload::Page(_) | Workload::Video(_) => 0.0,
    });
    cells.sum::<f64>() * f64::from(scenario.repetitions)
}

fn runs(scenario: &Scenario) -> usize {
    let variants: usize = scenario.cells().iter().map(|cell| cell.variants.len()).sum();
    variants * scenario.repetitions as usize
}

#[test]
fn every_file_parses_and_its_short_version_is_short() {
    let mut names = std::collections::BTreeSet::new();
    for path in files() {
        let scenario = read(&path);
        assert!(names.insert(scenario.name.clone()), "{} is taken", scenario.name);
        let short = scenario.short().unwrap_or_else(|| panic!("{}: no [short]", path.display()));
        let (full_s, short_s) = (seconds(&scenario), seconds(short));
        println!(
            "{:32} {:4} runs {full_s:6.0} s, short {:3} runs {short_s:3.0} s",
            scenario.name,
            runs(&scenario),
            runs(short)
        );
        assert!(short_s <= 20.0, "{}: short takes {short_s} s", path.display());
        assert!(runs(short) <= 8, "{}: short makes {} runs", path.display(), runs(short));
    }
}

#[test]
fn the_example_in_the_documentation_parses() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/scenario.md");
    let page = fs::read_to_string(path).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let scenario = Scenario::parse(example, "example").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(scenario.cells().len(), 6);
    assert_eq!(scenario.short().unwrap().cells().len(), 2);
}

#[test]
fn the_demo_fits_into_two_minutes() {
    let demo = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios/demo.toml"));
    let with_overhead = seconds(&demo) + runs(&demo) as f64;
    assert!(with_overhead < 110.0, "{with_overhead} s");
}

#[test]
fn all_of_a_papers_figures_have_an_unproxied_run_to_compare_with() {
    for path in files() {
        let scenario = read(&path);
        // An experiment on the runs of another, which has them.
        let is_compared = scenario.name == "mmwave-divided";
        if !is_compared && scenario.figure.as_deref().is_some_and(|figure| figure != "mec 8") {
            // A cell that lacks it is left out for a reason that the file gives.
            assert!(scenario.variants.contains(&Variant::None), "{}", path.display());
        }
    }
}

/// The mec paper's path: 50 ms in all, which figure 2 varies, 1 or 5 ms of them to the relay.
#[test]
fn round_trip_times_are_the_papers() {
    for path in files().iter().filter(|path| path.parent().unwrap().ends_with("mec")) {
        let scenario = read(path);
        for cell in scenario.cells() {
            let access = cell.spec.path.access.base_rtt().as_millis_f64();
            let wide = cell.spec.path.wide.base_rtt().as_millis_f64();
            // A link layer with slots takes time of its own.
            if path.file_name().unwrap().to_str().unwrap().contains("rlc") {
                let is_near = scenario.name == "mec-7-rlc-near" && wide == 0.0;
                assert!(wide == 49.0 || wide == 45.0 || is_near, "{}: {wide}", path.display());
                continue;
            }
            if scenario.figure.as_deref() != Some("mec 2") {
                assert_eq!(access + wide, 50.0, "{}", path.display());
            }
            assert!(access == 1.0 || access == 5.0, "{}", path.display());
        }
    }
}

/// Folders of `bench/runs` with records of a scenario: its name, its text, and its first record.
fn recorded() -> Vec<(PathBuf, String, midspan_scenario::record::Record)> {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bench/runs");
    let folders = fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().path());
    let found: Vec<_> = folders
        .filter_map(|folder| {
            let text = fs::read_to_string(folder.join("scenario.toml")).ok()?;
            let records = fs::File::open(folder.join("records.jsonl.gz")).ok()?;
            let mut records = BufReader::new(GzDecoder::new(records)).lines();
            let record = parse_lines(&records.next()?.unwrap(), "records.jsonl").ok()?.remove(0);
            Some((folder, text, record))
        })
        .collect();
    assert!(!found.is_empty());
    found
}

#[test]
fn recorded_runs_are_still_of_the_scenario_beside_them() {
    for (folder, text, record) in recorded() {
        let scenario = Scenario::parse(&text, "scenario.toml").unwrap().as_of(record.schema);
        let versions = [Some(&scenario), scenario.short()];
        let found = versions.into_iter().flatten().any(|version| version.has(&record));
        assert!(found, "{}", folder.display());
    }
}

/// The relay's own default may change; what was recorded, and is to be repeated, does not.
#[test]
fn what_was_recorded_names_the_control_of_the_relays_client_leg() {
    let names: std::collections::BTreeSet<String> =
        recorded().into_iter().map(|(.., record)| record.scenario).collect();
    for path in files() {
        let scenario = read(&path);
        if names.contains(&scenario.name) && scenario.variants.contains(&Variant::Midspan) {
            for cell in scenario.cells() {
                let named = &cell.spec.relay.client_leg.congestion_control;
                assert!(named.is_some(), "{}", path.display());
            }
        }
    }
}

#[test]
fn a_client_leg_that_names_nothing_is_the_relays_own() {
    let text = |relay: &str| {
        format!(
            "name = 't'\ntitle = 'T'\nvariants = ['midspan']\n[path.access]\n[path.wide]\n{relay}\n\
             [workload]\nkind = 'bulk'\ndirection = 'download'\ntime = '1 s'\n"
        )
    };
    let parse = |relay: &str| Scenario::parse(&text(relay), "t.toml").unwrap();
    let named = |name: &str| format!("[relay]\nclient_leg = {{ congestion_control = '{name}' }}");
    let (open, cubic) = (parse(""), parse(&named("cubic")));
    assert_eq!(open.cells()[0].spec.relay.client_control(), "ms_radio");
    assert_eq!(open.digest(), parse(&named("ms_radio")).digest());
    assert_ne!(open.digest(), cubic.digest());
}

/// Records of schema 1 are CUBIC's where CUBIC was the MEC's, and never the relay's own control's.
#[test]
fn records_of_before_are_of_the_control_that_they_were_made_with() {
    let (_, _, record) =
        recorded().into_iter().find(|(.., record)| record.scenario == "mec-3a").unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios/mec/3a.toml");
    let text = fs::read_to_string(path).unwrap();
    let has = |text: &str| Scenario::parse(text, "3a.toml").unwrap().has(&record);
    let named = "congestion_control = \"cubic\", initial";
    assert!(has(&text) && text.contains(named));
    assert!(!has(&text.replace(named, "initial")));
    assert!(!has(&text.replace(named, &named.replace("cubic", "reno"))));
}
