//! `midspan lab run --ray`: a simulated sweep on a Ray cluster, by the Python package.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::lab::Job;

const PYTHON: &str = "python3";

/// Whether what it takes is installed, without loading it.
const PROBE: &str =
    "import importlib.util as i, sys; sys.exit(not all(map(i.find_spec, ['midspan', 'ray'])))";

/// Runs what is asked for on the cluster at `address`, or on one of this machine's own if that is `local`. The folder of
/// the results.
///
/// # Errors
/// When Python, the package or Ray is missing, or what the package says.
pub(super) fn run(address: &str, job: &Job) -> Result<PathBuf> {
    let missing = "--ray needs the Python package with Ray: `pip install './python[ray]'` (docs/howto/python.md)";
    let probe = Command::new(PYTHON).args(["-c", PROBE]).stderr(Stdio::null()).status();
    match probe {
        Ok(status) if status.success() => {}
        Ok(_) => bail!("{missing}"),
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("{missing}, and {PYTHON}"),
        Err(error) => return Err(error).context(PYTHON),
    }
    let mut command = Command::new(PYTHON);
    command.args(["-m", "midspan.ray", address, &job.file, "--out"]).arg(&job.base);
    command.arg("--traces").arg(match &job.directory {
        here if here.as_os_str().is_empty() => Path::new("."),
        directory => directory,
    });
    for (option, is_wanted) in [("--short", job.short), ("--fresh", job.fresh)] {
        command.args(is_wanted.then_some(option));
    }
    for variant in &job.selection.variants {
        command.args(["--variant", &variant.to_string()]);
    }
    for (axis, label) in &job.selection.labels {
        command.args(["--only", &format!("{axis}={label}")]);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.context(PYTHON)?;
    if !output.status.success() {
        bail!("the sweep on Ray ended before its end: {}", output.status);
    }
    // Ray's own words may come before.
    let said = String::from_utf8_lossy(&output.stdout);
    let folder = said.lines().last().context("the sweep on Ray named no results")?;
    Ok(PathBuf::from(folder))
}
