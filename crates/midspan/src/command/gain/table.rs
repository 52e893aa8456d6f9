//! What is known of gains, as a table for the terminal or as JSON.

use std::fmt;

use midspan_report::gain::Effect;
use serde::Serialize;

use crate::command::columns::aligned;

/// Rows, and what must be said beside them.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    pub(super) rows: Vec<Effect>,
    pub(super) notes: Vec<String>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings =
            ["connections", "split", "held out", "gain", "at least", "at most", "splitting is"];
        let times = |gain: Option<f64>| gain.map_or("-".into(), |gain| format!("{gain:.2} x"));
        let cells = |row: &Effect| {
            [
                row.of.clone(),
                row.split.to_string(),
                row.held_out.to_string(),
                times(row.gain),
                times(row.at_least),
                times(row.at_most),
                row.verdict.label().to_owned(),
            ]
        };
        let rows: Vec<_> = std::iter::once(headings.map(str::to_owned))
            .chain(self.rows.iter().map(cells))
            .collect();
        f.write_str(&aligned(&rows, |at| at == 0 || at == 6))?;
        writeln!(
            f,
            "\nHow many times faster connections were done if they were split, by when their ends acknowledged. Bounds hold together \
             at all times but for one time in twenty."
        )?;
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}."))
    }
}
