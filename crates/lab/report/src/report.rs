//! The report of one scenario on one backend.

use midspan_scenario::Scenario;
use midspan_scenario::record::Record;
use midspan_scenario::summary::{Foreign, Summary};

use crate::grid::{Look, painted, wrapped};
use crate::{Conclusion, Drawing, Machine, Terminal, drawings, html, terminal};

/// Everything that a report is made of. The fields after the first three may be left empty; what
/// they would show is then left out.
#[derive(Debug, Clone)]
pub struct Report<'a> {
    /// What was to be run.
    pub scenario: &'a Scenario,
    /// What the runs gave, in the order in which they ran.
    pub records: &'a [Record],
    /// The statistics of the records.
    pub summary: Summary,
    /// The scenario file's text.
    pub source: Option<&'a str>,
    /// Where the runs were made.
    pub machine: Option<&'a Machine>,
    /// Why our numbers differ from the paper's: paragraphs of plain text.
    pub explanations: &'a [String],
}

impl<'a> Report<'a> {
    /// A report of `records`, which may be in any order and come from a sweep that was cut short.
    ///
    /// # Errors
    /// The first record that is not of this scenario, or not of the same backend as the first.
    pub fn new(scenario: &'a Scenario, records: &'a [Record]) -> Result<Self, Foreign> {
        Ok(Report {
            scenario,
            records,
            summary: Summary::of(scenario, records)?,
            source: None,
            machine: None,
            explanations: &[],
        })
    }

    /// What came out, in a sentence or two.
    pub fn conclusion(&self) -> Conclusion {
        Conclusion::of(self.scenario, &self.summary)
    }

    /// Headline, tables, what must be said of runs without numbers, and the conclusion. Ends in a
    /// newline.
    pub fn text(&self, terminal: Terminal) -> String {
        let mut out = terminal::heading(self.scenario, terminal);
        out.push_str(&terminal::tables(self.scenario, &self.summary, terminal));
        out.push('\n');
        for sentence in self.conclusion().sentences {
            let sentence = wrapped(&sentence, terminal.width, 0);
            out.push_str(&painted(&sentence, Look::Bold, terminal.colour));
            out.push('\n');
        }
        out
    }

    /// A page that needs nothing but itself.
    pub fn html(&self) -> String {
        html::page(self)
    }

    /// Its plots, each by itself.
    pub fn drawings(&self) -> Vec<Drawing> {
        drawings::of(self)
    }
}
