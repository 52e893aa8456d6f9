//! `midspan lab export`: a results folder as tables that others read.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

const SCENARIO: &str = r#"
    name = "export"
    title = "Two points, both variants"
    seed = 1
    repetitions = 2
    variants = ["none", "midspan"]
    [path.access]
    up = [{ rate = { rate = "20 Mbit/s" } }, { loss = { share = "$loss" } }]
    down = [{ delay = "5 ms" }]
    [path.wide]
    up = [{ delay = "20 ms" }]
    down = [{ delay = "20 ms" }]
    [workload]
    kind = "bulk"
    direction = "upload"
    time = "1 s"
    series = "100 ms"
    [sweep]
    loss = ["0 %", "1 %"]
"#;

/// Simulates it. The results' folder.
fn results(folder: &Path) -> PathBuf {
    let file = folder.join("export.toml");
    fs::write(&file, SCENARIO).unwrap();
    let out = folder.join("results");
    let output = common::midspan()
        .args(["lab", "run", "--backend", "sim"])
        .arg(&file)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::read_dir(&out).unwrap().next().unwrap().unwrap().path()
}

fn export(results: &Path, options: &[&str]) -> Output {
    common::midspan().args(["lab", "export"]).arg(results).args(options).output().unwrap()
}

#[test]
fn csv_has_what_the_records_have() {
    let folder = tempfile::tempdir().unwrap();
    let results = results(folder.path());
    let output = export(&results, &["--csv"]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.lines().all(|line| Path::new(line).exists()), "{printed}");
    let text = fs::read_to_string(results.join("tables/runs.csv")).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let rows: Vec<BTreeMap<&str, &str>> =
        lines.map(|fields| names.iter().copied().zip(fields).collect()).collect();
    let records = fs::read_to_string(results.join("records.jsonl")).unwrap();
    let records: Vec<Value> =
        records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((rows.len(), records.len()), (8, 8));
    for (row, record) in rows.iter().zip(&records) {
        assert_eq!(row["loss"], record["cell"]["loss"]);
        assert_eq!(row["variant"], record["variant"]);
        let goodput = record["goodput_bps"].as_f64().unwrap();
        assert_eq!(row["goodput_bps"].parse::<f64>().unwrap(), goodput);
    }
    let package = fs::read_to_string(results.join("tables/datapackage.json")).unwrap();
    let package: Value = serde_json::from_str(&package).unwrap();
    assert_eq!(package["title"], "Two points, both variants");
    let paths: Vec<&str> = package["resources"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["path"].as_str())
        .collect();
    let tables = ["runs", "flows", "legs", "links", "leg_series", "link_series"];
    assert_eq!(paths, tables.map(|table| format!("{table}.csv")));
    let series = fs::read_to_string(results.join("tables/leg_series.csv")).unwrap();
    // Ten looks and more at two legs without a relay, and at four with one, in two runs of two cells.
    assert!(series.lines().count() > 10 * (2 + 4) * 4, "{series}");
    let rtt = package["resources"][2]["schema"]["fields"].as_array().unwrap();
    let rtt = rtt.iter().find(|field| field["name"] == "rtt_us").unwrap();
    assert_eq!((&rtt["type"], &rtt["unit"]), (&"integer".into(), &"us".into()));
}

#[test]
fn it_goes_where_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let results = results(folder.path());
    let out = folder.path().join("elsewhere");
    let output = export(&results, &["--csv", "--out", out.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert!(out.join("runs.csv").exists() && !results.join("tables").exists());
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    for (options, what) in [(&["--csv"][..], "missing"), (&[], "--csv")] {
        let output = export(&missing, options);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8(output.stderr).unwrap().contains(what));
    }
}
