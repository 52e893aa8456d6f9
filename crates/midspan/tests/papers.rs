//! The page of the papers' figures is of the recorded runs, and has all of them.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Every figure and table of the five papers.
const ALL: [(&str, &[&str], &[&str]); 5] = [
    ("mec", &["1", "2", "3a", "3b", "4", "5a", "5b", "5c", "6", "7", "8", "9"], &[]),
    ("mmwave", &["1", "2", "3a", "3b", "4a", "4b"], &["i"]),
    ("natcp", &["1", "2", "3", "4", "5"], &["1", "2"]),
    ("lte", &["1", "2", "3", "4", "5", "6", "7", "8"], &[]),
    ("tcp-me", &["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"], &["i"]),
];
/// All drawings and the page together, bytes.
const MOST: u64 = 1_000_000;

#[test]
fn the_page_is_of_the_recorded_runs() {
    let output = papers(&["--check"], &root());
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn every_figure_and_table_has_a_section() {
    let page = fs::read_to_string(root().join("docs/papers.md")).unwrap();
    let heading = |line: &str| Some(line.strip_prefix("### ")?.split_once(':')?.0.to_owned());
    let shown: Vec<String> = page.lines().filter_map(heading).collect();
    let mut wanted = BTreeSet::new();
    for (paper, figures, tables) in ALL {
        wanted.extend(figures.iter().map(|number| format!("{paper} figure {number}")));
        wanted.extend(tables.iter().map(|number| format!("{paper} table {number}")));
    }
    assert_eq!(shown.len(), wanted.len());
    assert_eq!(shown.into_iter().collect::<BTreeSet<_>>(), wanted);
}

#[test]
fn the_drawings_stay_small() {
    let drawings = fs::read_dir(root().join("docs/papers")).unwrap().map(|entry| entry.unwrap());
    let all: u64 = drawings.map(|entry| entry.metadata().unwrap().len()).sum();
    assert!((100_000..MOST).contains(&all), "{all}");
}

#[test]
fn a_page_that_is_stale_is_told_and_made_anew() {
    let work = tempfile::tempdir().unwrap();
    copy(&root().join("bench/papers"), &work.path().join("bench/papers"));
    copy(&root().join("bench/runs"), &work.path().join("bench/runs"));
    copy(&root().join("scenarios"), &work.path().join("scenarios"));
    fs::create_dir(work.path().join("docs")).unwrap();
    let output = papers(&[], work.path());
    assert!(output.status.success(), "{}", text(&output));
    assert!(papers(&["--check"], work.path()).status.success());

    // A record that gives another number, a drawing that nobody shows, and a run that is gone.
    let summary = work.path().join("bench/runs/lte-5-sim/summary.txt");
    let changed = fs::read_to_string(&summary).unwrap().replace("70.6  ±", "71.6  ±");
    fs::write(&summary, changed).unwrap();
    fs::write(work.path().join("docs/papers/old.svg"), "").unwrap();
    let output = papers(&["--check"], work.path());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    for stale in ["lte-figure-5-1.svg: stale", "old.svg: stale"] {
        assert!(text(&output).contains(stale), "{}", text(&output));
    }
    assert!(papers(&[], work.path()).status.success());
    assert!(papers(&["--check"], work.path()).status.success());
    assert!(!work.path().join("docs/papers/old.svg").exists());

    fs::remove_dir_all(work.path().join("bench/runs/lte-5-sim")).unwrap();
    let output = papers(&["--check"], work.path());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("lte Figure 5: no recorded run `lte-5-sim`"), "{said}");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
}

#[test]
fn the_html_page_needs_nothing_but_itself() {
    let work = tempfile::tempdir().unwrap();
    let page = work.path().join("papers.html");
    let output = papers(&["--html", page.to_str().unwrap()], &root());
    assert!(output.status.success(), "{}", text(&output));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.matches("<svg").count() > 30);
    for outside in ["src=", "<link", "<script", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

fn papers(arguments: &[&str], root: &Path) -> Output {
    common::midspan().args(["lab", "papers"]).args(arguments).arg(root).output().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let place = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &place);
        } else {
            fs::copy(entry.path(), place).unwrap();
        }
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}
