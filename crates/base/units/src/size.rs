use std::fmt;
use std::str::FromStr;

use crate::parse::{self, ParseError, serde_as_text};

const WANTED: &str =
    "a size such as `1500 B`, `64 KiB`, `1 MB` or `2 GiB` (KB is 1000, KiB is 1024)";

/// A number of bytes. `KB`, `MB`, `GB` are powers of 1000 and `KiB`, `MiB`, `GiB` of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(u64);

impl ByteSize {
    /// A size of `bytes`.
    pub const fn from_bytes(bytes: u64) -> Self {
        ByteSize(bytes)
    }

    /// A size of `kib` times 1024 bytes.
    pub const fn from_kib(kib: u64) -> Self {
        ByteSize(kib * 1024)
    }

    /// The number of bytes.
    pub const fn as_bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let units = [
            ("B", 1.0),
            ("KB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("KiB", 1024.0),
            ("MiB", 1024.0 * 1024.0),
            ("GiB", 1024.0 * 1024.0 * 1024.0),
        ];
        parse::scaled(text, &units, WANTED).map(|bytes| ByteSize(bytes.round() as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            ("GiB", 1 << 30),
            ("GB", 1_000_000_000),
            ("MiB", 1 << 20),
            ("MB", 1_000_000),
            ("KiB", 1 << 10),
            ("KB", 1_000),
            ("B", 1),
        ];
        parse::print_exact(f, self.0, &units)
    }
}

serde_as_text!(ByteSize, WANTED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_and_binary_units_differ() {
        assert_eq!("64 KiB".parse::<ByteSize>().unwrap().as_bytes(), 65_536);
        assert_eq!("64 KB".parse::<ByteSize>().unwrap().as_bytes(), 64_000);
        assert_eq!("1.5MB".parse::<ByteSize>().unwrap().as_bytes(), 1_500_000);
    }

    #[test]
    fn what_is_not_a_size_says_what_would_be() {
        let error = "64 kb".parse::<ByteSize>().unwrap_err().to_string();
        assert!(error.contains("`64 kb`") && error.contains("64 KiB"), "{error}");
    }
}
