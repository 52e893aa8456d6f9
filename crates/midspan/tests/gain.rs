//! `midspan relay gain`, on flow logs.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

fn gain(arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_midspan"))
        .args(["relay", "gain"])
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

/// A number from 0 to 1, other than the last one.
fn draw(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as f64 / f64::from(1_u32 << 31)
}

/// A log of connections to two servers, from one of which split ones come in half the time, and from the other in twice.
/// In each slot, an hour, a subscriber's are of one kind.
fn log(subscribers: usize) -> String {
    let (mut log, mut state) = (String::new(), 1);
    for slot in 0..24 {
        for subscriber in 0..subscribers {
            let split = draw(&mut state) < 0.5;
            for (server, factor) in [("192.0.2.10", 0.5), ("198.51.100.7", 2.0)] {
                let time = 0.4 * (draw(&mut state) - 0.5).exp() * if split { factor } else { 1.0 };
                let direction = |bytes: u64, us: f64| json!({ "bytes": bytes, "last_acknowledged_us": us as u64 });
                let line = json!({
                    "schema": 1, "kind": "path",
                    "start": format!("2026-11-25T{slot:02}:00:{:02}.000000Z", if subscriber == 0 { 10 } else { 45 }),
                    "slot": format!("2026-11-25T{slot:02}:00:00.000000Z"),
                    "holdout": 0.5,
                    "client": format!("sub-{subscriber:016x}"),
                    "server": format!("{server}:443"),
                    "verdict": if split { "split" } else { "pass_holdout" },
                    "ended": "finished",
                    "up": direction(300, time * 1e5),
                    "down": direction(250_000, time * 1e6),
                });
                writeln!(log, "{line}").unwrap();
            }
        }
        writeln!(log, "{}", json!({ "schema": 1, "kind": "split", "client": "sub-1" })).unwrap();
        let passed = json!({
            "schema": 1, "kind": "path", "start": format!("2026-11-25T{slot:02}:00:50.000000Z"), "slot": null,
            "holdout": null, "client": "sub-1", "server": "192.0.2.10:22", "verdict": "pass_port",
        });
        writeln!(log, "{passed}").unwrap();
    }
    log
}

#[test]
fn servers_are_told_apart_by_what_splitting_does_to_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.jsonl");
    fs::write(&path, log(60)).unwrap();
    let path = path.to_str().unwrap();
    let (text, error, code) = gain(&[path, "--by", "service"]);
    assert_eq!((error.as_str(), code), ("", Some(0)));
    let line = |of: &str| text.lines().find(|line| line.starts_with(of)).unwrap();
    assert!(line("192.0.2.10").ends_with("faster"), "{text}");
    assert!(line("198.51.100.7").ends_with("slower"), "{text}");
    // The first subscriber begins too early in each slot.
    assert!(text.contains("48 connections began in the first 30 s of a slot"), "{text}");
    assert!(text.contains("24 connections were split or passed for another reason"), "{text}");
    let (text, ..) = gain(&[path, "--by", "prefix", "--json"]);
    let told: Value = serde_json::from_str(&text).unwrap();
    let row = |of: &str| {
        let rows = told["rows"].as_array().unwrap();
        rows.iter().find(|row| row["of"] == of).unwrap_or_else(|| panic!("{told:#}")).clone()
    };
    for (of, gain) in [("192.0.2.0/24", 2.0), ("198.51.100.0/24", 0.5)] {
        let row = row(of);
        let bound = |key: &str| row[key].as_f64().unwrap();
        assert!(bound("at_least") < gain && gain < bound("at_most"), "{row:#}");
        assert!((bound("gain") / gain).ln().abs() < 0.25, "{row:#}");
    }
    let (text, ..) = gain(&[path]);
    let line = text.lines().find(|line| line.starts_with("100 kB to 1 MB")).unwrap();
    assert!(line.contains("not known yet"), "{text}");
}

