//! `midspan lab run --qlog`: what simulated senders do, as files of qlog that say what the record says.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use midspan_scenario::record::{LegRecord, Record, Variant, parse_lines};
use serde_json::Value;

const SCENARIO: &str = r#"
    name = "logged"
    title = "An upload that loses packets, to its losses and its timeouts"
    seed = 1
    repetitions = 1
    variants = ["none", "midspan"]
    [path.access]
    up = [
        { rate = { rate = "20 Mbit/s", queue = { bytes = "60 KB" } } },
        { loss = { share = "$loss" } },
        { delay = "5 ms" },
    ]
    down = [{ delay = "5 ms" }]
    [path.wide]
    up = [{ delay = "20 ms" }]
    down = [{ delay = "20 ms" }]
    [workload]
    kind = "bulk"
    direction = "upload"
    time = "4 s"
    [sweep]
    loss = ["0.5 %", "20 %"]
"#;

fn lab_run(folder: &Path, scenario: &str, options: &[&str]) -> Output {
    common::lab_run(folder, scenario, &folder.join("results")).args(options).output().unwrap()
}

/// Runs it; answers the folder of the files, and the records.
fn logged(folder: &Path, scenario: &str) -> (PathBuf, Vec<Record>) {
    let qlog = folder.join("qlog");
    let output = lab_run(folder, scenario, &["--backend", "sim", "--qlog", qlog.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    (qlog, records(folder))
}

fn records(folder: &Path) -> Vec<Record> {
    let results = fs::read_dir(folder.join("results")).unwrap().next().unwrap().unwrap();
    let text = fs::read_to_string(results.path().join("records.jsonl")).unwrap();
    parse_lines(&text, "records").unwrap()
}

/// The files of a run, by their names.
fn files(folder: &Path) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path)).collect()
}

fn folder_of(qlog: &Path, record: &Record) -> PathBuf {
    let loss = record.cell["loss"].replace(' ', "");
    qlog.join(format!("loss={loss}/{}-1", record.variant))
}

/// The events of an end, and its leg.
fn of_end<'a>(
    qlog: &Path,
    record: &'a Record,
    (host, leg, number): (&str, &str, usize),
    vantage: &str,
) -> (Vec<(String, Value)>, &'a LegRecord) {
    let path = folder_of(qlog, record).join(format!("{host}-{leg}-{number}.sqlog"));
    let title = format!(
        "scenario logged, loss {}, variant {}, repetition 1, {leg} leg {number} at {host}",
        record.cell["loss"], record.variant
    );
    let mut legs = record.measurement().unwrap().legs.iter();
    let leg = legs.by_ref().filter(|of| of.host == host && of.leg == leg).nth(number).unwrap();
    (events(&path, &title, vantage), leg)
}

/// The JSON texts of a sequence (RFC 7464, section 2.1).
fn texts(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once('\x1e').unwrap();
    assert_eq!(before, "");
    let whole = |one: &str| {
        assert!(one.ends_with('\n'), "{one}");
        serde_json::from_str(one).unwrap()
    };
    rest.split('\x1e').map(whole).collect()
}

/// A file's events: what the main schema asks of all is there, and times do not decrease.
fn events(path: &Path, title: &str, vantage: &str) -> Vec<(String, Value)> {
    let mut texts = texts(path).into_iter();
    let header = texts.next().unwrap();
    assert_eq!(header["file_schema"], "urn:ietf:params:qlog:file:sequential");
    assert_eq!(header["serialization_format"], "application/qlog+json-seq");
    assert_eq!(header["title"], title);
    let trace = &header["trace"];
    assert_eq!(trace["vantage_point"]["type"], vantage);
    let schema = trace["event_schemas"][0].as_str().unwrap();
    let (_, namespace) = schema.rsplit_once('/').unwrap();
    let time = &trace["common_fields"]["reference_time"];
    assert_eq!((&time["clock_type"], &time["epoch"]), (&"monotonic".into(), &"unknown".into()));
    let mut last = 0.0;
    let event = |event: Value| {
        let time = event["time"].as_f64().unwrap();
        assert!(time >= last, "{event}");
        last = time;
        let (of, name) = event["name"].as_str().unwrap().split_once(':').unwrap();
        assert_eq!(of, namespace);
        assert!(event["data"].is_object() && event.as_object().unwrap().len() == 3, "{event}");
        (name.to_owned(), event["data"].clone())
    };
    texts.map(event).collect()
}

