//! `midspan lab run --ray`: sweeps on a Ray cluster, by the Python package.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(folder: &Path, out: &Path, options: &[&str]) -> Output {
    ran(folder, out, options, None)
}

/// With these programs alone, if some are given.
fn ran(folder: &Path, out: &Path, options: &[&str], programs: Option<&Path>) -> Output {
    let mut command = common::lab_run(folder, common::TWO_POINTS, out);
    command.args(options);
    if let Some(programs) = programs {
        command.env("PATH", programs);
    }
    command.output().unwrap()
}

fn records(out: &Path) -> String {
    let folders: Vec<PathBuf> =
        fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(folders.len(), 1);
    assert!(folders[0].join("report.html").exists());
    fs::read_to_string(folders[0].join("records.jsonl")).unwrap()
}

#[test]
fn records_are_those_of_the_local_run() {
    let has = Command::new("python3").args(["-c", "import midspan.ray"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        common::skip("no Python package `midspan` with Ray");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let outs = ["local", "spread"].map(|name| folder.path().join(name));
    let only = ["--backend", "sim", "--only", "loss=1 %"];
    let local = run(folder.path(), &outs[0], &only);
    assert!(local.status.success(), "{local:?}");
    let spread = run(folder.path(), &outs[1], &[&only[..], &["--ray", "local"]].concat());
    assert!(spread.status.success(), "{spread:?}");
    let [local_records, spread_records] = outs.map(|out| records(&out));
    assert_eq!(local_records.lines().count(), 4);
    assert_eq!(local_records, spread_records);
    let table = |output: &Output| {
        let said = String::from_utf8(output.stdout.clone()).unwrap();
        said.split("Report:").next().unwrap().to_owned()
    };
    assert_eq!(table(&local), table(&spread));
}

#[test]
fn what_is_missing_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let options = ["--backend", "sim", "--ray", "local"];
    let without = |programs: &Path| {
        let output = ran(folder.path(), &out, &options, Some(programs));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains("pip install './python[ray]'") && said.lines().count() == 1,
            "{said}"
        );
        said
    };
    let programs = folder.path().join("bin");
    fs::create_dir(&programs).unwrap();
    assert!(without(&programs).contains("and python3"));
    let python = programs.join("python3");
    fs::write(&python, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!without(&programs).contains("and python3"));
    assert!(!out.exists());
}

#[test]
fn what_is_not_spread_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for (options, what) in [
        (&["--ray", "local"][..], "--backend sim"),
        (&["--ray", "local", "--backend", "sim", "--captures", "x"], "--captures"),
        (&["--ray", "local", "--backend", "sim", "--only", "loss=9 %"], "no point `9 %`"),
    ] {
        let output = run(folder.path(), &out, options);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(what), "{said}");
    }
}
