//! What is raised inside a run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

/// The first exception of what is written in Python. From then on all of it does as little as it can: elements drop
/// everything, congestion controls keep a packet in flight. The runs are soon over.
///
/// Nothing of the interpreter is done under its lock: an exception that is looked at may give the interpreter's lock away
/// for a while (its kind is worked out once), and who has that then must not have to wait for this one.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<Arc<PyErr>>>>);

impl Failure {
    /// Raises it, if there was one.
    pub(crate) fn check(&self) -> PyResult<()> {
        let first = self.first().clone();
        first.map_or(Ok(()), |error| Err(Python::attach(|py| error.clone_ref(py))))
    }

    pub(crate) fn happened(&self) -> bool {
        self.first().is_some()
    }

    pub(crate) fn keep(&self, error: PyErr) {
        let error = Arc::new(error);
        self.first().get_or_insert_with(|| error.clone());
    }

    fn first(&self) -> MutexGuard<'_, Option<Arc<PyErr>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