fn range(value: &Value) -> (u64, u64) {
    (value[0].as_u64().unwrap(), value[1].as_u64().unwrap())
}

/// What is in flight, from what was sent, acknowledged and lost.
#[derive(Default)]
struct Flight(BTreeMap<u64, Segment>);

#[derive(Default)]
struct Segment {
    end: u64,
    sacked: bool,
    lost: bool,
    retransmitted: bool,
}

impl Flight {
    fn sent(&mut self, (start, end): (u64, u64), retransmission: bool) {
        let segment = self.0.entry(start).or_default();
        assert_eq!(retransmission, segment.end > 0, "{start}");
        segment.end = end;
        segment.retransmitted |= retransmission;
    }

    fn received(&mut self, data: &Value) {
        let ack = data["ack"].as_u64().unwrap();
        self.0.retain(|_, segment| segment.end > ack);
        for block in data["sack"].as_array().into_iter().flatten() {
            let (from, to) = range(block);
            for (_, segment) in self.0.range_mut(from..).filter(|(_, segment)| segment.end <= to) {
                *segment = Segment { end: segment.end, sacked: true, ..Segment::default() };
            }
        }
    }

    fn lost(&mut self, (start, end): (u64, u64)) {
        let segment = self.0.get_mut(&start).unwrap();
        assert!(segment.end == end && !segment.sacked);
        (segment.lost, segment.retransmitted) = (true, false);
    }

    fn bytes(&self) -> u64 {
        let bytes = |(start, segment): (&u64, &Segment)| {
            let Segment { end, sacked, lost, retransmitted } = *segment;
            let times = 1 + u64::from(retransmitted) - u64::from(sacked) - u64::from(lost);
            times * (end - start)
        };
        self.0.iter().map(bytes).sum()
    }
}

