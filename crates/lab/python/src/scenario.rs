//! A scenario as its text says it.

use std::collections::BTreeMap;

use midspan_batch::recorded_traces;
use midspan_batch::sweep::{self, PlannedRun, Selection};
use midspan_scenario::record::Variant;
use midspan_scenario::{Error, Scenario};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::records::Records;

/// A run: the cell's number, the variant, the repetition.
pub(crate) type Run = (usize, String, u32);

/// A scenario that was read, or the short version of one.
#[pyclass(frozen, module = "midspan._midspan")]
pub(crate) struct Parsed {
    pub(crate) scenario: Scenario,
    pub(crate) text: String,
}

#[pymethods]
impl Parsed {
    #[new]
    #[pyo3(signature = (text, file, short = false))]
    fn new(py: Python<'_>, text: String, file: &str, short: bool) -> PyResult<Parsed> {
        let scenario = Scenario::parse(&text, file).map_err(|error| refused(py, &error, &text))?;
        let scenario = match (short, scenario.short()) {
            (false, _) => scenario,
            (true, Some(short)) => short.clone(),
            (true, None) => {
                return Err(PyValueError::new_err(format!("{file} has no [short] version")));
            }
        };
        Ok(Parsed { scenario, text })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.scenario.name
    }

    #[getter]
    fn title(&self) -> &str {
        &self.scenario.title
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.scenario.seed
    }

    #[getter]
    fn repetitions(&self) -> u32 {
        self.scenario.repetitions
    }

    #[getter]
    fn variants(&self) -> Vec<String> {
        self.scenario.variants.iter().map(Variant::to_string).collect()
    }

    #[getter]
    fn axes(&self) -> Vec<(&str, Vec<String>)> {
        self.scenario.axes.iter().map(|axis| (&*axis.name, axis.points.clone())).collect()
    }

    #[getter]
    fn cells(&self) -> Vec<BTreeMap<String, String>> {
        self.scenario.cells().iter().map(|cell| cell.labels.clone()).collect()
    }

    #[getter]
    fn digest(&self) -> String {
        self.scenario.digest()
    }

    #[getter]
    fn has_short(&self) -> bool {
        self.scenario.short().is_some()
    }

    /// The files of the traces that must be given to simulate it.
    #[getter]
    fn traces(&self) -> Vec<String> {
        recorded_traces(&self.scenario).map(str::to_owned).collect()
    }

    /// The simulated runs that are asked for and not done, in the order to make them.
    #[pyo3(signature = (variants, only, done))]
    fn plan(
        &self,
        variants: Vec<String>,
        only: Vec<(String, String)>,
        done: &Records,
    ) -> PyResult<Vec<Run>> {
        let variants = variants.iter().map(|name| variant(name)).collect::<PyResult<_>>()?;
        let mut selection = Selection { variants, labels: only, unavailable: Vec::new() };
        selection.check(&self.scenario).map_err(PyValueError::new_err)?;
        selection.unavailable.push(Variant::Haproxy);
        let runs = sweep::plan(&self.scenario, &selection, &done.records());
        Ok(runs.iter().map(|run| self.number(run)).collect())
    }
}

impl Parsed {
    /// The run of these numbers.
    pub(crate) fn run(&self, (cell, name, repetition): &Run) -> PyResult<PlannedRun<'_>> {
        let none = || PyValueError::new_err(format!("the scenario has no cell {cell}"));
        Ok(PlannedRun {
            cell: self.scenario.cells().get(*cell).ok_or_else(none)?,
            variant: variant(name)?,
            repetition: *repetition,
        })
    }

    fn number(&self, run: &PlannedRun<'_>) -> Run {
        let cell = self.scenario.cells().iter().position(|cell| cell.labels == run.cell.labels);
        (cell.unwrap_or_default(), run.variant.to_string(), run.repetition)
    }
}

pub(crate) fn variant(name: &str) -> PyResult<Variant> {
    [Variant::None, Variant::Midspan, Variant::Haproxy]
        .into_iter()
        .find(|variant| variant.to_string() == name)
        .ok_or_else(|| {
            let what = format!("no variant `{name}`: it is none, midspan or haproxy");
            PyValueError::new_err(what)
        })
}

/// `midspan.ScenarioError`, with the line that it speaks of: of a scenario made of objects nobody has seen the text.
fn refused(py: Python<'_>, error: &Error, text: &str) -> PyErr {
    let line = text.lines().nth(error.line.saturating_sub(1)).unwrap_or_default();
    let of_class = || {
        let class = py.import("midspan._errors")?.getattr("ScenarioError")?;
        class.call1((&error.file, error.line, &error.what, line.trim()))
    };
    of_class().map_or_else(|failed| failed, PyErr::from_value)
}
