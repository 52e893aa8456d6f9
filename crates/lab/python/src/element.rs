//! Elements of a path that are written in Python.

use std::collections::BTreeMap;

use midspan_path::{Decide, Ecn, Externals, Fate, Maker, Seen};
use midspan_units::{Span, Time};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Failure;

/// A packet, as `Element.packet` is given it.
#[pyclass(frozen, get_all, module = "midspan._midspan")]
pub(crate) struct Packet {
    wire_bytes: u32,
    burst: u64,
    ecn_capable: bool,
    ce: bool,
    is_pure_ack: bool,
    held: u64,
    held_bytes: u64,
}

/// It goes on.
#[pyclass(frozen, get_all, module = "midspan._midspan")]
#[derive(Clone, Copy)]
pub(crate) struct Pass {
    after: f64,
    mark: bool,
}

#[pymethods]
impl Pass {
    #[new]
    #[pyo3(signature = (after = 0.0, mark = false))]
    fn new(after: f64, mark: bool) -> PyResult<Pass> {
        if !(0.0..=LONGEST_S).contains(&after) {
            let what = format!("a packet is held for 0 to {LONGEST_S} seconds, not for {after}");
            return Err(PyValueError::new_err(what));
        }
        Ok(Pass { after, mark })
    }

    fn __repr__(&self) -> String {
        let mark = if self.mark { "True" } else { "False" };
        format!("Pass(after={}, mark={mark})", self.after)
    }
}

/// A day: what is meant as no delay at all is found.
const LONGEST_S: f64 = 86_400.0;

/// It is dropped.
#[pyclass(frozen, module = "midspan._midspan")]
pub(crate) struct Drop;

#[pymethods]
impl Drop {
    #[new]
    fn new() -> Drop {
        Drop
    }

    fn __repr__(&self) -> &'static str {
        "Drop()"
    }
}

/// What makes elements by the Python callables in `elements`: each is called with the run's `seed` and the element's
/// settings by name, and answers an object with a method `packet`.
pub(crate) fn elements(elements: BTreeMap<String, Py<PyAny>>, failure: &Failure) -> Externals {
    let maker = |(name, class): (String, Py<PyAny>)| {
        let failure = failure.clone();
        let make: Maker = Box::new(move |with, seed| {
            let element = Python::attach(|py| {
                let settings = PyDict::new(py);
                with.iter().try_for_each(|(key, value)| settings.set_item(key, value))?;
                settings.set_item("seed", seed)?;
                let element = class.call(py, (), Some(&settings))?;
                element.getattr(py, "packet")
            });
            let element = element.map_err(|error| failure.keep(error)).ok();
            Box::new(Written { packet: element, failure: failure.clone() })
        });
        (name, make)
    };
    elements.into_iter().map(maker).collect()
}

/// An element's method.
struct Written {
    packet: Option<Py<PyAny>>,
    failure: Failure,
}

impl Decide for Written {
    fn decide(&mut self, now: Time, seen: &Seen) -> Fate {
        let Some(packet) = &self.packet else { return Fate::Drop };
        Python::attach(|py| {
            if self.failure.happened() {
                return Fate::Drop;
            }
            let at = now.since(Time::ZERO).as_secs_f64();
            let answer = packet.call1(py, (at, Packet::from(seen)));
            answer.and_then(|answer| fate(answer.bind(py))).unwrap_or_else(|error| {
                self.failure.keep(error);
                Fate::Drop
            })
        })
    }
}

fn fate(answer: &Bound<'_, PyAny>) -> PyResult<Fate> {
    if let Ok(pass) = answer.cast::<Pass>() {
        let pass = pass.get();
        let nanos = (pass.after * 1e9).round() as u64;
        return Ok(Fate::Pass { after: Span::from_nanos(nanos), mark: pass.mark });
    }
    if answer.is_instance_of::<Drop>() {
        return Ok(Fate::Drop);
    }
    let what = format!(
        "`packet` must return midspan.Pass(...) or midspan.Drop(), not {}",
        answer.repr()?.to_string_lossy()
    );
    Err(PyTypeError::new_err(what))
}

impl From<&Seen> for Packet {
    fn from(seen: &Seen) -> Packet {
        let &Seen { wire_bytes, burst, ecn, is_pure_ack, held, held_bytes } = seen;
        Packet {
            wire_bytes,
            burst,
            ecn_capable: ecn.is_capable(),
            ce: ecn == Ecn::Ce,
            is_pure_ack,
            held,
            held_bytes,
        }
    }
}
