//! Records into statistics.

use std::collections::BTreeMap;

use midspan_scenario::metric::{GOODPUT, METRICS, POWER, QUEUEING95, RECEIVED, RETRANSMITTED};
use midspan_scenario::record::{
    Backend, BulkRecord, DelayRecord, DirectionRecord, LatenessRecord, LinkRecord, Measurement,
    Outcome, Record, SCHEMA, TransferRecord, Variant, WorkloadRecord,
};
use midspan_scenario::summary::{Counts, Foreign, Measurability, Summary};
use midspan_scenario::{Metric, Scenario};

const FILE: &str = r#"
name = "two"
title = "Two cells"
repetitions = 3
variants = ["none", "midspan"]
[path.access]
up = [{ loss = { share = "$loss" } }]
[path.wide]
up = [{ delay = "10 ms" }]
[workload]
kind = "bulk"
direction = "upload"
time = "2 s"
[sweep]
loss = ["0 %", "1 %"]
[[reported]]
cell = { loss = "1 %" }
variants = ["midspan"]
gain = 115.5
"#;

fn scenario() -> Scenario {
    Scenario::parse(FILE, "two.toml").unwrap()
}

fn record(loss: &str, variant: Variant, repetition: u32, outcome: Outcome) -> Record {
    Record {
        schema: SCHEMA,
        scenario: "two".into(),
        digest: scenario().digest(),
        backend: Backend::Live,
        cell: BTreeMap::from([("loss".to_owned(), loss.to_owned())]),
        variant,
        repetition,
        seed: 1,
        started_unix_ms: 0,
        outcome,
    }
}

fn bulk(goodput_bps: f64) -> WorkloadRecord {
    WorkloadRecord::Bulk(BulkRecord {
        goodput_bps,
        acknowledged_bps: goodput_bps * 1.01,
        flows_bps: vec![goodput_bps],
        ..BulkRecord::default()
    })
}

fn measured(workload: WorkloadRecord) -> Outcome {
    Outcome::Measured(Measurement {
        measured_s: 2.0,
        sender_retransmits: 7,
        workload,
        legs: Vec::new(),
        links: Vec::new(),
        feedback: None,
    })
}

fn goodput(loss: &str, variant: Variant, repetition: u32, mbps: f64) -> Record {
    record(loss, variant, repetition, measured(bulk(mbps * 1e6)))
}

fn untrusted(loss: &str, variant: Variant, repetition: u32) -> Record {
    let outcome = Outcome::Untrusted { reason: "the emulator fell behind".into(), links: vec![] };
    record(loss, variant, repetition, outcome)
}

#[test]
fn statistics_and_paired_gain() {
    // Out of order, as a resumed sweep leaves them.
    let records = [
        goodput("1 %", Variant::Midspan, 1, 800.0),
        goodput("1 %", Variant::None, 0, 4.0),
        goodput("1 %", Variant::None, 1, 8.0),
        goodput("1 %", Variant::Midspan, 0, 100.0),
        goodput("1 %", Variant::Midspan, 2, 999.0),
    ];
    let summary = Summary::of(&scenario(), &records).unwrap();
    assert_eq!(summary.counts, Counts { measured: 5, untrusted: 0, failed: 0 });
    let [none_yet, cell] = &summary.cells[..] else { panic!("two cells") };
    assert_eq!(none_yet.counts.total(), 0);
    assert_eq!(none_yet.variant(Variant::None).unwrap().stats(&GOODPUT), None);

    let none = cell.variant(Variant::None).unwrap();
    let stats = none.stats(&GOODPUT).unwrap();
    assert_eq!((stats.n, stats.mean, stats.min, stats.max), (2, 6e6, 4e6, 8e6));
    assert_eq!((none.gain, none.stats(&RECEIVED)), (None, None));

    // Repetitions 0 and 1 have both: factors 25 and 100, whose geometric mean is 50.
    let midspan = cell.variant(Variant::Midspan).unwrap();
    let gain = midspan.gain.unwrap();
    assert_eq!(gain.n, 2);
    assert!((gain.mean - 50.0).abs() < 1e-9 && (gain.min - 25.0).abs() < 1e-9);
    let (low, high) = gain.ci95.unwrap();
    assert!(low < 25.0 && high > 100.0, "two runs say little: {low} to {high}");
    assert_eq!(midspan.reported[0].gain, Some(115.5));
    assert_eq!(midspan.stats(&RETRANSMITTED).unwrap().mean, 7.0);
}

#[test]
fn more_than_a_tenth_untrusted_is_not_measurable() {
    let verdict = |bad: u32, good: u32| {
        let bad = (0..bad).map(|run| untrusted("0 %", Variant::None, run));
        let good = (100..100 + good).map(|run| goodput("0 %", Variant::None, run, 1.0));
        let records: Vec<Record> = bad.chain(good).collect();
        let summary = Summary::of(&scenario(), &records).unwrap();
        assert_eq!(summary.cells[1].measurability, Measurability::Measurable);
        (summary.measurability, summary.cells[0].measurability)
    };
    use Measurability::{Measurable, NotMeasurable};
    assert_eq!(verdict(1, 9), (Measurable, Measurable));
    assert_eq!(verdict(2, 9), (NotMeasurable, NotMeasurable));
    // One alone does not condemn a cell of few runs.
    assert_eq!(verdict(1, 8), (NotMeasurable, Measurable));
    assert_eq!(verdict(0, 0), (Measurable, Measurable));
}

