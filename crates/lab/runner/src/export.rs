//! A results folder's records as files that others read: tables with typed columns, as CSV.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use midspan_scenario::record::Record;
use midspan_tables::{Table, csv, data_package, named, names};

/// Writes the tables of `records` into `folder`, which is made if it is missing: those that have rows, and that of the
/// runs, as text (RFC 4180), with types and units in `datapackage.json` beside them. Answers with the files.
///
/// # Errors
/// When a file cannot be written.
pub fn csv_files(title: &str, records: &[Record], folder: &Path) -> Result<Vec<PathBuf>> {
    let tables: Vec<(&str, Table)> = names()
        .filter_map(|name| Some((name, named(name, records)?)))
        .filter(|(name, table)| *name == "runs" || table.rows() > 0)
        .collect();
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let package = data_package(title, tables.iter().map(|(name, table)| (*name, table)));
    let package = format!("{}\n", serde_json::to_string_pretty(&package)?);
    let texts = tables.iter().map(|(name, table)| (format!("{name}.csv"), csv(table)));
    let texts = texts.chain([("datapackage.json".to_owned(), package)]);
    texts
        .map(|(name, text)| {
            let file = folder.join(name);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            Ok(file)
        })
        .collect()
}
