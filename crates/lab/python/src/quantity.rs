//! Quantities as scenarios write them.

use std::fmt::Display;
use std::str::FromStr;

use midspan_units::{ByteSize, Rate, Share, Span};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// `"0.5 ms"` in seconds.
#[pyfunction]
pub(crate) fn seconds(text: &str) -> PyResult<f64> {
    read(text).map(Span::as_secs_f64)
}

/// `"100 Mbit/s"` in bit/s.
#[pyfunction]
pub(crate) fn bits_per_second(text: &str) -> PyResult<u64> {
    read(text).map(Rate::as_bps)
}

/// `"64 KiB"` in bytes.
#[pyfunction]
pub(crate) fn byte_size(text: &str) -> PyResult<u64> {
    read(text).map(ByteSize::as_bytes)
}

/// `"0.5 %"` as a fraction of one.
#[pyfunction]
pub(crate) fn fraction(text: &str) -> PyResult<f64> {
    read(text).map(Share::as_fraction)
}

fn read<T: FromStr<Err: Display>>(text: &str) -> PyResult<T> {
    text.parse().map_err(|error: T::Err| PyValueError::new_err(error.to_string()))
}
