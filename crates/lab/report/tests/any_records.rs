//! Whatever the runs gave, there is a report, and it holds no number that is none.

mod fixture;

use midspan_report::{Report, Terminal};
use midspan_scenario::record::{Measurement, Outcome, Record, WorkloadRecord};
use proptest::prelude::*;

/// Numbers as they may come from a broken clock, a dead link or a full disk.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(-1.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::MIN_POSITIVE),
        Just(f64::MAX),
        1e-9..1e12f64,
    ]
}

#[derive(Debug, Clone)]
enum Change {
    Keep,
    Drop,
    Fail(String),
    Distrust,
    Number(f64),
    Empty,
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => Just(Change::Keep),
        1 => Just(Change::Drop),
        1 => "[^Ni]{0,40}".prop_map(Change::Fail),
        1 => Just(Change::Distrust),
        3 => any_number().prop_map(Change::Number),
        1 => Just(Change::Empty),
    ]
}

fn changed(record: &Record, change: &Change) -> Option<Record> {
    let mut record = record.clone();
    let measured = |change: &dyn Fn(&mut Measurement), record: &mut Record| {
        if let Outcome::Measured(measurement) = &mut record.outcome {
            change(measurement);
        }
    };
    match change {
        Change::Keep => {}
        Change::Drop => return None,
        Change::Fail(reason) => record.outcome = Outcome::Failed { reason: reason.clone() },
        Change::Distrust => record.outcome = fixture::untrusted(),
        Change::Number(number) => measured(
            &|run| {
                run.measured_s = *number;
                match &mut run.workload {
                    WorkloadRecord::Bulk(bulk) => {
                        bulk.goodput_bps = *number;
                        bulk.acknowledged_bps = *number;
                    }
                    WorkloadRecord::Transfers(transfers)
                    | WorkloadRecord::Pages { transfers, .. }
                    | WorkloadRecord::Videos { transfers, .. } => {
                        for transfer in transfers {
                            transfer.received_s = *number;
                            transfer.acknowledged_s = *number;
                        }
                    }
                }
                for link in &mut run.links {
                    link.lateness.p99_us = *number;
                }
                for leg in &mut run.legs {
                    leg.delivery_rate_bps = *number;
                }
            },
            &mut record,
        ),
        Change::Empty => measured(
            &|run| {
                run.legs.clear();
                run.links.clear();
                match &mut run.workload {
                    WorkloadRecord::Bulk(bulk) => bulk.flows_bps.clear(),
                    WorkloadRecord::Transfers(transfers)
                    | WorkloadRecord::Pages { transfers, .. }
                    | WorkloadRecord::Videos { transfers, .. } => transfers.clear(),
                }
            },
            &mut record,
        ),
    }
    Some(record)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn there_is_always_a_report(
        which in 0..fixture::ALL.len(),
        changes in proptest::collection::vec(any_change(), 1..40),
    ) {
        let scenario = fixture::scenario(fixture::ALL[which]);
        let records: Vec<Record> = fixture::records(&scenario)
            .iter()
            .zip(changes.iter().cycle())
            .filter_map(|(record, change)| changed(record, change))
            .collect();
        let report = Report::new(&scenario, &records).unwrap();
        let page = report.html();
        let text = report.text(Terminal::PLAIN);
        for none in ["NaN", "\"inf", ">inf", "-inf"] {
            prop_assert!(!page.contains(none), "{none} on the page");
        }
        prop_assert!(text.ends_with(".\n"), "{text}");
    }
}
