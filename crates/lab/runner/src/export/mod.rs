//! A results folder's records as files that others read: tables with typed columns, and plots.

mod parquet;

use std::fs;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use midspan_report::Report;
use midspan_scenario::record::Record;
use midspan_tables::{Table, csv, data_package, named, names};

use self::parquet::parquet;

/// Writes the tables of `records` into `folder`, which is made if it is missing: those that have rows, and that of the
/// runs, as text (RFC 4180), with types and units in `datapackage.json` beside them. Answers with the files.
///
/// # Errors
/// When a file cannot be written.
pub fn csv_files(title: &str, records: &[Record], folder: &Path) -> Result<Vec<PathBuf>> {
    let tables = tables(records);
    let package = data_package(title, tables.iter().map(|(name, table)| (*name, table)));
    let package = format!("{}\n", serde_json::to_string_pretty(&package)?);
    let texts = tables.iter().map(|(name, table)| (format!("{name}.csv"), csv(table)));
    let texts = texts.chain([("datapackage.json".to_owned(), package)]);
    write(folder, texts.map(|(name, text)| Ok((name, text.into_bytes()))))
}

/// The same as Parquet files, which have types and units in them.
///
/// # Errors
/// When a file cannot be written.
pub fn parquet_files(title: &str, records: &[Record], folder: &Path) -> Result<Vec<PathBuf>> {
    let tables = tables(records);
    let files = tables.iter().map(|(name, table)| {
        let bytes = parquet(title, table).with_context(|| format!("the table of {name}"))?;
        Ok((format!("{name}.parquet"), bytes))
    });
    write(folder, files)
}

/// Writes the plots of a report into `folder`, which is made if it is missing, as SVG. Answers with the files.
///
/// # Errors
/// When a file cannot be written.
pub fn svg_files(report: &Report<'_>, folder: &Path) -> Result<Vec<PathBuf>> {
    let drawings = report.drawings().into_iter();
    let files = drawings.map(|one| Ok((format!("{}.svg", one.name), one.svg.into_bytes())));
    write(folder, files)
}

/// The program that makes pixels of drawings.
const CONVERTER: &str = "rsvg-convert";

/// The same as PNG, of twice as many pixels as the drawings have units, made by librsvg's `rsvg-convert`: a renderer with
/// text in it would be a quarter of this program, and would want the machine's fonts all the same.
///
/// # Errors
/// When a file cannot be written, or the converter is not installed.
pub fn png_files(report: &Report<'_>, folder: &Path) -> Result<Vec<PathBuf>> {
    let drawings = report.drawings().into_iter();
    write(folder, drawings.map(|one| Ok((format!("{}.png", one.name), pixels(&one.svg)?))))
}

fn pixels(svg: &str) -> Result<Vec<u8>> {
    let mut file = tempfile::tempfile()?;
    file.write_all(svg.as_bytes())?;
    file.rewind()?;
    let output = Command::new(CONVERTER).args(["--zoom", "2"]).stdin(file).output();
    let output = output.with_context(|| {
        format!("cannot run {CONVERTER}, which makes PNG of SVG; install librsvg2-bin (Debian) or librsvg2-tools (Fedora)")
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{CONVERTER} failed: {}", said.trim());
    Ok(output.stdout)
}

/// That of the runs, and those that have rows.
fn tables(records: &[Record]) -> Vec<(&'static str, Table)> {
    names()
        .filter_map(|name| Some((name, named(name, records)?)))
        .filter(|(name, table)| *name == "runs" || table.rows() > 0)
        .collect()
}

fn write(
    folder: &Path,
    files: impl Iterator<Item = Result<(String, Vec<u8>)>>,
) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    files
        .map(|file| {
            let (name, bytes) = file?;
            let path = folder.join(name);
            fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(path)
        })
        .collect()
}
