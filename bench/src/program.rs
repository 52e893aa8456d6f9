//! Midspan's own program, as users have it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Builds it beside this one; gives where it is.
pub(crate) fn build() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let directory = own.parent().context("this program stands nowhere")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--quiet", "--package", "midspan"]);
    if !cargo.status().context("cannot run cargo")?.success() {
        bail!("midspan could not be built");
    }
    Ok(directory.join("midspan"))
}
