//! Keeping a run: raw results, summary, machine and command, in a directory of its own.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes a run of benchmark `name` under `bench/runs/<date>-<name>/`; an earlier run of the same
/// day is replaced. `raw` becomes one JSON object a line. Where this is one piece of several, its
/// command and machine are `added` to those of the others.
pub(crate) fn keep<T: Serialize>(
    name: &str,
    raw: &[T],
    summary: &str,
    added: bool,
) -> Result<PathBuf> {
    let directory = directory(name)?;
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let mut lines = String::new();
    for run in raw {
        lines += &(serde_json::to_string(run)? + "\n");
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let command = shlex::try_join(arguments.iter().map(String::as_str))?;
    let command = format!("./run bench {command}\n");
    for (file, text, grows) in [
        ("raw.jsonl", lines.as_str(), false),
        ("summary.txt", summary, false),
        ("machine.txt", &machine(), added),
        ("command.txt", &command, added),
    ] {
        let path = directory.join(file);
        let before =
            if grows { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        let text = before + text;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(directory)
}

/// What today's recorded run of benchmark `name` has, if there is one.
pub(crate) fn kept<T: DeserializeOwned>(name: &str) -> Result<Vec<T>> {
    let path = directory(name)?.join("raw.jsonl");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let runs = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    runs.with_context(|| format!("{} is of another version", path.display()))
}

fn directory(name: &str) -> Result<PathBuf> {
    let runs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("runs");
    Ok(runs.join(format!("{}-{name}", today()?)))
}

fn today() -> Result<String> {
    let output = Command::new("date").arg("+%F").output().context("cannot run `date`")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Processor, memory, kernel and load, as far as /proc tells. The benchmark's own load is about 1.5;
/// more means that something else ran beside it.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(':').nth(1)).unwrap_or("unknown").trim().to_owned()
    };
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "processor: {cpus} x {}\nmemory: {}\nkernel: {} {}\n\
         load at the end (1, 5, 15 min): {}\n",
        field(&read("/proc/cpuinfo"), "model name"),
        field(&read("/proc/meminfo"), "MemTotal"),
        read("/proc/sys/kernel/osrelease").trim(),
        read("/proc/sys/kernel/version").trim(),
        read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(", "),
    )
}
