//! One module for each command.

pub(crate) mod admin;
pub(crate) mod advise;
pub(crate) mod assist;
pub(crate) mod cc;
mod columns;
mod decisions;
pub(crate) mod demo;
pub(crate) mod doctor;
mod gain;
pub(crate) mod generate;
pub(crate) mod lab;
mod papers;
mod recorded;
pub(crate) mod relay;
mod settings;
pub(crate) mod shell;
pub(crate) mod top;
mod units;

use std::fmt;
use std::path::Path;

use anyhow::Result;

use crate::log_filter;

/// An error in what the user gave: exit status 2.
#[derive(Debug)]
pub(crate) struct BadInput(String);

impl BadInput {
    /// From anything that says in one line what is wrong, where, and what would be right.
    pub(crate) fn because(error: impl fmt::Display) -> anyhow::Error {
        anyhow::Error::new(BadInput(error.to_string()))
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// Reads a file that the user named.
pub(crate) fn read_input(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| BadInput::because(format!("cannot read {}: {error}", path.display())))
}

/// The value of an option, if it is given.
pub(crate) fn quantity<T: std::str::FromStr<Err: fmt::Display>>(
    option: &str,
    text: Option<&str>,
) -> Result<Option<T>> {
    let parse = |text: &str| text.parse();
    let parsed = text.map(parse).transpose();
    parsed.map_err(|error| BadInput::because(format!("{option}: {error}")))
}

/// Writes what happens to standard error: warnings and news, or what MIDSPAN_LOG asks for.
pub(crate) fn log_to_stderr() -> Result<()> {
    let filter = log_filter::from_environment().map_err(BadInput::because)?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    Ok(())
}

/// Gets the rights to make network namespaces: those of root, or of a user namespace. Must be
/// called before the process has a second thread. Answers whether it took a user namespace.
pub(crate) fn acquire_privileges() -> std::io::Result<bool> {
    if midspan_sys::userns::is_root() {
        return Ok(false);
    }
    midspan_sys::userns::become_root().map(|()| true)
}
