//! A folder of results as a browser shows it: the list of its runs, a run's report, and several runs side by side.
//!
//! Every page needs nothing but itself and [`SCRIPT`], and can be used without that: it filters and sorts, and shows anew
//! what is marked `data-live` once [`CHANGES`] says that something has changed.

mod list;
mod run;
mod side;
mod view;

use maud::{Markup, html};

use midspan_scenario::record::Backend;
use midspan_scenario::summary::Counts;

use crate::{Conclusion, Report, html};

pub use list::page as list;
pub use run::page as run;
pub use side::{Pick, Side, page as side_by_side};

/// Where the list is.
pub const LIST: &str = "/";
/// Where a run's report is; `id` says which.
pub const RUN: &str = "/run";
/// Where runs are compared; `run`, several times, says which, and a [`Pick`] what of them.
pub const COMPARE: &str = "/compare";
/// Where [`SCRIPT`] is.
pub const SCRIPT_PATH: &str = "/browse.js";
/// Answers with a word that stands for all that is in the folder, once that is not `since` any more.
pub const CHANGES: &str = "/changes";

/// What pages do of themselves.
pub const SCRIPT: &str = concat!(include_str!("browse.js"), include_str!("../html/tables.js"));

/// Runs that can be compared at a time: more could not be told apart.
pub const MOST_COMPARED: usize = 4;

/// A folder that `lab run` made.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its path below the folder that is shown, parts joined by `/`; empty if it is that one.
    pub id: String,
    /// Whether something is to come.
    pub state: State,
    /// When it was begun, milliseconds since the Unix epoch.
    pub begun_unix_ms: u64,
    /// What is in it, or in one line why that cannot be read.
    pub sweep: Result<Sweep, String>,
}

/// How far a sweep is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// A program is at work in the folder.
    Running,
    /// All that was asked for has run.
    Finished,
    /// Runs are missing, and nobody makes them.
    Unfinished,
}

/// What the list says of a folder's runs.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// The scenario's name.
    pub scenario: String,
    /// The scenario's title.
    pub title: String,
    /// What ran it; none before the first record.
    pub backend: Option<Backend>,
    /// Runs by outcome.
    pub counts: Counts,
    /// How many were asked for.
    pub planned: usize,
    /// What came out.
    pub conclusion: Conclusion,
}

impl Sweep {
    /// What there is to say of a report, of which `planned` runs were asked for.
    pub fn of(report: &Report<'_>, planned: usize) -> Sweep {
        Sweep {
            scenario: report.scenario.name.clone(),
            title: report.scenario.title.clone(),
            backend: report.summary.backend,
            counts: report.summary.counts,
            planned,
            conclusion: report.conclusion(),
        }
    }
}

/// A page for what cannot be shown: `what` says why, in one line.
pub fn trouble(title: &str, what: &str) -> String {
    page(title, Place::Below, html! { h1 { (title) } p { (what) } })
}

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    List,
    Below,
}

/// A page with the way back, and the way to its main part for those who go by keyboard.
fn page(title: &str, place: Place, main: Markup) -> String {
    let here = (place == Place::List).then_some("page");
    let body = html! {
        a class="skip" href="#main" { "To the content" }
        nav aria-label="Results" { a href=(LIST) aria-current=[here] { "All results" } }
        main id="main" tabindex="-1" { (main) }
        // Told to who cannot see that something has changed.
        p id="told" class="unseen" role="status" {}
    };
    let head = html! {
        // Ours, and without markup.
        style { (maud::PreEscaped(include_str!("browse.css"))) }
        script src=(SCRIPT_PATH) defer {}
    };
    html::document_with(title, &head, &body)
}

/// In a word or two.
fn backend_name(backend: Option<Backend>) -> &'static str {
    match backend {
        Some(Backend::Live) => "live",
        Some(Backend::Sim) => "simulated",
        None => "not run yet",
    }
}

/// A link to a run's report, or to others' that take its `id`.
fn link(path: &str, name: &str, ids: &[&str]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(ids.iter().map(|id| (name, id)));
    format!("{path}?{}", query.finish())
}

/// How far a sweep is, as a bar and in words.
fn progress(listed: &Listed, sweep: &Sweep) -> Markup {
    let counts = sweep.counts;
    let done = counts.total();
    html! {
        @if listed.state == State::Running {
            progress max=(sweep.planned.max(1)) value=(done) aria-label="runs made" {} " "
        }
        @match listed.state {
            State::Finished => { (done) " runs" }
            State::Running => { (done) " of " (sweep.planned) " runs, running" }
            State::Unfinished => { (done) " of " (sweep.planned) " runs, stopped" }
        }
        @if done > 0 && counts.measured == done { ", " span class="good" { "all trusted" } }
        @if counts.untrusted > 0 { ", " span class="bad" { (counts.untrusted) " untrusted" } }
        @if counts.failed > 0 { ", " span class="bad" { (counts.failed) " failed" } }
    }
}
