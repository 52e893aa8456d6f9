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
/// In each slot a subscriber's are of one kind.
fn log() -> String {
    let (mut log, mut state) = (String::new(), 1);
    for slot in 0..24 {
        for subscriber in 0..60 {
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
    }
    log
}

#[test]
fn servers_are_told_apart_by_what_splitting_does_to_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.jsonl");
    fs::write(&path, log()).unwrap();
    let path = path.to_str().unwrap();
    let (text, error, code) = gain(&[path, "--by", "service"]);
    assert_eq!((error.as_str(), code), ("", Some(0)));
    let line = |of: &str| text.lines().find(|line| line.starts_with(of)).unwrap();
    assert!(line("192.0.2.10").ends_with("faster"), "{text}");
    assert!(line("198.51.100.7").ends_with("slower"), "{text}");
    // The first subscriber begins too early in each slot.
    assert!(text.contains("48 connections began in the first 30 s of a slot"), "{text}");
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
