use std::fmt;

/// Why a scenario file was refused. Prints as `file:line: what; what would be right`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The file's name, as it was given.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

impl std::error::Error for Error {}
