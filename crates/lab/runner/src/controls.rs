//! Congestion controls of ours that a scenario names and the kernel does not have: held while it runs.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};
use midspan_assist::agent::FeedbackMap;
use midspan_ccload::{Algorithm, Controls, Error, Options, PREFIX, RegisteredControl};
use midspan_scenario::Scenario;

/// Controls that are registered, and where they have feedback from. They go with this, or with this
/// process, however that ends.
#[derive(Debug)]
pub(crate) struct HeldControls {
    _held: Vec<RegisteredControl>,
    /// None if no cell of the scenario has feedback.
    pub(crate) feedback: Option<FeedbackMap>,
}

/// Has the ones registered that the scenario names. One that is there already is taken as it is, and stays
/// for as long as this wants it.
///
/// # Errors
/// When there is none of such a name, or the kernel or the user's rights do not suffice.
pub(crate) fn hold(scenario: &Scenario) -> Result<HeldControls> {
    let controls = Controls::default();
    let mut status = controls.status();
    let names = ours(scenario);
    status.retain(|status| names.contains(&status.name) && status.registered);
    let with_feedback = || status.iter().filter(|status| takes_feedback(&status.name));
    if let Some(status) = with_feedback().find(|status| !status.loaded) {
        bail!(
            "`{}` is another program's, with feedback of its own: wait until it has ended",
            status.name
        );
    }
    let assisted = scenario.cells().iter().any(|cell| cell.spec.assisted().is_some());
    let feedback = if !assisted {
        None
    } else if with_feedback().next().is_some() {
        // It has the machine's map, so the others take that too.
        let folder = controls.feedback();
        Some(FeedbackMap::pinned(folder.parent().unwrap_or(&folder)))
    } else {
        Some(FeedbackMap::private())
    };
    let feedback = feedback.transpose().context("no map for feedback can be had")?;
    let mut held = Vec::new();
    for name in &names {
        let options = Options::default();
        let algorithm = Algorithm::named(&name[PREFIX.len()..]).with_context(|| wanted(name))?;
        let registered = status.iter().any(|status| status.name == *name);
        let control = match feedback.as_ref().filter(|_| takes_feedback(name) && !registered) {
            Some(map) => controls.hold_with(algorithm, &options, map.as_fd()),
            None => controls.hold(algorithm, &options),
        };
        match control {
            Ok(control) => held.push(control),
            // Somebody has it who cannot be joined: then it is for as long as that one wants.
            Err(Error::NameTaken { .. } | Error::NotPermitted) if registered => {}
            Err(error) => return Err(error).with_context(|| wanted(name)),
        }
    }
    Ok(HeldControls { _held: held, feedback })
}

fn wanted(name: &str) -> String {
    format!("the scenario names the congestion control `{name}`")
}

fn takes_feedback(name: &str) -> bool {
    Algorithm::named(&name[PREFIX.len()..]).is_ok_and(Algorithm::takes_feedback)
}

/// The names in the scenario that are ours.
fn ours(scenario: &Scenario) -> BTreeSet<String> {
    scenario.controls().into_iter().filter(|name| name.starts_with(PREFIX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scenario_names_is_found() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scenarios/reference/family.toml");
        let text = std::fs::read_to_string(file).unwrap();
        let names = ours(&Scenario::parse(&text, file).unwrap());
        assert!(names.contains("ms_cubic") && names.contains("ms_westwood"), "{names:?}");
        assert!(!names.contains("cubic"), "{names:?}");
        for name in names {
            Algorithm::named(&name[PREFIX.len()..]).unwrap();
        }
    }
}
