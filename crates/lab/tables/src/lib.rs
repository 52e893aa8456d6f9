//! Records as tables: typed columns with units, the same ones for the Python package and for files.
//!
//! [`named`] makes one of [`names`] of records; [`csv()`] writes it as text, and [`data_package`] what its columns are.
//! Who has Arrow or Parquet makes their arrays of [`Values`].

mod csv;
mod table;
mod tables;

pub use csv::{csv, data_package};
pub use table::{Column, Table, Values};
pub use tables::{named, names};
