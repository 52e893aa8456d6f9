//! Simulated runs, on all cores, while Python goes on.

use std::collections::BTreeMap;
use std::path::PathBuf;

use midspan_batch::capture::Captures;
use midspan_batch::made_traces;
use midspan_batch::qlog::Qlogs;
use midspan_batch::simulation::{Externals, Simulation};
use midspan_path::{Trace, Traces};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::control::controls;
use crate::element::elements;
use crate::failure::Failure;
use crate::records::Records;
use crate::scenario::{Parsed, Run};

/// Makes `runs` and hands `keep` the record of each, in their order. `traces` are the bytes of the recorded ones;
/// `elements` and `controls` make what the scenario has from outside, by name. The headers of packets are kept below `captures`,
/// what each sender does below `qlog`.
#[pyfunction]
#[pyo3(signature = (parsed, runs, keep, traces, elements, controls, captures=None, qlog=None))]
#[expect(clippy::too_many_arguments, reason = "Python has them by name")]
pub(crate) fn simulate(
    py: Python<'_>,
    parsed: &Parsed,
    runs: Vec<Run>,
    keep: Py<PyAny>,
    traces: BTreeMap<String, Vec<u8>>,
    elements: BTreeMap<String, Py<PyAny>>,
    controls: BTreeMap<String, Py<PyAny>>,
    captures: Option<PathBuf>,
    qlog: Option<PathBuf>,
) -> PyResult<()> {
    let scenario = &parsed.scenario;
    let runs = runs.iter().map(|run| parsed.run(run)).collect::<PyResult<Vec<_>>>()?;
    let traces = all_traces(parsed, &traces)?;
    let captures = captures.map(|folder| Captures { folder, whole: false });
    let qlogs = qlog.map(|folder| Qlogs { folder });
    if let Some(why) = qlogs.as_ref().and_then(|_| Qlogs::unfit(scenario)) {
        return Err(PyValueError::new_err(format!("qlog: {why}")));
    }
    let failure = Failure::default();
    let externals = Externals {
        elements: self::elements(elements, &failure),
        controls: self::controls(controls, &failure),
    };
    let simulation = Simulation {
        scenario,
        traces: &traces,
        externals: &externals,
        captures: captures.as_ref(),
        qlogs: qlogs.as_ref(),
        within: Some(within),
    };
    py.detach(|| {
        simulation.run_all(&runs, |_, record| {
            Python::attach(|py| {
                // Of a run in which something failed there is no record.
                failure.check()?;
                py.check_signals()?;
                keep.call1(py, (Records::from(vec![record]),))
            })?;
            Ok(())
        })
    })?;
    failure.check()
}

/// A thread that the interpreter knows need not be made known to it for each packet.
fn within(work: &mut (dyn FnMut() + Send)) {
    Python::attach(|py| py.detach(work));
}

fn all_traces(parsed: &Parsed, recorded: &BTreeMap<String, Vec<u8>>) -> PyResult<Traces> {
    let mut traces = made_traces(&parsed.scenario);
    for (name, bytes) in recorded {
        let trace = Trace::parse(bytes)
            .map_err(|error| PyValueError::new_err(format!("trace {name}: {error}")))?;
        traces.insert(name.clone(), trace);
    }
    Ok(traces)
}
