//! What the demo shows on this machine: at which rate live, or why simulated. Pure.

use midspan_scenario::metric::GOODPUT;
use midspan_scenario::record::{Outcome, Variant};
use midspan_scenario::summary::Summary;

/// What the demo runs: kept as a file like every other scenario.
const SCENARIO: &str = include_str!("../../../../../scenarios/demo.toml");

/// The links of the demo's path, as its scenario's file spells them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bottleneck {
    /// Of both links in both directions.
    pub(super) rate: &'static str,
    /// A bandwidth-delay product at 50 ms.
    queue: &'static str,
}

/// The fastest first, which is the file's own.
pub(super) const BOTTLENECKS: [Bottleneck; 3] = [
    Bottleneck { rate: "1 Gbit/s", queue: "6250 KB" },
    Bottleneck { rate: "200 Mbit/s", queue: "1250 KB" },
    Bottleneck { rate: "50 Mbit/s", queue: "312500 B" },
];

impl Bottleneck {
    /// The demo's scenario over these links.
    pub(super) fn scenario(&self) -> String {
        let [own, ..] = &BOTTLENECKS;
        SCENARIO.replace(own.rate, self.rate).replace(own.queue, self.queue)
    }
}

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Live, over these links.
    Live(&'static Bottleneck),
    /// Simulated.
    Simulated {
        /// Why not live.
        because: String,
    },
}

/// Takes the fastest links whose trial gave a number. A machine that is late at one rate may be punctual at a lower
/// one; a trial that fails would fail at any.
pub(super) fn choose(mut trial: impl FnMut(&Bottleneck) -> Outcome) -> Choice {
    let mut late = String::new();
    for bottleneck in &BOTTLENECKS {
        match trial(bottleneck) {
            Outcome::Measured(_) => return Choice::Live(bottleneck),
            Outcome::Untrusted { reason, .. } => late = format!("{}: {reason}", bottleneck.rate),
            Outcome::Failed { reason } => return Choice::Simulated { because: reason },
        }
    }
    Choice::Simulated {
        because: format!("this machine holds none of {} punctually ({late})", rates()),
    }
}

/// `1 Gbit/s, 200 Mbit/s and 50 Mbit/s`.
pub(super) fn rates() -> String {
    let [others @ .., last] = BOTTLENECKS.map(|bottleneck| bottleneck.rate);
    format!("{} and {last}", others.join(", "))
}

/// What live runs gave no number for, of what a simulation gives one for: `midspan (upload)`.
pub(super) fn missing(live: &Summary) -> Vec<String> {
    let mut missing = Vec::new();
    for cell in &live.cells {
        let labels: Vec<&str> = cell.labels.values().map(String::as_str).collect();
        for variant in &cell.variants {
            if variant.variant != Variant::Haproxy && variant.stats(&GOODPUT).is_none() {
                missing.push(format!("{} ({})", variant.variant, labels.join(", ")));
            }
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_path::ElementSpec;
    use midspan_scenario::Scenario;
    use midspan_scenario::record::{
        Backend, BulkRecord, Measurement, Record, SCHEMA, WorkloadRecord,
    };

    fn untrusted() -> Outcome {
        Outcome::Untrusted { reason: "late".into(), links: Vec::new() }
    }

    fn measured() -> Outcome {
        Outcome::Measured(Measurement {
            measured_s: 1.0,
            sender_retransmits: 0,
            workload: WorkloadRecord::Bulk(BulkRecord {
                goodput_bps: 1e6,
                acknowledged_bps: 1e6,
                flows_bps: vec![1e6],
                ..BulkRecord::default()
            }),
            legs: Vec::new(),
            links: Vec::new(),
            feedback: None,
        })
    }

    #[test]
    fn every_rate_has_a_queue_of_the_same_time() {
        for bottleneck in &BOTTLENECKS {
            let scenario = Scenario::parse(&bottleneck.scenario(), "demo.toml").unwrap();
            assert!(scenario.title.contains(bottleneck.rate), "{}", scenario.title);
            for cell in scenario.cells() {
                let path = &cell.spec.path;
                let directions =
                    [&path.access.up, &path.access.down, &path.wide.up, &path.wide.down];
                for elements in directions {
                    let ElementSpec::Rate(rate) = &elements[0] else { panic!("{elements:?}") };
                    assert_eq!(rate.rate, bottleneck.rate.parse().unwrap());
                    let bits = rate.rate.as_bps() as f64 * 0.05;
                    let queue: midspan_units::ByteSize = bottleneck.queue.parse().unwrap();
                    assert_eq!(queue.as_bytes() as f64 * 8.0, bits);
                    assert!(format!("{:?}", rate.queue).contains(&format!("{queue:?}")));
                }
            }
        }
    }

    #[test]
    fn the_fastest_rate_that_is_held_is_taken() {
        let held = |rates: &[&str]| {
            choose(|one| if rates.contains(&one.rate) { measured() } else { untrusted() })
        };
        let [fast, medium, slow] = &BOTTLENECKS;
        assert_eq!(held(&[fast.rate, medium.rate, slow.rate]), Choice::Live(fast));
        assert_eq!(held(&[medium.rate, slow.rate]), Choice::Live(medium));
        assert_eq!(held(&[slow.rate]), Choice::Live(slow));
        let because = "this machine holds none of 1 Gbit/s, 200 Mbit/s and 50 Mbit/s punctually (50 Mbit/s: late)";
        assert_eq!(held(&[]), Choice::Simulated { because: because.into() });
    }

    #[test]
    fn what_fails_is_not_tried_at_other_rates() {
        let mut trials = 0;
        let choice = choose(|_| {
            trials += 1;
            Outcome::Failed { reason: "no namespaces".into() }
        });
        assert_eq!(choice, Choice::Simulated { because: "no namespaces".into() });
        assert_eq!(trials, 1);
    }

    #[test]
    fn a_simulation_fills_in_what_it_can() {
        let scenario = Scenario::parse(SCENARIO, "demo.toml").unwrap();
        let missing_of = |lost: &[(&str, Variant)]| {
            let mut records = Vec::new();
            for cell in scenario.cells() {
                for variant in &cell.variants {
                    let lost = lost.contains(&(&cell.labels["direction"], *variant));
                    records.extend((0..scenario.repetitions).map(|repetition| Record {
                        schema: SCHEMA,
                        scenario: scenario.name.clone(),
                        digest: scenario.digest(),
                        backend: Backend::Live,
                        cell: cell.labels.clone(),
                        variant: *variant,
                        repetition,
                        seed: 0,
                        started_unix_ms: 0,
                        outcome: if lost { untrusted() } else { measured() },
                    }));
                }
            }
            missing(&Summary::of(&scenario, &records).unwrap())
        };
        assert!(missing_of(&[]).is_empty());
        assert_eq!(missing_of(&[("upload", Variant::Midspan)]), ["midspan (upload)"]);
        // HAProxy is not simulated.
        assert!(missing_of(&[("download", Variant::Haproxy)]).is_empty());
    }
}
