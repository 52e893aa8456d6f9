//! What a description says of a paper: its figures and tables, the runs that show them, and what the paper states.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A paper. Comes from a TOML file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Paper {
    /// Its place on the page.
    pub order: u32,
    /// Its short name, as scenarios have it: `mec`.
    pub short: String,
    /// Its title.
    pub title: String,
    /// Its authors, and where it appeared if that is known.
    pub by: String,
    /// What it is about, and what all of ours has in common, in a sentence or two.
    pub about: String,
    /// Its figures and tables, in its order.
    pub item: Vec<Item>,
}

/// A figure or a table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Item {
    /// Its number, if it is a figure: `3a`.
    pub figure: Option<String>,
    /// Its number, if it is a table: `1`.
    pub table: Option<String>,
    /// What it shows.
    pub title: String,
    /// Why ours differs, or why there is none: with the experiment that shows it, or that the cause is not known.
    #[serde(default)]
    pub says: String,
    /// Whether it shows no result: a drawing, a list of parameters.
    #[serde(default)]
    pub shows_no_result: bool,
    /// The recorded live run of it.
    pub live: Option<String>,
    /// The recorded simulated run of it.
    pub sim: Option<String>,
    /// Recorded runs of the experiments that `says` names.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// What decides what it shows: files and folders of this repository.
    #[serde(default)]
    pub code: Vec<String>,
    /// Its drawings.
    #[serde(default)]
    pub chart: Vec<Chart>,
    /// What the paper states of it.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A drawing.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Chart {
    /// In what form.
    pub kind: Kind,
    /// What it shows, if there are several.
    #[serde(default)]
    pub title: String,
    /// What is drawn along the vertical axis.
    #[serde(default)]
    pub measure: String,
    /// That axis' title, where it is not what the measure is called.
    #[serde(default)]
    pub y: String,
    /// Whether to draw the runs' standard deviation, which of pages is that of the pages.
    #[serde(default = "yes")]
    pub spread: bool,
    /// The axis of the sweep that the horizontal one is.
    #[serde(default)]
    pub along: String,
    /// The horizontal axis' title.
    #[serde(default)]
    pub x: String,
    /// Labels on that axis, from left to right.
    #[serde(default)]
    pub points: Vec<String>,
    /// What to call them, where that is something else.
    #[serde(default)]
    pub names: Vec<String>,
    /// Axis -> label, for the others.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
    /// What numbers are divided by: labels beside and in place of their own, with `{}` for the point.
    pub over: Option<BTreeMap<String, String>>,
    /// What stands for several cells.
    #[serde(default)]
    pub take: Take,
    /// Axis -> labels of cells that do not count.
    #[serde(default)]
    pub except: BTreeMap<String, Vec<String>>,
    /// Another live run than the item's, or `none`.
    pub live: Option<String>,
    /// Another simulated run than the item's, or `none`.
    pub sim: Option<String>,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Levels that the paper states, by what they are: with their unit.
    #[serde(default)]
    pub levels: BTreeMap<String, String>,
}

/// The form of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Lines over an axis of the sweep.
    Lines,
    /// Grouped bars over an axis of the sweep.
    Bars,
    /// Distribution of the queueing delay, by the percentiles that records have.
    Cdf,
    /// The sending rate of a page's first run over time.
    Rate,
    /// When packets were lost on the air, and when acknowledgements were marked, over the time of a page's first run.
    Events,
}

/// One thing that a drawing shows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Series {
    /// As the legend has it.
    pub name: String,
    /// What stood in the middle: `none`, `midspan`, `haproxy`.
    #[serde(default = "no_proxy")]
    pub variant: String,
    /// Axis -> label, beside the chart's.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
    /// How labels on the chart's axis are written for it, with `{}` for the point: `{}, MN`.
    #[serde(default = "itself")]
    pub label: String,
    /// Point -> what the paper states, with its unit. A factor (`7 x`) is over the chart's first series.
    #[serde(default)]
    pub paper: BTreeMap<String, String>,
}

/// Something that the paper states.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// Of what.
    pub says: String,
    /// The number with its unit, a range, or a bound: `949 Mbit/s`, `7 x`, `2 to 17 %`, `> 60 %`.
    pub paper: String,
    /// The paper's words, where it states no number: `paper` is then how they are read here, and not the paper's.
    pub words: Option<String>,
    /// Whether it is our own experiment, under settings that are not the figure's: shown, and not counted.
    #[serde(default)]
    pub experiment: bool,
    /// A recorded run by whose number of the same that of the item's is divided.
    pub beside: Option<String>,
    /// What is measured.
    pub measure: String,
    /// `variant`, and axis -> label. Of an axis that is not named all labels count.
    pub of: BTreeMap<String, String>,
    /// The same of what it is divided by, beside and in place of `of`'s.
    pub over: Option<BTreeMap<String, String>>,
    /// What stands for several cells.
    #[serde(default)]
    pub take: Take,
    /// Axis -> labels of cells that do not count.
    #[serde(default)]
    pub except: BTreeMap<String, Vec<String>>,
    /// Axis -> labels: a row for each.
    #[serde(default)]
    pub each: BTreeMap<String, Vec<String>>,
    /// Another live run than the item's, or `none`.
    pub live: Option<String>,
    /// Another simulated run than the item's, or `none`.
    pub sim: Option<String>,
}

/// What stands for several cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Take {
    /// There is one alone.
    #[default]
    Only,
    /// Their arithmetic mean.
    Mean,
    /// The least.
    Least,
    /// The greatest.
    Most,
}

/// What is wrong with a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The paper and its figure.
    pub place: String,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl std::error::Error for Wrong {}

impl Item {
    /// `Figure 3a`.
    pub(super) fn name(&self) -> String {
        match (&self.figure, &self.table) {
            (Some(number), _) => format!("Figure {number}"),
            (None, Some(number)) => format!("Table {number}"),
            (None, None) => String::new(),
        }
    }

    /// The runs that it draws or holds against the paper, some of them twice.
    pub(super) fn measured(&self) -> impl Iterator<Item = &str> {
        let charts = self.chart.iter().flat_map(|chart| [&chart.live, &chart.sim]);
        let claims = self.claim.iter();
        let claims = claims.flat_map(|claim| [&claim.live, &claim.sim, &claim.beside]);
        let named = [&self.live, &self.sim].into_iter().chain(charts).chain(claims);
        named.flatten().map(String::as_str).filter(|name| *name != NONE)
    }

    /// All runs that it names, some of them twice.
    pub(super) fn runs(&self) -> impl Iterator<Item = &str> {
        self.measured().chain(self.evidence.iter().map(String::as_str))
    }

    /// Whether it is whole.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.figure.is_some() == self.table.is_some() {
            return Err("wants either `figure` or `table`, with its number".to_owned());
        }
        if self.shows_no_result && (self.runs().next().is_some() || self.says.is_empty()) {
            return Err("`shows-no-result` wants `says`, and no run".to_owned());
        }
        Ok(())
    }
}

/// Stands for no run, where an item's is not meant.
const NONE: &str = "none";

/// The run that is meant: `own`, or else that of its item.
pub(super) fn meant<'a>(own: &'a Option<String>, of_item: &'a Option<String>) -> Option<&'a str> {
    own.as_deref().or(of_item.as_deref()).filter(|name| *name != NONE)
}

fn no_proxy() -> String {
    "none".to_owned()
}

fn yes() -> bool {
    true
}

fn itself() -> String {
    "{}".to_owned()
}