#[test]
fn a_scenario_may_have_each_variant_judged_by_its_own_runs() {
    let file = FILE.replacen("repetitions", "verdict = \"variant\"\nrepetitions", 1);
    let scenario = Scenario::parse(&file, "two.toml").unwrap();
    let summary = |records: &[Record]| Summary::of(&scenario, records).unwrap();
    use Measurability::{Measurable, NotMeasurable};

    // Midspan's runs take nothing but Midspan's number.
    let mut records: Vec<Record> = (0..2).map(|n| goodput("1 %", Variant::None, n, 4.0)).collect();
    records.extend([untrusted("1 %", Variant::Midspan, 0), untrusted("1 %", Variant::Midspan, 1)]);
    let one_lost = summary(&records);
    let cell = &one_lost.cells[1];
    let [none, midspan] = [Variant::None, Variant::Midspan].map(|of| cell.variant(of).unwrap());
    assert_eq!((none.measurability, midspan.measurability), (Measurable, NotMeasurable));
    assert_eq!(none.stats(&GOODPUT).unwrap().mean, 4e6);
    assert_eq!((midspan.stats(&GOODPUT), midspan.gain), (None, None));
    assert_eq!((one_lost.measurability, cell.measurability), (Measurable, Measurable));

    // One trusted run is a number, but there is no gain over what cannot be measured.
    records[3] = goodput("1 %", Variant::Midspan, 1, 40.0);
    assert!(summary(&records).cells[1].variant(Variant::Midspan).unwrap().gain.is_some());
    records.push(untrusted("1 %", Variant::None, 2));
    records.push(untrusted("1 %", Variant::None, 3));
    let base_lost = summary(&records);
    let midspan = base_lost.cells[1].variant(Variant::Midspan).unwrap();
    assert_eq!(midspan.stats(&GOODPUT).unwrap().mean, 40e6);
    assert_eq!(midspan.gain, None);

    let all: Vec<Record> = (0..4)
        .map(|n| untrusted("1 %", [Variant::None, Variant::Midspan][n as usize % 2], n / 2))
        .collect();
    assert_eq!(
        (summary(&all).measurability, summary(&all).cells[1].measurability),
        (NotMeasurable, NotMeasurable)
    );
    assert_eq!(summary(&[]).measurability, Measurable);
}

#[test]
fn reasons_are_told_once_and_the_last_record_of_a_run_counts() {
    let failed = |run| {
        let outcome = Outcome::Failed { reason: "no relay".into() };
        record("0 %", Variant::Midspan, run, outcome)
    };
    let records = [failed(0), failed(1), failed(2), goodput("0 %", Variant::Midspan, 2, 5.0)];
    let summary = Summary::of(&scenario(), &records).unwrap();
    let midspan = summary.cells[0].variant(Variant::Midspan).unwrap();
    assert_eq!(midspan.counts, Counts { measured: 1, untrusted: 0, failed: 2 });
    assert_eq!(midspan.failed_reasons, ["no relay"]);
    assert!(midspan.untrusted_reasons.is_empty());
    assert_eq!(midspan.gain, None);
}

fn transfer(received_s: f64) -> TransferRecord {
    TransferRecord {
        bytes: 1000,
        connected_s: 0.001,
        acknowledged_s: 0.002,
        closed_s: 0.003,
        received_s,
    }
}

#[test]
fn transfers_gain_by_the_time_until_the_receiver_has_it_all() {
    let times = |variant, times: [f64; 2]| {
        record("0 %", variant, 0, measured(WorkloadRecord::Transfers(times.map(transfer).to_vec())))
    };
    let records = [times(Variant::None, [0.3, 0.5]), times(Variant::Midspan, [0.1, 0.1])];
    let summary = Summary::of(&scenario(), &records).unwrap();
    let midspan = summary.cells[0].variant(Variant::Midspan).unwrap();
    assert!((midspan.gain.unwrap().mean - 4.0).abs() < 1e-9);
    assert_eq!(midspan.stats(&GOODPUT), None);
    let none = summary.cells[0].variant(Variant::None).unwrap();
    let received = none.stats(&RECEIVED).unwrap();
    assert_eq!((received.n, received.max), (2, 0.5));
    assert_eq!(none.stats(Metric::named("closed").unwrap()).unwrap().mean, 0.003);
}

#[test]
fn as_json_every_metric_has_its_key_measured_or_not() {
    let records =
        [record("0 %", Variant::None, 0, measured(WorkloadRecord::Transfers(vec![transfer(0.3)])))];
    let summary = Summary::of(&scenario(), &records).unwrap();
    let json = serde_json::to_value(&summary.cells[0].variants[0]).unwrap();
    assert_eq!(json["transfers"]["received_s"]["mean"], 0.3);
    for metric in METRICS {
        let (key, in_it) = metric.key.split_once('.').unwrap_or((metric.key, ""));
        let value = json.get(key).unwrap_or_else(|| panic!("no {key}"));
        let measured = matches!(key, "transfers" | "sender_retransmits");
        assert_eq!(value.is_object(), measured, "{key}");
        assert!(!measured || in_it.is_empty() || value.get(in_it).is_some(), "{}", metric.key);
    }
}

