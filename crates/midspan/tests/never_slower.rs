//! Where splitting is slower, a relay that decides by what it has learned is not: the worst cells of the scenarios
//! `radio/never-slower-*`, simulated, and what becomes of their transfers under the learner that the relay runs.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use midspan_gain::{Estimator, Id, Learner, Place, Settings, Transfer, Unit};
use midspan_lab::results::Results;
use midspan_scenario::record::Variant;

const SLOT: Duration = Duration::from_secs(600);
const SUBSCRIBERS: u128 = 40;
/// Slots until it has learned, and those over which is looked at what it does then.
const LEARNING: u32 = 400;
const AFTER: u32 = 100;

/// The scenario with these cells alone: one transfer at a time, by packets.
fn cells(scenario: &str, impairments: &[&str], repetitions: i64) -> toml::Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/radio").join(scenario);
    let mut table: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
    table.insert("repetitions".into(), repetitions.into());
    for other in ["skip", "short"] {
        table.remove(other);
    }
    let sweep = table["sweep"].as_table_mut().unwrap();
    sweep["flows"] = vec![1].into();
    sweep["unit"] = vec!["packet"].into();
    let wanted = |point: &toml::Value| impairments.contains(&point["label"].as_str().unwrap());
    sweep["impairment"].as_array_mut().unwrap().retain(wanted);
    assert_eq!(sweep["impairment"].as_array().unwrap().len(), impairments.len());
    table
}

/// How long transfers took without a relay and with it, by cell.
fn times(scenario: &toml::Table) -> BTreeMap<String, [Vec<f64>; 2]> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cells.toml");
    fs::write(&file, toml::to_string(scenario).unwrap()).unwrap();
    let mut command = common::midspan();
    command.args(["lab", "run", "--backend", "sim", "--out"]).arg(folder.path()).arg(&file);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut runs = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let results = Results::read(&runs.find(|path| path.is_dir()).unwrap()).unwrap();
    let mut times = BTreeMap::<String, [Vec<f64>; 2]>::new();
    for record in results.records() {
        let run = record.measurement().unwrap_or_else(|| panic!("{record:?}"));
        let name: Vec<String> =
            record.cell.iter().map(|(axis, label)| format!("{axis} {label}")).collect();
        let arm = usize::from(record.variant != Variant::None);
        let of_cell = times.entry(name.join(", ")).or_default();
        of_cell[arm].extend(run.transfers().iter().map(|transfer| transfer.received_s));
    }
    times
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
}

/// How fast transfers are on average under the learner, without any relay as 1: before anything is learned, and after.
fn speeds(times: &[Vec<f64>; 2], seed: u64) -> [f64; 2] {
    let place = Place { group: Id(1), service: Id(2), prefix: Id(3) };
    let mut random = Random(seed);
    let mut learner = Learner::new(Estimator::new(Settings::default()).unwrap(), SLOT);
    let mean = |speeds: &mut dyn Iterator<Item = f64>| {
        let (sum, count) =
            speeds.fold((0.0, 0.0), |(sum, count), speed| (sum + speed, count + 1.0));
        sum / count
    };
    let alone = mean(&mut times[0].iter().map(|time| 1.0 / time));
    let mut seen = [Vec::new(), Vec::new()];
    for number in 0..LEARNING + AFTER {
        let decision = learner.estimator().decision_within(Unit::Place(place));
        for subscriber in 0..SUBSCRIBERS {
            let arm = decision.arm(random.next());
            let of_arm = &times[usize::from(arm == midspan_gain::Arm::Split)];
            let time = of_arm[random.next() as usize % of_arm.len()];
            if number == 0 {
                seen[0].push(1.0 / time);
            } else if number >= LEARNING {
                seen[1].push(1.0 / time);
            }
            let slot = SLOT * number;
            learner.ended(&Transfer {
                place,
                subscriber: Id(subscriber),
                key: subscriber,
                arm,
                probability: decision.probability(arm),
                slot,
                start: slot + SLOT / 2,
                bytes: 25_000_000,
                completion: Some(Duration::from_secs_f64(time)),
            });
        }
        learner.close(number.into());
    }
    seen.map(|speeds| mean(&mut speeds.into_iter()) / alone)
}

#[test]
fn what_was_learned_makes_no_cell_slower_than_no_relay() {
    let all = std::env::var_os("MIDSPAN_TEST_ALL").is_some();
    let repetitions = if all { 20 } else { 4 };
    let worst: &[&str] = &["0.5 % late 20 ms", "1 % late 10 ms"];
    let more: &[&str] = &["0.5 % late 10 ms", "0.5 % lost"];
    let impairments = if all { [worst, more].concat() } else { worst.to_vec() };
    let mut least = [f64::INFINITY; 2];
    for scenario in ["never-slower-downloads.toml", "never-slower-uploads.toml"] {
        let times = times(&cells(scenario, &impairments, repetitions));
        assert!(times.len() >= 6 * impairments.len());
        for (cell, times) in times {
            let mean = |times: &[f64]| {
                times.iter().map(|time| 1.0 / time).sum::<f64>() / times.len() as f64
            };
            let split = mean(&times[1]) / mean(&times[0]);
            let [before, after] = speeds(&times, 7);
            println!(
                "{split:5.2} if split, {before:5.2} before, {after:5.2} after learning: {scenario} {cell}"
            );
            least = [least[0].min(before), least[1].min(after)];
            // Chance among the transfers that are looked at has a say as well.
            assert!(after >= 0.97, "{cell}: {after}");
            assert!(split < 1.2 || after >= 0.9 * split, "{cell}: {after} of {split}");
        }
    }
    println!("worst cell: {:.2} before, {:.2} after learning", least[0], least[1]);
}
