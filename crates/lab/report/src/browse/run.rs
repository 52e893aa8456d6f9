//! One run.

use maud::html;

use super::{COMPARE, Listed, link, progress};
use crate::machine::utc;
use crate::{Report, html};

/// A run's report, with how far it is; `report` is none before the first record.
pub fn page(listed: &Listed, report: Option<&Report<'_>>) -> String {
    let title = match &listed.sweep {
        Ok(sweep) => &*sweep.title,
        Err(_) => "Results that cannot be read",
    };
    let main = html! {
        div id="state" class="state" data-live {
            p {
                @if !listed.id.is_empty() { code { (listed.id) } " · " }
                "begun " (utc(listed.begun_unix_ms))
                @if let Ok(sweep) = &listed.sweep { " · " (progress(listed, sweep)) }
            }
            @if report.is_some() {
                p { a href=(link(COMPARE, "run", &[&listed.id])) { "Pick axes and measures" } }
            }
        }
        div id="report" data-live {
            @match (report, &listed.sweep) {
                (Some(report), _) => (html::body(report)),
                (None, Ok(_)) => { h1 { (title) } p { "No run has ended yet." } }
                (None, Err(why)) => { h1 { (title) } p class="bad" { (why) } }
            }
        }
    };
    super::page(title, super::Place::Below, main)
}
