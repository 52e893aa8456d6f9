//! What is known of gains, as a page.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use midspan_report::gain::Page;

use super::findings::Findings;
use crate::command::BadInput;

/// Writes it, with so many servers and networks at most.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(path: &Path, findings: &Findings, logs: &[PathBuf], most: usize) -> Result<()> {
    let Findings { all, sizes, services, prefixes, hours, notes } = findings;
    let names: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
    let source = names.join(", ");
    let all = all.as_ref();
    let page = Page { source: &source, all, sizes, services, prefixes, most, hours, notes };
    fs::write(path, page.html())
        .map_err(|error| BadInput::because(format!("cannot write {}: {error}", path.display())))
}
