//! The demo ends in a number, whatever the machine.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use midspan_lab::results::Results;
use midspan_scenario::record::{Backend, Record, Variant};

/// Runs the short demo by `command`, which ends in the program.
fn demo(mut command: Command, out: &Path) -> (String, Vec<Record>) {
    let Output { status, stdout, stderr } =
        command.args(["demo", "--short", "--out"]).arg(out).output().unwrap();
    let (said, progress) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{said}{progress}");
    assert!(said.contains("Report: ") && said.contains("Next: "), "{said}");
    let folders = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    let records = folders.flat_map(|folder| Results::read(&folder).unwrap().records().to_vec());
    (said, records.collect())
}

/// Directions and variants that have a number.
fn measured(records: &[Record], backend: Backend) -> BTreeSet<(&str, Variant)> {
    let of_backend = records.iter().filter(|record| record.backend == backend);
    of_backend
        .filter(|record| {
            record
                .measurement()
                .is_some_and(|run| run.bulk().is_some_and(|bulk| bulk.goodput_bps > 0.0))
        })
        .map(|record| (record.cell["direction"].as_str(), record.variant))
        .collect()
}

fn all() -> BTreeSet<(&'static str, Variant)> {
    let variants = [Variant::None, Variant::Midspan];
    ["download", "upload"]
        .into_iter()
        .flat_map(|way| variants.map(|variant| (way, variant)))
        .collect()
}

#[test]
fn the_demo_ends_in_a_number() {
    if !common::can_run() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let (said, records) = demo(common::midspan(), out.path());
    // Others may use the machine: then a simulation gives what live runs did not, and both are named.
    let (live, simulated) = (measured(&records, Backend::Live), measured(&records, Backend::Sim));
    assert!(said.contains("times faster than no proxy"), "{said}");
    assert_eq!(said.contains("\nSimulated "), !simulated.is_empty(), "{said}");
    let ran_live = records.iter().any(|record| record.backend == Backend::Live);
    assert_eq!(said.contains("\nLive: "), ran_live, "{said}");
    assert!(live == all() || simulated == all(), "{said}");
}

#[test]
fn without_privileges_the_demo_is_simulated_and_says_why() {
    let is_root = midspan_sys::userns::is_root();
    if !is_root || !common::has("setpriv") {
        common::skip("needs root and setpriv, to take privileges away");
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=-all", "--bounding-set=-all"]).arg(common::program());
    let (said, records) = demo(command, out.path());
    assert!(said.contains("\nSimulated "), "{said}");
    assert!(said.contains("not live: cannot create a network namespace"), "{said}");
    assert!(!said.contains("\nLive: "), "{said}");
    assert_eq!(measured(&records, Backend::Sim), all());
    assert!(said.contains("times faster than no proxy"), "{said}");
}
