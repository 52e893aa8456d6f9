//! Kernel parameters of the calling thread's network namespace.

use std::fs;
use std::io;
use std::path::PathBuf;

/// Writes `value` to a parameter such as `net.ipv4.tcp_rmem`.
///
/// # Errors
/// The kernel's refusal, with the parameter's name.
pub fn set(name: &str, value: &str) -> io::Result<()> {
    fs::write(path(name), value).map_err(|error| named(name, error))
}

/// Reads a parameter, without the newline at its end.
///
/// # Errors
/// When the kernel has no such parameter, with its name.
pub fn get(name: &str) -> io::Result<String> {
    let text = fs::read_to_string(path(name)).map_err(|error| named(name, error))?;
    Ok(text.trim_end().to_owned())
}

fn path(name: &str) -> PathBuf {
    ["/proc/sys", &name.replace('.', "/")].iter().collect()
}

fn named(name: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("sysctl {name}: {error}"))
}