/// Holds events against the leg as the record has it; answers the names and states that there were.
fn check(events: &[(String, Value)], leg: &LegRecord) -> BTreeSet<String> {
    let (mut flight, mut seen) = (Flight::default(), BTreeSet::new());
    let (mut mss, mut retransmissions, mut acknowledged) = (0, 0, 1);
    let mut metrics = BTreeMap::new();
    let mut state = String::new();
    for (name, data) in events {
        seen.insert(name.clone());
        match name.as_str() {
            "parameters_set" => {
                mss = data["mss"].as_u64().unwrap();
                assert_eq!(data["congestion_control"], leg.congestion_control);
            }
            "packet_sent" => {
                let again = data["retransmission"] == true;
                let (start, end) = range(&data["range"]);
                assert!(end > start && end - start <= mss);
                retransmissions += u32::from(again);
                flight.sent((start, end), again);
            }
            "packet_received" => {
                acknowledged = data["ack"].as_u64().unwrap().max(acknowledged);
                flight.received(data);
            }
            "packet_lost" => {
                seen.insert(data["trigger"].as_str().unwrap().to_owned());
                flight.lost(range(&data["range"]));
            }
            "spurious_loss" => {
                seen.insert(data["trigger"].as_str().unwrap().to_owned());
                if data["forgiven"] == true {
                    flight.0.values_mut().for_each(|segment| segment.lost = false);
                }
            }
            "metrics_updated" => {
                let changed = data.as_object().unwrap();
                assert!(!changed.is_empty());
                metrics.extend(changed.clone());
                if changed.contains_key("bytes_in_flight") {
                    assert_eq!(data["bytes_in_flight"], flight.bytes());
                }
            }
            "congestion_state_updated" => {
                assert_eq!(data["old"].as_str().unwrap_or_default(), state);
                data["new"].as_str().unwrap().clone_into(&mut state);
                seen.insert(state.clone());
            }
            "timer_updated" => {
                let set = data["event_type"] == "set";
                assert_eq!(set, data["delta"].as_f64().is_some_and(|delta| delta > 0.0));
                seen.insert(format!("{} {}", data["timer_type"], data["event_type"]));
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(retransmissions, leg.retransmits);
    assert_eq!(acknowledged - 1, leg.bytes_acked);
    assert_eq!(metrics["congestion_window"], u64::from(leg.cwnd) * mss);
    for (key, micros) in [("smoothed_rtt", leg.rtt_us), ("min_rtt", leg.min_rtt_us)] {
        let nanos = (metrics[key].as_f64().unwrap() * 1e6).round() as u64;
        assert_eq!(nanos / 1000, u64::from(micros), "{key}");
    }
    seen
}

#[test]
fn files_say_what_the_record_says() {
    let folder = tempfile::tempdir().unwrap();
    let (qlog, records) = logged(folder.path(), SCENARIO);
    assert_eq!(records.len(), 4);
    let mut seen = BTreeSet::new();
    for record in &records {
        let files = files(&folder_of(&qlog, record));
        let senders: &[_] = match record.variant {
            Variant::None => &[("ue", "end-to-end")],
            _ => &[("mec", "server"), ("ue", "client")],
        };
        let expected = senders.iter().map(|(host, leg)| format!("{host}-{leg}-0.sqlog"));
        assert!(files.keys().eq(&expected.collect::<Vec<_>>()), "{files:?}");
        for (host, leg) in senders {
            let (events, leg) = of_end(&qlog, record, (host, leg, 0), "client");
            seen.extend(check(&events, leg));
        }
    }
    for what in [
        "slow_start",
        "congestion_avoidance",
        "recovery",
        "loss",
        "rack",
        "retransmission_timeout",
        "\"retransmission\" \"expired\"",
        "\"tail_loss_probe\" \"set\"",
    ] {
        assert!(seen.contains(what), "no {what} in {seen:?}");
    }
}

#[test]
fn they_are_the_same_again_and_change_no_record() {
    let folders = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let [(one, records_one), (other, _)] =
        folders.each_ref().map(|folder| logged(folder.path(), SCENARIO));
    for record in &records_one {
        let [one, other] = [&one, &other].map(|qlog| files(&folder_of(qlog, record)));
        assert!(one.keys().eq(other.keys()));
        for (one, other) in one.values().zip(other.values()) {
            assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{}", one.display());
        }
    }
    let plain = tempfile::tempdir().unwrap();
    assert!(lab_run(plain.path(), SCENARIO, &["--backend", "sim"]).status.success());
    assert!(records(plain.path()) == records_one);
}

#[test]
fn each_connection_has_its_own() {
    let transfers = SCENARIO
        .replace(
            "kind = \"bulk\"\n    direction = \"upload\"\n    time = \"4 s\"",
            "kind = \"transfer\"\n    direction = \"download\"\n    size = \"100 KB\"\n    count = 3",
        )
        .replace("\"20 %\"", "\"2 %\"");
    let folder = tempfile::tempdir().unwrap();
    let (qlog, records) = logged(folder.path(), &transfers);
    for record in &records {
        let leg = if record.variant == Variant::None { "end-to-end" } else { "server" };
        for number in 0..3 {
            let (events, of) = of_end(&qlog, record, ("server", leg, number), "server");
            let last = events.iter().rev().find(|(name, _)| name == "packet_received").unwrap();
            // The SYN and the FIN take a position each.
            assert_eq!((&last.1["ack"], of.bytes_acked), (&(1 + 100_000 + 1).into(), 100_000));
        }
        let of_server = files(&folder_of(&qlog, record));
        let of_server = of_server.keys().filter(|name| name.starts_with("server-"));
        assert_eq!(of_server.count(), 3);
    }
}

/// Packets that are late are taken for lost ones, and then that is taken back.
#[test]
fn what_was_a_mistake_is_told() {
    let late = SCENARIO
        .replace(
            "{ loss = { share = \"$loss\" } }",
            "{ late = { share = \"$loss\", by = \"40 ms\" } }",
        )
        .replace("\"20 %\"", "\"2 %\"");
    let folder = tempfile::tempdir().unwrap();
    let (qlog, records) = logged(folder.path(), &late);
    let mut seen = BTreeSet::new();
    for record in records.iter().filter(|record| record.variant == Variant::None) {
        let (events, leg) = of_end(&qlog, record, ("ue", "end-to-end", 0), "client");
        seen.extend(check(&events, leg));
    }
    assert!(seen.contains("spurious_loss"), "{seen:?}");
}

#[test]
fn what_cannot_be_logged_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a-file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let cells = format!("{SCENARIO}\n    [cells]\n    users = 1\n");
    for (scenario, options, what) in [
        (SCENARIO, &["--qlog", "x"][..], "give `--backend sim`"),
        (SCENARIO, &["--backend", "sim", "--qlog", file], "--qlog: cannot make"),
        (SCENARIO, &["--backend", "sim", "--qlog", "x", "--ray", "local"], "--ray"),
        (&cells, &["--backend", "sim", "--qlog", folder.path().to_str().unwrap()], "leave it out"),
    ] {
        let output = lab_run(folder.path(), scenario, options);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(what), "{said}");
    }
}
