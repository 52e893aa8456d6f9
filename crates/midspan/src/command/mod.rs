//! One module for each command.

#[cfg(feature = "relay")]
pub(crate) mod admin;
#[cfg(feature = "lab")]
pub(crate) mod advise;
#[cfg(feature = "assist")]
pub(crate) mod assist;
#[cfg(feature = "control")]
pub(crate) mod cc;
#[cfg(feature = "relay")]
mod columns;
#[cfg(feature = "relay")]
mod decisions;
#[cfg(feature = "lab")]
pub(crate) mod demo;
#[cfg(feature = "lab")]
pub(crate) mod doctor;
#[cfg(feature = "relay")]
mod gain;
pub(crate) mod generate;
#[cfg(any(feature = "assist", feature = "relay"))]
mod keys;
#[cfg(feature = "lab")]
pub(crate) mod lab;
#[cfg(feature = "lab")]
mod papers;
#[cfg(feature = "lab")]
mod ray;
#[cfg(feature = "lab")]
mod recorded;
#[cfg(feature = "relay")]
pub(crate) mod relay;
#[cfg(feature = "lab")]
mod serve;
#[cfg(feature = "relay")]
mod settings;
#[cfg(feature = "lab")]
pub(crate) mod shell;
#[cfg(feature = "relay")]
pub(crate) mod top;
#[cfg(feature = "relay")]
mod units;
#[cfg(feature = "relay")]
mod upgrade;

use std::fmt;

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

/// Whether it is for the user to mend, in a file or an argument: a congestion control of theirs is such a file.
pub(crate) fn is_bad_input(error: &anyhow::Error) -> bool {
    #[cfg(feature = "control")]
    if error.is::<midspan_ccown::Error>()
        || matches!(error.downcast_ref(), Some(midspan_ccload::Error::OwnRefused { .. }))
    {
        return true;
    }
    error.is::<BadInput>()
}

/// Reads a file that the user named.
#[cfg(feature = "lab")]
pub(crate) fn read_input(path: &std::path::Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| BadInput::because(format!("cannot read {}: {error}", path.display())))
}

/// The value of an option, if it is given.
#[cfg(feature = "lab")]
pub(crate) fn quantity<T: std::str::FromStr<Err: fmt::Display>>(
    option: &str,
    text: Option<&str>,
) -> anyhow::Result<Option<T>> {
    let parse = |text: &str| text.parse();
    let parsed = text.map(parse).transpose();
    parsed.map_err(|error| BadInput::because(format!("{option}: {error}")))
}

/// Writes what happens to standard error: warnings and news, or what MIDSPAN_LOG asks for.
#[cfg(feature = "assist")]
pub(crate) fn log_to_stderr() -> anyhow::Result<()> {
    let filter = crate::log_filter::from_environment().map_err(BadInput::because)?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    Ok(())
}

/// Gets the rights to make network namespaces: those of root, or of a user namespace. Must be
/// called before the process has a second thread. Answers whether it took a user namespace.
#[cfg(feature = "lab")]
pub(crate) fn acquire_privileges() -> std::io::Result<bool> {
    if midspan_sys::userns::is_root() {
        return Ok(false);
    }
    midspan_sys::userns::become_root().map(|()| true)
}
