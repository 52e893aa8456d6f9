//! A mobile network run live: the model of its cells on the real clock, real TCP of users, relay and servers around it.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use midspan_scenario::record::{
    LinkRecord, Measurement, Outcome, Record, TransferRecord, Variant, parse_lines,
};

/// Windows of half of 128 KiB and a little more, 20 ms to the gateway and 50 ms beyond it; `cells` and `workload` as in a file.
fn scenario(cells: &str, workload: &str) -> String {
    const WINDOWS: &str =
        r#"buffers = { rmem = "4096 131072 131072", wmem = "4096 16384 4194304" }"#;
    format!(
        r#"
        name = "cells"
        title = "Cells, live"
        seed = 3
        repetitions = 1
        variants = ["none", "midspan"]
        [cells]
        {cells}
        [path.access]
        up = [{{ delay = "10 ms" }}]
        down = [{{ rate = {{ rate = "100 Mbit/s" }} }}, {{ delay = "10 ms" }}]
        [path.wide]
        up = [{{ delay = "25 ms" }}]
        down = [{{ rate = {{ rate = "100 Mbit/s" }} }}, {{ delay = "25 ms" }}]
        [hosts.ue]
        {WINDOWS}
        [hosts.mec]
        {WINDOWS}
        [hosts.server]
        {WINDOWS}
        [workload]
        {workload}
        "#
    )
}

const BULK: &str = "kind = 'bulk'\ndirection = 'download'\ntime = '5 s'\nwarmup = '2 s'";

fn run(folder: &Path, scenario: &str, options: &[&str]) -> Output {
    let out = folder.join("results");
    common::lab_run(folder, scenario, &out).args(options).output().unwrap()
}

fn records(folder: &Path) -> Vec<Record> {
    let mut results = fs::read_dir(folder.join("results")).unwrap();
    let file = results.next().unwrap().unwrap().path().join("records.jsonl");
    parse_lines(&fs::read_to_string(&file).unwrap(), "records.jsonl").unwrap()
}

/// Runs it live, and answers the measurement of each variant; none of a variant where this machine was too busy to be
/// punctual, which says nothing of the program.
fn live(cells: &str, workload: &str) -> [Option<Measurement>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &scenario(cells, workload), &[]);
    assert!(output.status.success(), "{output:?}");
    let records = records(folder.path());
    let [none, midspan] = &records[..] else { panic!("{records:?}") };
    assert_eq!([none.variant, midspan.variant], [Variant::None, Variant::Midspan]);
    [none, midspan].map(|record| match &record.outcome {
        Outcome::Measured(measured) => Some(measured.clone()),
        Outcome::Untrusted { reason, .. } => {
            eprintln!("untrusted: {reason}");
            None
        }
        Outcome::Failed { reason } => panic!("{}: {reason}", record.variant),
    })
}

/// Windows limit, and the relay takes the gateway's distance out of both loops, as simulated.
#[test]
fn users_download_over_real_tcp_and_the_relay_at_the_gateway_splits() {
    if !common::can_run() {
        return;
    }
    let [none, split] = live("users = 1", BULK);
    for measured in [&none, &split].into_iter().flatten() {
        let links: Vec<&str> = measured.links.iter().map(|link| &*link.link).collect();
        assert_eq!(links, ["radio", "access", "wide"]);
        let bulk = measured.bulk().unwrap();
        assert_eq!(bulk.flows_bps.len(), 7);
        // A tunnel's header is 36 bytes on each packet between gateway and base station, and nowhere else.
        let mean = |link: usize| {
            let down = &measured.links[link].down;
            down.bytes_out as f64 / down.packets_out as f64
        };
        assert!((mean(1) - mean(0) - 36.0).abs() < 1.0, "{} {}", mean(0), mean(1));
        // Nothing came that is of no user or server.
        let links = measured.links.iter();
        let stray = |link: &LinkRecord| {
            link.up.dropped.contains_key("address") || link.down.dropped.contains_key("address")
        };
        assert!(!links.clone().any(stray), "{:?}", measured.links);
    }
    if let Some(none) = &none {
        // Less than a receive buffer in a round trip of 80 ms at least: 70 ms of delays and 10 ms up over the air.
        let most = 131_072.0 * 8.0 / 0.08;
        let flows = &none.bulk().unwrap().flows_bps;
        assert!(flows.iter().all(|bps| *bps < most), "{flows:?}");
        if let Some(split) = &split {
            let gain = split.bulk().unwrap().goodput_bps / none.bulk().unwrap().goodput_bps;
            assert!((1.1..2.2).contains(&gain), "{gain}");
        }
    }
}

/// Pages over several connections and videos, beside downloads of others whom the relay does not split, and by users who
/// change their cell every few seconds.
#[test]
fn users_load_pages_and_watch_videos_beside_others() {
    if !common::can_run() {
        return;
    }
    const OTHERS: &str = "users = 1\nclients = 'users'\nservers = 2\n\
                          radio = { speed = '120 km/h' }\nothers = [{ users = 1, \
                          workload = { kind = 'bulk', direction = 'download', time = '2 s' } }]";
    const PAGE: &str = "kind = 'page'\ndocument = '30 KB'\nconnections = 6\npipelining = 2\n\
                        lookup = '20 ms'\ncount = 2\nlimit = '60 s'\n\
                        objects = [{ count = 8, least = '2 KB', most = '20 KB', servers = 2 }]";
    for measured in live(OTHERS, PAGE).iter().flatten() {
        let transfers = measured.transfers();
        assert_eq!(transfers.len(), 14);
        // A look-up and two round trips at least: the handshake's and the document's.
        let is_possible = |transfer: &TransferRecord| {
            (117_900..=118_000).contains(&transfer.bytes) && transfer.received_s > 0.02 + 2.0 * 0.04
        };
        assert!(transfers.iter().all(is_possible), "{transfers:?}");
    }
    const VIDEO: &str = "kind = 'video'\nrate = '500 kbit/s'\nduration = '4 s'\nstart = '1 s'\n\
                         limit = '15 s'";
    for measured in live("users = 1", VIDEO).iter().flatten() {
        assert_eq!(measured.videos().len(), 7);
        let played = measured.videos().iter().filter(|video| video.start_s.is_some());
        assert_eq!(played.count(), 7, "{:?}", measured.videos());
    }
}

#[test]
fn what_does_not_run_live_is_refused_in_one_line() {
    for (cells, workload, said) in [
        ("users = 1\nsplit = 'enb'", BULK.to_owned(), "relays at base stations are only simulated"),
        (
            "users = 1",
            format!("{BULK}\ngreeting = '37 B'"),
            "greetings in cells are only simulated",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output = run(folder.path(), &scenario(cells, &workload), &[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(said) && stderr.trim().lines().count() == 1, "{stderr}");
    }
}
