//! The file's text, and errors that know their line in it.

use std::ops::Range;

use crate::Error;

/// A place in the text, in bytes.
pub(crate) type Place = Range<usize>;

/// The text of a scenario file and the name to give it in errors.
#[derive(Clone, Copy)]
pub(crate) struct Source<'t> {
    pub(crate) text: &'t str,
    pub(crate) file: &'t str,
}

impl Source<'_> {
    /// An error at the start of `place`.
    pub(crate) fn error(&self, place: &Place, what: impl Into<String>) -> Error {
        Error { file: self.file.to_owned(), line: self.line(place), what: what.into() }
    }

    /// What the TOML reader found, in our words.
    pub(crate) fn toml_error(&self, error: &toml::de::Error) -> Error {
        let place = error.span().unwrap_or(0..0);
        self.error(&place, reword(error.message()))
    }

    /// The line in which `place` starts, counted from 1.
    pub(crate) fn line(&self, place: &Place) -> usize {
        let before = self.text.as_bytes().get(..place.start).unwrap_or_default();
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }
}

/// Says that `name` is not known here, what comes near it, and what is known.
pub(crate) fn unknown<'n>(
    kind: &str,
    name: &str,
    known: impl IntoIterator<Item = &'n str>,
) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let nearest = known
        .iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min();
    let list = quoted(&known);
    match nearest {
        Some((_, candidate)) => {
            format!("unknown {kind} `{name}`; did you mean `{candidate}`? Known here: {list}")
        }
        None if known.is_empty() => format!("unknown {kind} `{name}`; there are none here"),
        None => format!("unknown {kind} `{name}`; known here: {list}"),
    }
}

/// Names as they stand in an error.
pub(crate) fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Serde speaks of fields and types; the reader of a scenario file thinks of keys and values.
fn reword(message: &str) -> String {
    let message = message.replace('\n', "; ");
    for (prefix, kind) in [("unknown field `", "key"), ("unknown variant `", "value")] {
        let parts = message.strip_prefix(prefix).and_then(|rest| rest.split_once('`'));
        if let Some((name, rest)) = parts {
            // Every second piece between backquotes is a known name.
            return unknown(kind, name, rest.split('`').skip(1).step_by(2));
        }
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return format!("{name} is missing");
    }
    for kind in ["type", "value"] {
        let found = message.strip_prefix(&format!("invalid {kind}: "));
        if let Some((found, expected)) = found.and_then(|rest| rest.split_once(", expected ")) {
            return format!("found {found}; expected {expected}");
        }
    }
    message
}

/// Edits from `a` to `b`: characters put in, taken out or changed, and neighbours swapped (the
/// optimal string alignment distance).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("loss", "loss"), 0);
        assert_eq!(distance("los", "loss"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("eu", "ue"), 1);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn only_near_names_are_suggested() {
        assert_eq!(
            unknown("key", "warm_up", ["time", "warmup"]),
            "unknown key `warm_up`; did you mean `warmup`? Known here: `time`, `warmup`"
        );
        assert_eq!(unknown("key", "x", ["time"]), "unknown key `x`; known here: `time`");
    }

    #[test]
    fn serde_is_reworded() {
        assert_eq!(
            reword("unknown field `los`, expected one of `rate`, `loss`"),
            "unknown key `los`; did you mean `loss`? Known here: `rate`, `loss`"
        );
        assert_eq!(reword("missing field `path`"), "`path` is missing");
        assert_eq!(
            reword("invalid type: integer `5`, expected a rate"),
            "found integer `5`; expected a rate"
        );
    }
}
