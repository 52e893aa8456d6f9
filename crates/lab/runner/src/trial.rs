//! A moment of a scenario before it is run in earnest: whether this machine holds its links punctually.

use std::path::Path;

use midspan_emu::Backend;
use midspan_path::Traces;
use midspan_scenario::record::{Outcome, Variant};
use midspan_scenario::{Scenario, Workload};
use midspan_units::Span;

use crate::controls;
use crate::run::Runner;

/// How long flows send: slow start over 50 ms fills 1 Gbit/s in half of it.
const TIME: Span = Span::from_millis(1000);
/// What of it goes before links are judged.
const WARMUP: Span = Span::from_millis(500);

/// Runs the first cell of `scenario` through the relay, for a moment if its workload is bulk. Where the relay splits,
/// the shortest round trips are, and the strictest bounds on how late packets may leave. `midspan` is the program
/// whose `relay` command it is.
pub fn run(scenario: &Scenario, traces: &Traces, midspan: &Path) -> Outcome {
    let controls = match controls::hold(scenario) {
        Ok(controls) => controls,
        Err(error) => return Outcome::Failed { reason: format!("{error:#}") },
    };
    let runner = Runner {
        scenario,
        traces,
        midspan: midspan.to_owned(),
        backend: Backend::available(),
        feedback: controls.feedback.as_ref(),
    };
    let mut cell = scenario.cells()[0].clone();
    if let Workload::Bulk(bulk) = &mut cell.spec.workload {
        (bulk.time, bulk.warmup) = (TIME, WARMUP);
    }
    runner.run(&cell, Variant::Midspan, 0).outcome
}