#[test]
fn an_hour_is_told_by_its_own_connections_and_the_last_ones_come_last() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.jsonl");
    // From noon on splitting is no good for the first server either.
    let turned = log(400).lines().fold(String::new(), |mut all, line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let is_late = line["start"].as_str().is_some_and(|start| &start[11..13] >= "12");
        if is_late && line["server"] == "192.0.2.10:443" && line["verdict"] == "split" {
            for way in ["up", "down"] {
                let time = line[way]["last_acknowledged_us"].as_u64().unwrap() * 8;
                line[way]["last_acknowledged_us"] = json!(time);
            }
        }
        writeln!(all, "{line}").unwrap();
        all
    });
    fs::write(&path, turned).unwrap();
    let path = path.to_str().unwrap();
    let (text, _, code) = gain(&[path, "--by", "hour", "--most", "100", "--json"]);
    assert_eq!(code, Some(0));
    let told: Value = serde_json::from_str(&text).unwrap();
    let rows = &told["rows"].as_array().unwrap()[1..];
    assert_eq!(rows.len(), 24);
    assert_eq!(rows[23]["of"], "2026-11-25 23:00");
    for (hour, row) in rows.iter().enumerate().skip(1) {
        assert_eq!(row["split"].as_u64().unwrap() + row["held_out"].as_u64().unwrap(), 2 * 399);
        // A half and twice, and later four times and twice.
        let truth = if hour < 12 { 1.0 } else { 1.0 / 8_f64.sqrt() };
        let bound = |key: &str| row[key].as_f64().unwrap();
        assert!(bound("at_least") < truth && truth < bound("at_most"), "{hour}: {row:#}");
    }
    let slower = rows.iter().filter(|row| row["verdict"] == "slower").count();
    assert!(slower > 6 && rows[1]["verdict"] == "not known yet", "{told:#}");
    let (text, ..) = gain(&[path, "--by", "hour", "--most", "2"]);
    let hours: Vec<_> = text.lines().filter(|line| line.starts_with("2026-")).collect();
    assert!(hours.len() == 2 && hours[1].starts_with("2026-11-25 23:00"), "{text}");
    assert!(text.contains("22 rows more"), "{text}");
}

#[test]
fn a_page_shows_what_the_table_tells() {
    let folder = tempfile::tempdir().unwrap();
    let (path, page) = (folder.path().join("flows.jsonl"), folder.path().join("gain.html"));
    // Connections that have begun are none that ended.
    let start = json!({ "schema": 1, "kind": "start", "start": "2026-11-25T00:00:00Z", "client": "sub-1", "server": "192.0.2.1:1" });
    fs::write(&path, format!("{start}\n{}", log(60))).unwrap();
    let (path, page) = (path.to_str().unwrap(), page.to_str().unwrap());
    let (text, error, code) = gain(&[path, "--by", "service", "--html", page]);
    assert_eq!((error.as_str(), code), ("", Some(0)));
    let html = fs::read_to_string(page).unwrap();
    for outside in ["http", "src=", "url(", "@import", "<script", "<link", "NaN"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("It is slower to these servers: 198.51.100.7."), "{html}");
    for part in ["All, and by size", "Over time", "By server", "198.51.100.0/24", "11-25 00:00"] {
        assert!(html.contains(part), "{part}");
    }
    assert!(html.contains("48 connections began in the first 30 s of a slot"));
    // The same numbers, however they are told.
    for of in ["all", "192.0.2.10", "198.51.100.7"] {
        let line = text.lines().find(|line| line.split(' ').next() == Some(of)).unwrap();
        let mut bounds = line.split(" x").filter_map(|part| part.rsplit(' ').next());
        let (gain, least, most) = (bounds.next(), bounds.next(), bounds.next());
        let told = format!("{} x ({} to {})", gain.unwrap(), least.unwrap(), most.unwrap());
        assert!(html.contains(&told), "{told}: {text}");
    }
    let (_, error, code) = gain(&[path, "--html", folder.path().to_str().unwrap()]);
    assert!(error.contains("cannot write"), "{error}");
    assert_eq!((error.lines().count(), code), (1, Some(2)));
}

#[test]
fn what_is_no_log_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.jsonl");
    let path = path.to_str().unwrap();
    let (_, error, code) = gain(&[path]);
    assert_eq!((error.lines().count(), code), (1, Some(2)), "{error}");
    fs::write(path, "{\"schema\":1,\"kind\":\"split\"}\nno line\n").unwrap();
    let (_, error, code) = gain(&[path]);
    assert!(error.contains("flows.jsonl:2: not a line of a flow log"), "{error}");
    assert_eq!((error.lines().count(), code), (1, Some(2)));
    fs::write(path, "{\"schema\":1,\"kind\":\"split\"}\n").unwrap();
    let (_, error, code) = gain(&[path]);
    assert!(error.contains("policy.holdout"), "{error}");
    assert_eq!(code, Some(2));
}
