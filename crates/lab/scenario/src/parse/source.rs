//! The file's text, and errors that know their line in it.

use std::ops::Range;

use midspan_units::wording;

use crate::Error;

/// A span of the text, in bytes.
pub(crate) type TextSpan = Range<usize>;

/// The text of a scenario file and the name to give it in errors.
#[derive(Clone, Copy)]
pub(crate) struct Source<'t> {
    pub(crate) text: &'t str,
    pub(crate) file: &'t str,
}

impl Source<'_> {
    /// An error at the start of `place`.
    pub(crate) fn error(&self, place: &TextSpan, what: impl Into<String>) -> Error {
        Error { file: self.file.to_owned(), line: self.line(place), what: what.into() }
    }

    /// What the TOML reader found, in our words.
    pub(crate) fn toml_error(&self, error: &toml::de::Error) -> Error {
        let place = error.span().unwrap_or(0..0);
        self.error(&place, wording::reword(error.message()))
    }

    /// The line in which `place` starts, counted from 1.
    pub(crate) fn line(&self, place: &TextSpan) -> usize {
        let before = self.text.as_bytes().get(..place.start).unwrap_or_default();
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }
}
