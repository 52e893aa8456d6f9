//! Records, one a run.

use std::sync::{Mutex, MutexGuard, PoisonError};

use midspan_report::{Report, Terminal};
use midspan_scenario::digest_of_results;
use midspan_scenario::record::{self, Record};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::scenario::Parsed;
use crate::table::Table;

/// Records, in the order in which they were made.
#[pyclass(frozen, module = "midspan._midspan")]
#[derive(Default)]
pub(crate) struct Records(Mutex<Vec<Record>>);

#[pymethods]
impl Records {
    #[new]
    fn new() -> Records {
        Records::default()
    }

    /// Reads records, one JSON object a line; `file` only names the text in errors.
    #[staticmethod]
    #[pyo3(signature = (text, file = "records"))]
    fn from_jsonl(text: &str, file: &str) -> PyResult<Records> {
        let records = record::parse_lines(text, file);
        records.map(Records::from).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn __len__(&self) -> usize {
        self.records().len()
    }

    /// Takes over those of `others`.
    fn extend(&self, others: &Records) {
        // Not both locks at once: they may be the same one.
        let others = others.records().clone();
        self.records().extend(others);
    }

    /// One JSON object a line, as in `records.jsonl`.
    fn jsonl(&self) -> PyResult<String> {
        let mut text = String::new();
        for record in &*self.records() {
            let line = serde_json::to_string(record);
            text.push_str(&line.map_err(|error| PyValueError::new_err(error.to_string()))?);
            text.push('\n');
        }
        Ok(text)
    }

    /// What stands for them in `bench/runs`.
    fn digest(&self) -> String {
        digest_of_results(&self.records())
    }

    /// One of the tables that docs/howto/python.md describes.
    fn table(&self, name: &str) -> PyResult<Table> {
        match midspan_tables::named(name, &self.records()) {
            Some(table) => Table::of(&table),
            None => {
                let known = Records::tables().join(", ");
                Err(PyValueError::new_err(format!("no table `{name}`: there are {known}")))
            }
        }
    }

    /// The names of the tables.
    #[staticmethod]
    fn tables() -> Vec<&'static str> {
        midspan_tables::names().collect()
    }

    /// The table of `midspan lab report`.
    fn summary(&self, of: &Parsed) -> PyResult<String> {
        self.report(of, |report| report.text(Terminal::PLAIN))
    }

    /// The page of `midspan lab report`.
    fn html(&self, of: &Parsed) -> PyResult<String> {
        self.report(of, |report| report.html())
    }
}

impl Records {
    pub(crate) fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, of: &Parsed, draw: impl Fn(&Report<'_>) -> String) -> PyResult<String> {
        let records = self.records();
        let report = Report::new(&of.scenario, &records)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(draw(&report))
    }
}

impl From<Vec<Record>> for Records {
    fn from(records: Vec<Record>) -> Records {
        Records(Mutex::new(records))
    }
}
