//! The reference's rows and the scenarios that repeat them.

#![allow(clippy::disallowed_methods, reason = "tests read files")]

use std::fs;
use std::path::Path;

use midspan_scenario::Scenario;
use midspan_scenario::record::{
    Backend, BulkRecord, Measurement, Outcome, Record, SCHEMA, Variant, WorkloadRecord,
};
use midspan_scenario::reference::{Conditions, Row, compare, parse_csv};
use midspan_scenario::summary::Summary;

const HEADER: &str = "rate_mbps,queue_bytes,rtt_ms,access_rtt_ms,loss_pct,late_share_of_10000,\
                      late_ms,path,cc,seconds,goodput_kbps,retransmits";

fn repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(path)
}

fn scenario(name: &str) -> Scenario {
    let path = repository(&format!("scenarios/reference/{name}.toml"));
    let text = fs::read_to_string(&path).unwrap();
    Scenario::parse(&text, name).unwrap_or_else(|error| panic!("{error}"))
}

/// The rows beside the repository, which not every checkout has.
fn shared_rows() -> Option<Vec<Row>> {
    let path = repository("../shared/reference/linux-6.1.csv");
    let Ok(text) = fs::read_to_string(&path) else {
        println!("skipped: no {}", path.display());
        return None;
    };
    Some(parse_csv(&text, "linux-6.1.csv").unwrap_or_else(|error| panic!("{error}")))
}

fn cells() -> impl Iterator<Item = (String, Conditions)> {
    ["loss", "direct", "late", "relay-at-5ms"].into_iter().map(scenario).flat_map(|scenario| {
        let name = scenario.name.clone();
        let cells = scenario.cells().iter();
        let conditions = cells.flat_map(|cell| {
            cell.variants.iter().map(|variant| {
                Conditions::of(&cell.spec, *variant)
                    .unwrap_or_else(|| panic!("{:?} is of another kind", cell.labels))
            })
        });
        conditions.map(|conditions| (name.clone(), conditions)).collect::<Vec<_>>()
    })
}

#[test]
fn every_row_of_a_control_that_is_everywhere_has_one_cell() {
    let Some(rows) = shared_rows() else { return };
    let near = |row: &Row, ours: &Conditions| {
        Conditions { rate: row.conditions.rate, ..ours.clone() } == row.conditions
    };
    let runnable =
        |row: &&Row| ["cubic", "bbr", "reno"].contains(&row.conditions.congestion_control.as_str());
    for row in rows.iter().filter(runnable) {
        let matches = cells().filter(|(_, ours)| near(row, ours)).count();
        assert_eq!(matches, 1, "{row:?}");
    }
    for (scenario, ours) in cells() {
        assert!(rows.iter().any(|row| near(row, &ours)), "{scenario}: no row for {ours:?}");
    }
}

fn record(scenario: &Scenario, variant: Variant, acknowledged_bps: f64) -> Record {
    let labels = [("control", "cubic"), ("loss", "1 %")];
    Record {
        schema: SCHEMA,
        scenario: scenario.name.clone(),
        digest: scenario.digest(),
        backend: Backend::Live,
        cell: labels.iter().map(|(axis, label)| (axis.to_string(), label.to_string())).collect(),
        variant,
        repetition: 0,
        seed: 1,
        started_unix_ms: 0,
        outcome: Outcome::Measured(Measurement {
            measured_s: 10.0,
            sender_retransmits: 25,
            workload: WorkloadRecord::Bulk(BulkRecord {
                goodput_bps: acknowledged_bps,
                acknowledged_bps,
                flows_bps: vec![acknowledged_bps],
                ..BulkRecord::default()
            }),
            legs: Vec::new(),
            links: Vec::new(),
            feedback: None,
        }),
    }
}

const TWO_ROWS: &str = "100,625000,50,1,1,0,0,direct,cubic,60,2500,100\n\
                        100,625000,50,1,1,0,0,proxy,cubic,10,66000,400\n";

#[test]
fn pairs_and_contests() {
    let rows = parse_csv(&format!("{HEADER}\n{TWO_ROWS}"), "r.csv").unwrap();
    let scenario = scenario("loss");
    let records =
        [record(&scenario, Variant::None, 2.0e6), record(&scenario, Variant::Midspan, 70.0e6)];
    let summary = Summary::of(&scenario, &records).unwrap();
    let comparison = compare(&rows, &scenario, &summary);

    assert_eq!(comparison.pairs.len(), 2);
    let none = &comparison.pairs[0];
    assert_eq!((none.variant, none.ratio), (Variant::None, Some(0.8)));
    // 25 losses of ours, 100 of theirs.
    assert!((none.sampling_error.unwrap() - (0.05f64).sqrt()).abs() < 1e-12);

    assert_eq!(comparison.contests.len(), 1);
    let contest = &comparison.contests[0];
    assert_eq!((contest.theirs, contest.ours), (26.4, Some(35.0)));
    assert_eq!((contest.same_winner, contest.same_order), (Some(true), Some(true)));
}

#[test]
fn another_winner_or_another_order_is_seen() {
    let rows = parse_csv(&format!("{HEADER}\n{TWO_ROWS}"), "r.csv").unwrap();
    let scenario = scenario("loss");
    let verdict = |none, proxied| {
        let records =
            [record(&scenario, Variant::None, none), record(&scenario, Variant::Midspan, proxied)];
        let summary = Summary::of(&scenario, &records).unwrap();
        let contest = &compare(&rows, &scenario, &summary).contests[0];
        (contest.same_winner, contest.same_order)
    };
    assert_eq!(verdict(2.0e6, 1.0e6), (Some(false), Some(false)));
    assert_eq!(verdict(2.0e6, 2.1e6), (Some(false), Some(false)));
    assert_eq!(verdict(2.0e6, 4.0e6), (Some(true), Some(false)));
}

#[test]
fn a_cell_without_measured_runs_is_a_pair_without_numbers_of_ours() {
    let rows = parse_csv(&format!("{HEADER}\n{TWO_ROWS}"), "r.csv").unwrap();
    let scenario = scenario("loss");
    let summary = Summary::of(&scenario, &[]).unwrap();
    let comparison = compare(&rows, &scenario, &summary);
    assert_eq!(comparison.pairs.len(), 2);
    assert!(comparison.pairs.iter().all(|pair| pair.ours.is_none() && pair.ratio.is_none()));
    assert_eq!(comparison.contests[0].same_winner, None);
}

#[test]
fn figures_of_papers_are_not_the_references_kind() {
    let text = fs::read_to_string(repository("scenarios/mec/3a.toml")).unwrap();
    let scenario = Scenario::parse(&text, "3a.toml").unwrap();
    for cell in scenario.cells() {
        assert_eq!(Conditions::of(&cell.spec, Variant::None), None);
    }
}

#[test]
fn bad_rows_are_refused_with_their_line() {
    let error = |text: &str| parse_csv(text, "r.csv").unwrap_err().to_string();
    assert!(error("a,b\n").starts_with("r.csv:1: not the reference's columns"));
    let row = TWO_ROWS.lines().next().unwrap();
    for (from, to, what) in [
        (",1,1,0", ",1,101,0", "loss_pct is 101; at most 100 is all of it"),
        ("direct", "detour", "`detour` is not a path; `direct` or `proxy` is"),
        (",60,", ",", "11 columns; there must be 12"),
        ("625000", "-1", "queue_bytes is `-1`; it must be a number, zero or more"),
    ] {
        let text = format!("{HEADER}\n{TWO_ROWS}{}\n", row.replacen(from, to, 1));
        assert_eq!(error(&text), format!("r.csv:4: {what}"));
    }
}
