//! Congestion controls of ours that a scenario names and the kernel does not have: held while it runs.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use midspan_ccload::{Algorithm, Controls, Held, Options, PREFIX};
use midspan_scenario::{Cell, Scenario};

/// Registers them. They go with the answer, or with this process, however that ends. One that is
/// loaded already is left as it is.
///
/// # Errors
/// When there is none of such a name, or the kernel or the user's rights do not suffice.
pub(crate) fn hold(scenario: &Scenario) -> Result<Vec<Held>> {
    let controls = Controls::default();
    let status = controls.status();
    let mut held = Vec::new();
    for name in ours(scenario) {
        if status.iter().any(|status| status.name == name && status.registered) {
            continue;
        }
        let control = Algorithm::named(&name[PREFIX.len()..])
            .and_then(|algorithm| controls.hold(algorithm, &Options::default()))
            .with_context(|| format!("the scenario names the congestion control `{name}`"))?;
        held.push(control);
    }
    Ok(held)
}

/// The names in the scenario that are ours.
fn ours(scenario: &Scenario) -> BTreeSet<String> {
    let names = |cell: &Cell| {
        let (hosts, relay) = (&cell.spec.hosts, &cell.spec.relay);
        let hosts = [&hosts.ue, &hosts.mec, &hosts.server]
            .map(|host| Some(host.congestion_control.clone()));
        let legs = [&relay.client_leg, &relay.server_leg].map(|leg| leg.congestion_control.clone());
        hosts.into_iter().chain(legs).flatten().collect::<Vec<_>>()
    };
    scenario.cells().iter().flat_map(names).filter(|name| name.starts_with(PREFIX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scenario_names_is_found() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/reference/family.toml");
        let text = std::fs::read_to_string(file).unwrap();
        let names = ours(&Scenario::parse(&text, file).unwrap());
        assert!(names.contains("ms_cubic") && names.contains("ms_westwood"), "{names:?}");
        assert!(!names.contains("cubic"), "{names:?}");
        for name in names {
            Algorithm::named(&name[PREFIX.len()..]).unwrap();
        }
    }
}
