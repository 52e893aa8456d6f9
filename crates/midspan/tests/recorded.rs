//! Recorded runs are of this program: live ones give the summary beside them, simulated ones come out again byte
//! for byte. The quick ones always, all of them with MIDSPAN_TEST_ALL.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use midspan_lab::recorded::{Digest, Kept, Recorded};
use midspan_lab::results::Results;

/// Seconds of processor time that a simulated run may take to be checked always.
const QUICK_S: f64 = 4.9;
/// Seconds of processor time that all these may take together.
const QUICK_TOGETHER_S: f64 = 60.0;
/// Recordings of cellular links, which are not part of the project.
const TRACES: &str = "../shared/traces";

#[test]
fn recorded_runs_are_of_this_program() {
    let all = std::env::var_os("MIDSPAN_TEST_ALL").is_some();
    let mut checked = Vec::new();
    let mut quick_s = 0.0;
    for name in folders() {
        let recorded = Recorded::at(&root().join("bench/runs").join(&name));
        match recorded.kept().unwrap() {
            Kept::Benchmark => continue,
            Kept::Records(_) => {}
            Kept::Digest(digest) => {
                let quick = digest.processor_s <= QUICK_S;
                let wants_traces = recorded.command().unwrap().contains("RECORDINGS");
                if !quick && !all {
                    continue;
                }
                if wants_traces && !root().join(TRACES).exists() {
                    eprintln!("skipped: {name}: no {TRACES}");
                    continue;
                }
                quick_s += if quick { digest.processor_s } else { 0.0 };
            }
        }
        checked.push(Path::new("bench/runs").join(name));
    }
    assert!(checked.len() > 40, "{checked:?}");
    assert!(quick_s <= QUICK_TOGETHER_S, "the quick ones take {quick_s} s: make QUICK_S less");
    let output = lab(["verify", "--traces", TRACES].map(Path::new), &checked);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn the_list_of_recorded_runs_is_whole() {
    let list = fs::read_to_string(root().join("bench/runs/README.md")).unwrap();
    let listed: BTreeSet<String> = list
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .collect();
    assert_eq!(listed, folders());
}

#[test]
fn docs_quote_recorded_runs_that_there_are() {
    let (folders, mut quoted) = (folders(), 0);
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    for page in docs.chain([root().join("README.md")]).filter(|page| page.is_file()) {
        let text = fs::read_to_string(&page).unwrap();
        for rest in text.split("bench/runs/").skip(1) {
            let is_name =
                |letter: char| letter.is_ascii_alphanumeric() || "-_.*{},".contains(letter);
            let name = rest.split(|letter| !is_name(letter)).next().unwrap();
            let known = name.is_empty()
                || name == "README.md"
                || folders.contains(name.trim_end_matches('.'));
            assert!(known, "{}: no recorded run `{name}`", page.display());
            quoted += 1;
        }
    }
    assert!(quoted > 30, "{quoted}");
}

#[test]
fn a_stale_record_is_told_with_what_renews_it() {
    let work = tempfile::tempdir().unwrap();
    let from = root().join("bench/runs/relay-first-windows-sim");
    let record = work.path().join("record");
    copy(&from, &record);
    let path = record.join("digest.json");
    let fresh = fs::read_to_string(&path).unwrap();
    let digest: Digest = serde_json::from_str(&fresh).unwrap();
    let flipped = if digest.sha256.starts_with('0') { "1" } else { "0" };
    fs::write(&path, fresh.replace(&digest.sha256, &format!("{flipped}{}", &digest.sha256[1..])))
        .unwrap();
    let records = [record.clone()];

    let output = lab(["verify"].map(Path::new), &records);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let renews = format!("`midspan lab verify --renew {}` renews it", record.display());
    assert!(said.contains(": stale: ") && said.contains(&renews), "{said}");

    let output = lab(["verify", "--renew"].map(Path::new), &records);
    assert!(text(&output).contains(": renewed: "), "{}", text(&output));
    let renewed: Digest = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((renewed.records, renewed.sha256), (digest.records, digest.sha256));

    // A summary that somebody mended by hand is stale too.
    let summary = fs::read_to_string(record.join("summary.txt")).unwrap();
    fs::write(record.join("summary.txt"), summary.replacen('1', "2", 1)).unwrap();
    let output = lab(["verify"].map(Path::new), &records);
    assert!(text(&output).contains("give another summary.txt"), "{}", text(&output));

    // There are no records to make a report from.
    let output = lab(["report"].map(Path::new), &records);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("makes them again"), "{}", text(&output));
}

#[test]
fn a_live_record_gives_its_report_and_is_not_added_to() {
    let work = tempfile::tempdir().unwrap();
    let record = work.path().join("record");
    copy(&root().join("bench/runs/2026-11-22-tcp-me-9"), &record);
    let before = fs::read_to_string(record.join("summary.txt")).unwrap();
    let output = lab(["report"].map(Path::new), std::slice::from_ref(&record));
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(fs::read_to_string(record.join("summary.txt")).unwrap(), before);
    assert!(record.join("report.html").exists());
    let results = Results::read(&record).unwrap();
    let kept = results.records().to_vec();
    let refused = results.locked().unwrap_err().to_string();
    assert!(refused.contains("nothing is added"), "{refused}");

    // What is kept of them again is the same.
    let again = work.path().join("again");
    let output = lab(["record"].map(Path::new), &[record, again.clone()]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(Results::read(&again).unwrap().records(), kept);
}

#[test]
fn simulated_results_are_kept_as_what_makes_them_again() {
    let work = tempfile::tempdir().unwrap();
    let out = work.path().join("out");
    let scenario = "scenarios/relay/first-windows.toml";
    let output = lab(
        ["run", scenario, "--backend", "sim", "--short", "--out"].map(Path::new),
        std::slice::from_ref(&out),
    );
    assert!(output.status.success(), "{}", text(&output));
    let results = fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
    let record = work.path().join("record");
    let output = lab(["record"].map(Path::new), &[results, record.clone()]);
    assert!(output.status.success(), "{}", text(&output));
    let command = fs::read_to_string(record.join("command.txt")).unwrap();
    assert_eq!(command, format!("midspan lab run {scenario} --backend sim --short\n"));
    assert!(!record.join("records.jsonl.gz").exists());
    let output = lab(["verify"].map(Path::new), &[record]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("byte for byte"), "{}", text(&output));
}

/// `midspan lab`, in the repository's own folder.
fn lab<const N: usize>(arguments: [&Path; N], folders: &[PathBuf]) -> Output {
    let mut command = common::midspan();
    command.current_dir(root()).arg("lab").args(arguments).args(folders);
    command.output().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn folders() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("bench/runs")).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.path().is_dir());
    folders.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}
