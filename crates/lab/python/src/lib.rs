//! What of the Python package `midspan` is Rust: scenarios, simulated runs, records and their tables, results folders.
//!
//! It stands on what needs no network (`midspan-batch`), so that the package is built, and runs, without BPF and without
//! privileges. `python/src/midspan/_midspan.pyi` says what each name means to Python; what is convenient there is
//! written in Python.

mod control;
mod element;
mod failure;
mod folder;
mod quantity;
mod records;
mod scenario;
mod simulate;
mod table;

use pyo3::prelude::*;

/// `midspan._midspan`.
#[pymodule]
mod _midspan {
    #[pymodule_export]
    use crate::control::{Ack, ControlBase};
    #[pymodule_export]
    use crate::element::{Drop, Packet, Pass};
    #[pymodule_export]
    use crate::folder::Folder;
    #[pymodule_export]
    use crate::quantity::{bits_per_second, byte_size, fraction, seconds};
    #[pymodule_export]
    use crate::records::Records;
    #[pymodule_export]
    use crate::scenario::Parsed;
    #[pymodule_export]
    use crate::simulate::simulate;
    #[pymodule_export]
    use crate::table::Table;
}
