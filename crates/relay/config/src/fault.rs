//! What of a configuration cannot be, and where.

use std::fmt;
use std::path::PathBuf;

/// A configuration that cannot be used: which file, which line, what is wrong, what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub(crate) file: Option<PathBuf>,
    pub(crate) line: Option<usize>,
    pub(crate) message: String,
}

impl ConfigError {
    /// What is wrong and what would be right, made one line.
    pub fn new(message: impl fmt::Display) -> ConfigError {
        ConfigError { file: None, line: None, message: one_line(&message.to_string()) }
    }

    /// The same, found in this file.
    #[must_use]
    pub fn in_file(self, file: impl Into<PathBuf>) -> ConfigError {
        ConfigError { file: Some(file.into()), ..self }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
            (Some(file), None) => write!(f, "{}: ", file.display())?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

/// A setting that cannot be used, by its path in the file.
pub(crate) struct Fault {
    path: Vec<&'static str>,
    said: String,
}

impl Fault {
    pub(crate) fn new(path: &[&'static str], said: &str) -> Self {
        Fault { path: path.to_vec(), said: said.to_owned() }
    }

    pub(crate) fn line_in(&self, text: &str) -> Option<usize> {
        let document = toml::de::DeTable::parse(text).ok()?;
        let (last, tables) = self.path.split_last()?;
        let mut table = document.get_ref();
        for name in tables {
            table = table.get(*name)?.get_ref().as_table()?;
        }
        let (key, _) = table.get_key_value(*last)?;
        Some(line_of(text, key.span().start))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.path.join("."), self.said)
    }
}

/// Without line ends, and without what a terminal might take for more than text.
pub(crate) fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for character in message.chars() {
        match character {
            '\n' => line.push_str(", "),
            control if control.is_control() => line.extend(control.escape_default()),
            other => line.push(other),
        }
    }
    line
}

pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count()
}
