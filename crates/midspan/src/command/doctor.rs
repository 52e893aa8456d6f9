//! `midspan doctor`.

use std::process::ExitCode;

use anyhow::Result;
use midspan_lab::doctor::{self, State};

/// Prints one line for each thing that matters, and what follows from it. Fails if something that
/// is needed is missing.
pub(crate) fn run() -> Result<ExitCode> {
    let unprivileged = super::acquire_privileges().map_err(|error| error.to_string());
    let findings = doctor::examine(unprivileged);
    let width = findings.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
    for finding in &findings {
        let sign = match finding.state {
            State::Good => "ok",
            State::Missing => "--",
            State::Broken => "!!",
        };
        println!("{sign}  {:width$}  {}", finding.subject, finding.seen);
        if !finding.consequence.is_empty() {
            println!("    {:width$}  -> {}", "", finding.consequence);
        }
    }
    let broken = findings.iter().any(|finding| finding.state == State::Broken);
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
