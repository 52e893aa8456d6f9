use std::path::Path;

use anyhow::{Context, Result};
use midspan_path::{Trace, Traces};
use midspan_scenario::Scenario;

/// Every trace that the scenario's paths name: made, if the scenario says how, else read from
/// `directory`.
///
/// # Errors
/// The first one that cannot be read or is no trace.
pub fn read_traces(scenario: &Scenario, directory: &Path) -> Result<Traces> {
    let mut traces = made_traces(scenario);
    for name in recorded_traces(scenario) {
        let file = directory.join(name);
        let bytes = std::fs::read(&file)
            .with_context(|| format!("cannot read trace {}", file.display()))?;
        let trace = Trace::parse(&bytes).with_context(|| format!("trace {}", file.display()))?;
        traces.insert(name.to_owned(), trace);
    }
    Ok(traces)
}

/// Those that the scenario itself says how to make, and that its paths name.
pub fn made_traces(scenario: &Scenario) -> Traces {
    let made = |name: &str| Some((name.to_owned(), scenario.traces.get(name)?.generate()));
    named(scenario).into_iter().filter_map(made).collect()
}

/// The files of the others.
pub fn recorded_traces(scenario: &Scenario) -> impl Iterator<Item = &str> {
    named(scenario).into_iter().filter(|name| !scenario.traces.contains_key(*name))
}

/// Each once, in the order of their first use.
fn named(scenario: &Scenario) -> Vec<&str> {
    let mut names = Vec::new();
    for cell in scenario.cells() {
        let path = &cell.spec.path;
        for name in path.access.traces().chain(path.wide.traces()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}
