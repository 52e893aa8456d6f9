//! A configuration, read from its file.

use std::fs;
use std::path::Path;

use midspan_config::{Config, ConfigError};

/// Reads a file.
///
/// # Errors
/// When it cannot be read or is not a usable configuration, with the line.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let text = fs::read_to_string(path)
        .map_err(|error| ConfigError::new(format!("cannot be read: {error}")).in_file(path))?;
    text.parse().map_err(|error: ConfigError| error.in_file(path))
}
