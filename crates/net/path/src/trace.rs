use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use midspan_units::{Rate, Span};
use thiserror::Error;

/// Traces by the name under which elements ask for them.
pub type Traces = BTreeMap<String, Trace>;

/// Bytes that one chance to send carries: a 1500-byte packet and the four bytes that a TUN device
/// puts before it.
pub(crate) const CHANCE_BYTES: u32 = 1504;

/// Most text that is read, plain or out of gzip: fifty times the longest known recording.
const LONGEST_TEXT: u64 = 1 << 29;

/// A recording of a link in the format of Mahimahi: when there was a chance to send. Cheap to
/// clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds from the start, never decreasing, at least one, the last above zero.
    chances: Arc<[u32]>,
}

impl Trace {
    /// Reads a trace, plain or gzipped: one whole number of milliseconds a line, never decreasing.
    /// The error names the line and what would be right.
    pub fn parse(bytes: &[u8]) -> Result<Self, TraceError> {
        if !bytes.starts_with(&[0x1f, 0x8b]) {
            return Self::parse_text(bytes);
        }
        let mut text = Vec::new();
        let mut reader = MultiGzDecoder::new(bytes).take(LONGEST_TEXT + 1);
        reader.read_to_end(&mut text).map_err(|error| TraceError::Gzip(error.to_string()))?;
        Self::parse_text(&text)
    }

    fn parse_text(text: &[u8]) -> Result<Self, TraceError> {
        if text.len() as u64 > LONGEST_TEXT {
            return Err(TraceError::TooLong);
        }
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        if text.is_empty() {
            return Err(TraceError::Empty);
        }
        let mut chances = Vec::new();
        let mut last = 0;
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let at = parse_line(line)
                .ok_or_else(|| TraceError::NotAnInteger { line: index + 1, text: excerpt(line) })?;
            if at < last {
                return Err(TraceError::Decreasing { line: index + 1, at, before: last });
            }
            last = at;
            chances.push(at);
        }
        if last == 0 {
            return Err(TraceError::NoDuration { lines: chances.len() });
        }
        Ok(Trace { chances: chances.into() })
    }

    /// Of `chances` in order, lasting `millis`: at its end there always is a chance.
    pub(crate) fn from_chances(mut chances: Vec<u32>, millis: u32) -> Self {
        if chances.last() != Some(&millis) {
            chances.push(millis);
        }
        Trace { chances: chances.into() }
    }

    /// The text that [`Trace::parse`] reads.
    pub fn to_text(&self) -> String {
        self.chances.iter().map(|at| format!("{at}\n")).collect()
    }

    /// The chances in milliseconds from the start, in order.
    pub fn chances(&self) -> &[u32] {
        &self.chances
    }

    /// After which time it starts over: the time of its last chance.
    pub fn duration(&self) -> Span {
        Span::from_millis(u64::from(self.period()))
    }

    /// Mean rate that the link would carry: 1504 bytes a chance, as Mahimahi counts.
    pub fn mean_rate(&self) -> Rate {
        Rate::of(self.chances.len() as u64 * u64::from(CHANCE_BYTES), self.duration())
    }

    pub(crate) fn period(&self) -> u32 {
        self.chances.last().copied().unwrap_or(1)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} chances in {})", self.chances.len(), self.duration())
    }
}

/// A whole number of milliseconds, with blanks and a carriage return around it allowed.
fn parse_line(line: &[u8]) -> Option<u32> {
    let digits = line.trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// The beginning of a line that made no sense, fit to print.
fn excerpt(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(40)]);
    text.trim().escape_debug().to_string()
}

/// Text that is not a trace.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TraceError {
    /// There is no line.
    #[error("the trace is empty; wanted one whole number of milliseconds a line")]
    Empty,
    /// A line is no number, or one too great.
    #[error(
        "line {line}: `{text}` is not a whole number of milliseconds between 0 and {}",
        u32::MAX
    )]
    NotAnInteger {
        /// Counted from 1.
        line: usize,
        /// The beginning of the line.
        text: String,
    },
    /// Time goes backwards.
    #[error("line {line}: {at} ms comes after {before} ms; times must not decrease")]
    Decreasing {
        /// Counted from 1.
        line: usize,
        /// The time on this line.
        at: u32,
        /// The time on the line before.
        before: u32,
    },
    /// The last chance is at time zero, so it would start over without end.
    #[error("line {lines}: the last time is 0 ms; a trace must last at least 1 ms")]
    NoDuration {
        /// How many lines there are.
        lines: usize,
    },
    /// The compressed data is damaged.
    #[error("not readable as gzip: {0}; wanted plain text or a whole gzip file")]
    Gzip(String),
    /// More text than any recording has.
    #[error("the trace is longer than {} MiB of text; wanted a shorter one", LONGEST_TEXT >> 20)]
    TooLong,
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn refusal(text: &[u8]) -> String {
        Trace::parse(text).unwrap_err().to_string()
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn reads_plain_and_gzipped_alike() {
        let text = b"0\n5\n5\n12\n";
        let trace = Trace::parse(text).unwrap();
        assert_eq!(trace.chances(), [0, 5, 5, 12]);
        assert_eq!(trace.duration(), Span::from_millis(12));
        assert_eq!(Trace::parse(&gzip(text)).unwrap(), trace);
        assert_eq!(Trace::parse(b"0\r\n5\r\n 5\r\n12").unwrap(), trace);
    }

    #[test]
    fn the_mean_rate_counts_1504_bytes_a_chance() {
        assert_eq!(Trace::parse(b"1").unwrap().mean_rate(), Rate::from_bps(1504 * 8 * 1000));
    }

    #[test]
    fn refusals_say_where_and_what_would_be_right() {
        assert!(refusal(b"").starts_with("the trace is empty"));
        assert!(refusal(b"\n").starts_with("the trace is empty"));
        assert!(refusal(b"1\n\n2\n").starts_with("line 2: `` is not a whole number"));
        assert!(refusal(b"1\n2.5\n").starts_with("line 2: `2.5` is not a whole number"));
        assert!(refusal(b"1\n-2\n").starts_with("line 2: `-2` is not"));
        assert!(refusal(b"1\n+2\n").starts_with("line 2: `+2` is not"));
        assert!(refusal(b"4294967296\n").starts_with("line 1: `4294967296` is not"));
        assert_eq!(refusal(b"1\n7\n6\n"), "line 3: 6 ms comes after 7 ms; times must not decrease");
        assert!(refusal(b"0\n0\n").starts_with("line 2: the last time is 0 ms"));
        let cut = &gzip(b"1\n2\n3\n")[..15];
        assert!(refusal(cut).starts_with("not readable as gzip"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            prefix in prop_oneof![Just(&b""[..]), Just(&[0x1f, 0x8b, 8][..])],
        ) {
            let _ = Trace::parse(&[prefix, &bytes].concat());
            let _ = Trace::parse(&gzip(&bytes));
        }

        #[test]
        fn almost_traces_are_read_or_refused(text in "[0-9]{0,11}(\r?\n[ 0-9x-]{0,11}){0,20}") {
            if let Ok(trace) = Trace::parse(text.as_bytes()) {
                prop_assert!(trace.chances().is_sorted() && trace.duration() > Span::ZERO);
            }
        }
    }
}
