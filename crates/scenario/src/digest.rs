//! Hashes of what determines a result. Stable: they go into files.

use std::collections::BTreeMap;

use midspan_split::defaults;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{CellSpec, Scenario};

/// See [`Scenario::digest`].
pub(crate) fn of_scenario(scenario: &Scenario) -> String {
    of_cells(scenario, |spec| {
        let named = &mut spec.relay.client_leg.congestion_control;
        named.get_or_insert_with(|| defaults::CLIENT_LEG_CONTROL.to_owned());
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
    })
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

/// Over the JSON text, in which every quantity stands in its one printed form.
fn sha256(value: &impl Serialize) -> [u8; 32] {
    let json = serde_json::to_vec(value).expect("plain data with text keys has a JSON form");
    Sha256::digest(json).into()
}
