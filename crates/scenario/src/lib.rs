//! The scenario file and the result record: what every backend reads and writes.
//!
//! Pure: parsing takes text, not a path, and nothing here reads a clock or a file.

pub mod record;
