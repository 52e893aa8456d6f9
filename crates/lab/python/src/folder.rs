//! The folder that a sweep leaves, as `midspan lab run` makes it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use midspan_batch::results::{Results, Sweep};
use midspan_batch::sweep::Selection;
use midspan_scenario::record::{Backend, Variant};
use pyo3::prelude::*;

use crate::records::Records;
use crate::scenario::{Parsed, variant};

/// A results folder, open to be written to by nobody else.
#[pyclass(frozen, module = "midspan._midspan")]
pub(crate) struct Folder(Mutex<Results>);

#[pymethods]
impl Folder {
    /// The folder below `base` in which this sweep was begun and cut, or a new one.
    #[staticmethod]
    #[pyo3(signature = (base, parsed, variants, only, fresh, command))]
    fn open(
        base: PathBuf,
        parsed: &Parsed,
        variants: Vec<String>,
        only: Vec<(String, String)>,
        fresh: bool,
        command: &str,
    ) -> PyResult<Folder> {
        let variants = variants.iter().map(|name| variant(name)).collect::<PyResult<_>>()?;
        let unavailable = vec![Variant::Haproxy];
        let sweep = Sweep {
            scenario: &parsed.scenario,
            text: &parsed.text,
            backend: Backend::Sim,
            selection: &Selection { variants, labels: only, unavailable },
        };
        Ok(Folder(Mutex::new(sweep.folder(&base, fresh, command)?)))
    }

    /// The records in a folder, and the scenario's text; it may be another's who is at work.
    #[staticmethod]
    fn read(directory: PathBuf) -> PyResult<(Records, String)> {
        let results = Results::read(Path::new(&directory))?;
        Ok((Records::from(results.records().to_vec()), results.scenario_text()?))
    }

    #[getter]
    fn directory(&self) -> PathBuf {
        self.results().directory().to_owned()
    }

    /// The records so far.
    fn records(&self) -> Records {
        Records::from(self.results().records().to_vec())
    }

    /// Adds records; they are on disk when this returns.
    fn add(&self, py: Python<'_>, records: &Records) -> PyResult<()> {
        let records = records.records().clone();
        // Disks are slow; others may go on.
        py.detach(|| {
            let mut results = self.results();
            records.into_iter().try_for_each(|record| results.add(record))
        })?;
        Ok(())
    }

    /// Writes a file beside the records.
    fn write(&self, name: &str, text: &str) -> PyResult<PathBuf> {
        Ok(self.results().write(name, text)?)
    }
}

impl Folder {
    fn results(&self) -> MutexGuard<'_, Results> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
