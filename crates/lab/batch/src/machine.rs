//! What a run ran on: written beside every result, so that numbers can be placed. No names or
//! addresses.

use std::fs;

use midspan_report::Machine;
use midspan_sys::process;

/// Looks at this machine. What cannot be read stays empty; programs that are absent are left out.
pub fn inspect() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (processors, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let release = read("/etc/os-release");
    let memory_kib: u64 = field(&memory, "MemTotal", ':')
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let system = field(&release, "PRETTY_NAME", '=').unwrap_or("").trim_matches('"').to_owned();
    let programs = [("haproxy", "-v"), ("nft", "--version"), ("iperf3", "--version")];
    let mut versions = vec![("midspan".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    versions.push(("system".to_owned(), system));
    versions.extend(programs.into_iter().filter_map(|(program, flag)| {
        let line = version(program, flag)?;
        let number = line.split_whitespace().find(|word| is_number(word)).unwrap_or(&line);
        Some((program.to_owned(), number.to_owned()))
    }));
    Machine {
        kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        cpu: field(&processors, "model name", ':').unwrap_or("").to_owned(),
        cores: std::thread::available_parallelism()
            .map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        memory_bytes: memory_kib * 1024,
        versions,
    }
}

/// The first line that `program` prints about its version; `None` if it is not installed.
pub fn version(program: &str, flag: &str) -> Option<String> {
    let output = process::command(program).arg(flag).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(|line| line.trim().to_owned())
}

fn is_number(word: &str) -> bool {
    word.trim_start_matches('v').starts_with(|first: char| first.is_ascii_digit())
}

fn field<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(separator)?;
        (key.trim() == name).then(|| value.trim())
    })
}
