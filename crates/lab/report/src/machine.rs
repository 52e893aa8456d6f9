//! On what machine the runs were made.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The machine and the versions of what ran on it. Whoever runs the lab fills it in; empty fields
/// are left out of the report.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name and release of the kernel, such as `Linux 6.18.5 x86_64`.
    pub kernel: String,
    /// Model of the processor.
    pub cpu: String,
    /// Processors that the runs could use.
    pub cores: u32,
    /// Main memory in bytes.
    pub memory_bytes: u64,
    /// Program -> version, such as `midspan` -> `0.1.0`, in the order to show them.
    pub versions: Vec<(String, String)>,
}

/// An instant in UTC as `2026-11-21 00:05 UTC`, from milliseconds since the Unix epoch.
pub(crate) fn utc(unix_ms: u64) -> String {
    let instant = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    match instant {
        Some(instant) => instant.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        None => format!("{unix_ms} ms after 1970"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_dates_people_know() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_795_219_531_000), "2026-11-21 00:05 UTC");
        assert_eq!(utc(u64::MAX), "18446744073709551615 ms after 1970");
    }
}
