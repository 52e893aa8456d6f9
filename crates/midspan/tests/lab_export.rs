//! `midspan lab export`: a results folder as tables that others read.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Output;

use parquet::basic::Type;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;

/// Simulates it. The results' folder.
fn results(folder: &Path) -> PathBuf {
    let out = folder.join("results");
    let output = common::lab_run(folder, common::TWO_POINTS, &out)
        .args(["--backend", "sim"])
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
fn parquet_has_what_csv_has() {
    let folder = tempfile::tempdir().unwrap();
    let results = results(folder.path());
    let output = export(&results, &["--csv", "--parquet"]);
    assert!(output.status.success(), "{output:?}");
    let package = fs::read_to_string(results.join("tables/datapackage.json")).unwrap();
    let package: Value = serde_json::from_str(&package).unwrap();
    for resource in package["resources"].as_array().unwrap() {
        let name = resource["name"].as_str().unwrap();
        let file = File::open(results.join(format!("tables/{name}.parquet"))).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let about = reader.metadata().file_metadata();
        let metadata = about.key_value_metadata().unwrap();
        let units = metadata.iter().find(|pair| pair.key == "units").unwrap();
        let units: Value = serde_json::from_str(units.value.as_deref().unwrap()).unwrap();
        let fields = resource["schema"]["fields"].as_array().unwrap();
        let columns = about.schema_descr().columns().iter();
        for (column, field) in columns.zip(fields) {
            assert_eq!(field["name"], column.name());
            assert_eq!(units.get(column.name()), field.get("unit"), "{name}: {}", column.name());
            let kind = match column.physical_type() {
                Type::BYTE_ARRAY => "string",
                Type::DOUBLE => "number",
                Type::INT64 => "integer",
                other => panic!("{other}"),
            };
            assert_eq!(field["type"], kind, "{name}: {}", column.name());
        }
        assert_eq!(about.schema_descr().num_columns(), fields.len(), "{name}");
        let rows: Vec<String> =
            reader.get_row_iter(None).unwrap().map(|row| csv_line(&row.unwrap())).collect();
        let csv = fs::read_to_string(results.join(format!("tables/{name}.csv"))).unwrap();
        let lines: Vec<&str> = csv.lines().skip(1).collect();
        assert!(!rows.is_empty() && rows == lines, "{name}: {rows:?} {lines:?}");
    }
}

fn csv_line(row: &Row) -> String {
    let fields = row.get_column_iter().map(|(_, field)| match field {
        Field::Null => String::new(),
        Field::Str(word) => word.clone(),
        Field::Double(number) => number.to_string(),
        Field::ULong(count) => count.to_string(),
        other => panic!("{other:?}"),
    });
    fields.collect::<Vec<_>>().join(",")
}

#[test]
fn plots_stand_alone() {
    let folder = tempfile::tempdir().unwrap();
    let results = results(folder.path());
    let output = export(&results, &["--svg"]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = printed
        .lines()
        .map(|line| Path::new(line).file_name().unwrap().to_str().unwrap())
        .collect();
    let runs = ["over-time-0-loss-no-proxy-run-1", "over-time-1-loss-midspan-run-1"];
    assert_eq!(names.len(), 1 + 4, "{names:?}");
    assert_eq!(names[0], "01-goodput.svg");
    assert!(runs.iter().all(|run| names.iter().any(|name| name.contains(run))), "{names:?}");
    for file in printed.lines() {
        let svg = fs::read_to_string(file).unwrap();
        assert!(svg.starts_with("<svg xmlns=") && svg.contains("<style>"), "{file}");
        assert!(svg.contains("simulated") || file.contains("over-time"), "{file}");
    }
    let goodput = fs::read_to_string(results.join("plots/01-goodput.svg")).unwrap();
    // A bar for each point and variant, and one in the legend for each variant and the source.
    assert_eq!(goodput.matches(r#"class="fill""#).count(), 4 + 3, "{goodput}");
}

#[test]
fn plots_are_pixels_where_there_is_a_converter() {
    let folder = tempfile::tempdir().unwrap();
    let results = results(folder.path());
    let without = common::midspan()
        .args(["lab", "export", "--png"])
        .arg(&results)
        .env("PATH", folder.path())
        .output()
        .unwrap();
    assert_eq!(without.status.code(), Some(1), "{without:?}");
    let said = String::from_utf8(without.stderr).unwrap();
    assert!(said.contains("install librsvg2-bin") && said.lines().count() == 1, "{said}");
    if !common::has("rsvg-convert") {
        return;
    }
    let output = export(&results, &["--svg", "--png"]);
    assert!(output.status.success(), "{output:?}");
    let svg = fs::read_to_string(results.join("plots/01-goodput.svg")).unwrap();
    let png = fs::read(results.join("plots/01-goodput.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG"));
    let width = u32::from_be_bytes(png[16..20].try_into().unwrap());
    assert!(svg.contains(r#"viewBox="0 0 760 "#) && width == 2 * 760, "{width}");
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