#[test]
fn foreign_records_are_refused() {
    let scenario = scenario();
    let good = goodput("0 %", Variant::None, 0, 1.0);
    let refused = |record: Record| Summary::of(&scenario, &[good.clone(), record]).unwrap_err();
    let other = Record { digest: "feed".into(), ..good.clone() };
    assert_eq!(
        refused(other).to_string(),
        format!(
            "record 1 is of scenario `two`, digest feed; wanted `two`, digest {}",
            scenario.digest()
        )
    );
    let simulated = Record { backend: Backend::Sim, ..good.clone() };
    assert_eq!(refused(simulated), Foreign::Backend { index: 1 });
    let elsewhere = goodput("2 %", Variant::None, 0, 1.0);
    assert!(matches!(refused(elsewhere), Foreign::Cell { index: 1, .. }));
}

/// The digest does not hang on the variants, so a file may drop one between runs.
#[test]
fn a_variant_that_the_file_has_dropped_is_still_summarised() {
    let records = [goodput("0 %", Variant::Haproxy, 0, 1.0)];
    let summary = Summary::of(&scenario(), &records).unwrap();
    assert_eq!(summary.cells[0].variants.len(), 3);
    assert_eq!(summary.cells[0].variant(Variant::Haproxy).unwrap().counts.measured, 1);
    assert_eq!(summary.cells[1].variants.len(), 2);
}

/// Two traces, three schemes; the delays are 10 ms but for the first scheme's.
#[test]
fn a_point_is_held_against_the_others_cell_by_cell() {
    let file = r#"
name = "schemes"
title = "Schemes"
variants = ["none"]
[path.access]
down = [{ trace = { file = "$trace" } }]
[path.wide]
[workload]
kind = "bulk"
direction = "download"
time = "2 s"
flows = "$scheme.flows"
[sweep]
trace = ["one", "two", "synthetic"]
scheme = [{ label = "a", flows = 1 }, { label = "b", flows = 2 }, { label = "c", flows = 3 }]
[compare]
axis = "scheme"
point = "b"
except = { trace = ["synthetic"] }
[[compare.reported]]
against = "a"
power = 22.85
"#;
    let scenario = Scenario::parse(file, "schemes.toml").unwrap();
    let run = |trace: &str, scheme: &str, mbps: f64, delay_ms: f64| {
        let delay = DelayRecord {
            mean_us: delay_ms * 1e3,
            p95_us: delay_ms * 2e3,
            ..DelayRecord::default()
        };
        let down = DirectionRecord { delay: Some(delay), ..DirectionRecord::default() };
        let link = LinkRecord {
            link: "access".into(),
            lateness: LatenessRecord::default(),
            unintended_drops: 0,
            up: DirectionRecord::default(),
            down,
        };
        let Outcome::Measured(mut measurement) = measured(bulk(mbps * 1e6)) else { panic!() };
        measurement.links = vec![link];
        Record {
            scenario: scenario.name.clone(),
            digest: scenario.digest(),
            cell: [("trace", trace), ("scheme", scheme)]
                .map(|(axis, label)| (axis.to_owned(), label.to_owned()))
                .into(),
            ..record("", Variant::None, 0, Outcome::Measured(measurement))
        }
    };
    let records = [
        run("one", "a", 10.0, 100.0),
        run("one", "b", 9.0, 10.0),
        run("two", "a", 10.0, 300.0),
        run("two", "b", 9.0, 10.0),
        run("synthetic", "a", 10.0, 1.0),
        run("synthetic", "b", 9.0, 10.0),
    ];
    let summary = Summary::of(&scenario, &records).unwrap();
    let [against_a, against_c] = &summary.comparisons[..] else { panic!("two others") };
    let (goodput, power) =
        (against_a.factors(&GOODPUT).unwrap(), against_a.factors(&POWER).unwrap());
    assert!((goodput.mean - 0.9).abs() < 1e-9 && goodput.n == 2);
    assert!((power.mean - 18.0).abs() < 1e-9 && (power.median - 18.0).abs() < 1e-9, "{power:?}");
    assert!((power.min - 9.0).abs() < 1e-9 && (power.max - 27.0).abs() < 1e-9);
    assert!((against_a.factors(&QUEUEING95).unwrap().mean - 20.0).abs() < 1e-9);
    assert_eq!(against_a.reported.as_ref().unwrap().power, Some(22.85));
    assert_eq!((&*against_c.against, against_c.factors(&POWER)), ("c", None));
    // The excepted ones count where no others were run.
    let summary = Summary::of(&scenario, &records[4..]).unwrap();
    assert!((summary.comparisons[0].factors(&POWER).unwrap().mean - 0.09).abs() < 1e-9);
}
