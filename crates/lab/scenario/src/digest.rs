//! Hashes of what determines a result. Stable: they go into files.

use std::collections::BTreeMap;

use midspan_split::{FirstWindows, defaults};
use midspan_units::Span;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::host::{LINUX_RECEIVE_WINDOW, LINUX_RTO_MIN};
use crate::record::Record;
use crate::{CellSpec, Relay, Scenario};

/// See [`Scenario::digest`].
pub(crate) fn of_scenario(scenario: &Scenario) -> String {
    of_cells(scenario, |spec| {
        let named = &mut spec.relay.client_leg.congestion_control;
        named.get_or_insert_with(|| defaults::CLIENT_LEG_CONTROL.to_owned());
        name_hold(&mut spec.relay);
        name_beginning(spec);
    })
}

/// The one under which records of schema 1 may stand: there a client leg that names nothing has the MEC's congestion
/// control.
pub(crate) fn of_schema_1(scenario: &Scenario) -> String {
    of_cells(scenario, |spec| {
        let named = &mut spec.relay.client_leg.congestion_control;
        let of_mec = &spec.hosts.mec.congestion_control;
        *named = match named.take() {
            Some(name) if name == *of_mec => None,
            Some(name) => Some(name),
            None => Some(defaults::CLIENT_LEG_CONTROL.to_owned()),
        };
        name_hold(&mut spec.relay);
        name_beginning(spec);
    })
}

/// A relay that keeps no hole from UEs has the digest of the time when none could.
fn name_hold(relay: &mut Relay) {
    let hold = relay.reordering_hold();
    relay.reordering_hold = (hold > Span::ZERO).then_some(hold);
}

/// Legs with the MEC's initial windows, and a client leg with its least timeout, have the digest of the time when there was
/// no other; so has one with a wider receive window, where nobody uploads.
fn name_beginning(spec: &mut CellSpec) {
    let uploads = spec.workload.uploads();
    let CellSpec { relay, hosts, .. } = spec;
    let (beside, least) = (relay.first_windows(&hosts.mec).beside, relay.rto_min(&hosts.mec));
    if beside == FirstWindows::MOST
        && relay.server_leg.initial_window == Some(defaults::INITIAL_WINDOW)
    {
        relay.server_leg.initial_window = None;
    }
    let window = relay.initial_receive_window();
    let leg = &mut relay.client_leg;
    let is_wide = window > LINUX_RECEIVE_WINDOW;
    let is_tuned = leg.receive_buffer.is_none() && relay.shared.is_none();
    leg.initial_receive_window = (uploads && is_tuned && is_wide).then_some(window);
    leg.initial_window_beside = (beside < FirstWindows::MOST).then_some(beside);
    leg.rto_min = (least != hosts.mec.rto_min.unwrap_or(LINUX_RTO_MIN)).then_some(least);
}

fn of_cells(scenario: &Scenario, complete: impl Fn(&mut CellSpec)) -> String {
    let complete = |spec: &CellSpec| {
        let mut spec = spec.clone();
        complete(&mut spec);
        spec
    };
    let cells: Vec<(&BTreeMap<String, String>, CellSpec)> =
        scenario.cells().iter().map(|cell| (&cell.labels, complete(&cell.spec))).collect();
    // Those without synthetic traces keep the digest that they had before there were any.
    let hash = match scenario.traces.is_empty() {
        true => sha256(&(scenario.seed, cells)),
        false => sha256(&(scenario.seed, cells, &scenario.traces)),
    };
    hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// See [`Scenario::run_seed`]. Labels, not the cell's place in the sweep, so that a point that is
/// added to an axis leaves the others' seeds alone.
pub(crate) fn run_seed(seed: u64, labels: &BTreeMap<String, String>, repetition: u32) -> u64 {
    let hash = sha256(&(seed, labels, repetition));
    hash[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// What came of runs, without what says of which scenario's text they are and when they were made: a hash of each
/// run's cell, variant, repetition, seed and outcome, in the order in which they stand, as 64 hexadecimal digits.
///
/// Simulated runs of one scenario by one program always have the same: [`crate::record`]s that can be made again need
/// not be kept.
pub fn of_results(records: &[Record]) -> String {
    let mut hash = Sha256::new();
    for record in records {
        let Record { cell, variant, repetition, seed, outcome, .. } = record;
        let result = (cell, variant, repetition, seed, outcome);
        let mut line = serde_json::to_vec(&result).expect("a record has a JSON form");
        line.push(b'\n');
        hash.update(line);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Over the JSON text, in which every quantity stands in its one printed form.
fn sha256(value: &impl Serialize) -> [u8; 32] {
    let json = serde_json::to_vec(value).expect("plain data with text keys has a JSON form");
    Sha256::digest(json).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Backend, Outcome, SCHEMA, Variant};

    /// What uploads begin with is told apart, but not where nobody uploads; and records from before there was a choice
    /// are of Linux's.
    #[test]
    fn windows_of_uploads_are_told() {
        let of = |direction: &str, leg: &str| {
            let link = "[{ rate = { rate = \"10 Mbit/s\", queue = { bytes = \"64 KB\" } } }]";
            let text = format!(
                "name = \"a\"\ntitle = \"b\"\nseed = 1\nrepetitions = 1\nvariants = [\"midspan\"]\n\
                 [path]\naccess = {{ up = {link}, down = {link} }}\nwide = {{ up = {link}, down = {link} }}\n\
                 [relay]\nclient_leg = {{ {leg} }}\n\
                 [workload]\nkind = \"bulk\"\ndirection = \"{direction}\"\ntime = \"1 s\"\n"
            );
            Scenario::parse(&text, "a.toml").unwrap()
        };
        let linux = of("upload", "initial_receive_window = \"64 KiB\"").digest();
        let own = of("upload", "");
        assert_ne!(own.digest(), linux);
        assert_eq!(own.digest(), of("upload", "initial_receive_window = \"1 MiB\"").digest());
        assert_eq!(own.as_of(4).digest(), linux);
        let down = of("download", "initial_receive_window = \"64 KiB\"").digest();
        assert_eq!(of("download", "").digest(), down);
    }

    #[test]
    fn results_are_told_by_what_came_out_alone() {
        let record = Record {
            schema: SCHEMA,
            scenario: "some".into(),
            digest: "0123456789abcdef".into(),
            backend: Backend::Sim,
            cell: BTreeMap::from([("loss".into(), "1 %".into())]),
            variant: Variant::None,
            repetition: 0,
            seed: 7,
            started_unix_ms: 0,
            outcome: Outcome::Failed { reason: "test".into() },
        };
        let of = |record: &Record| of_results(std::slice::from_ref(record));
        let respelt = Record { digest: "fedcba9876543210".into(), ..record.clone() };
        assert_eq!(of(&record), of(&respelt));
        assert_eq!(of(&record).len(), 64);
        let others = [
            Record { seed: 8, ..record.clone() },
            Record { repetition: 1, ..record.clone() },
            Record { variant: Variant::Midspan, ..record.clone() },
            Record { cell: BTreeMap::new(), ..record.clone() },
            Record { outcome: Outcome::Failed { reason: "else".into() }, ..record.clone() },
        ];
        for other in &others {
            assert_ne!(of(&record), of(other), "{other:?}");
        }
        let both = [record.clone(), others[0].clone()];
        let turned = [others[0].clone(), record];
        assert_ne!(of_results(&both), of_results(&turned));
    }
}
