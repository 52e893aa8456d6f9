//! All runs of a folder.

use std::cmp::Reverse;

use maud::{Markup, html};

use super::{COMPARE, Listed, MOST_COMPARED, RUN, State, Sweep, backend_name, link, progress};
use crate::Outcome;
use crate::machine::utc;

/// The list, what runs now first, then the newest first. `folder` is where they are.
pub fn page(folder: &str, runs: &[Listed]) -> String {
    let mut runs: Vec<&Listed> = runs.iter().collect();
    runs.sort_by_key(|run| (run.state != State::Running, Reverse(run.begun_unix_ms), &run.id));
    let main = html! {
        header {
            h1 { "Results" }
            p class="lead" { code { (folder) } }
        }
        form action=(COMPARE) {
            div class="tools" data-filters="runs" {
                button type="submit" { "Compare chosen runs" }
            }
            div id="list" data-live { (table(&runs)) }
        }
    };
    super::page("Results", super::Place::List, main)
}

fn table(runs: &[&Listed]) -> Markup {
    html! {
        @if runs.is_empty() {
            p { "There are no results yet: " code { "midspan lab run SCENARIO" } " makes some." }
        } @else {
            // Told what they are, since a telephone shows them otherwise than as a table.
            table id="runs" class="list sortable" role="table" {
                caption class="unseen" { "Runs; choose two to " (MOST_COMPARED) " to compare them" }
                thead role="rowgroup" { tr role="row" {
                    th scope="col" role="columnheader" { span class="unseen" { "Chosen" } }
                    @for (index, name) in ["Scenario", "When", "What came out", "Runs"].into_iter().enumerate() {
                        th scope="col" role="columnheader" class="text" data-sorts=(index + 1) { (name) }
                    }
                } }
                tbody role="rowgroup" { @for run in runs { (row(run)) } }
            }
        }
    }
}

fn row(run: &Listed) -> Markup {
    let when = utc(run.begun_unix_ms);
    let (title, name, backend) = match &run.sweep {
        Ok(sweep) => (&*sweep.title, &*sweep.scenario, backend_name(sweep.backend)),
        Err(_) => (if run.id.is_empty() { "this folder" } else { &*run.id }, "", ""),
    };
    let chosen = format!("Choose {title}, {backend}, {when}");
    html! {
        tr role="row" data-state=(format!("{:?}", run.state).to_lowercase()) {
            td role="cell" class="choice" {
                @if run.sweep.is_ok() { input type="checkbox" name="run" value=(run.id) aria-label=(chosen); }
            }
            td role="cell" class="text what" data-by=(title) {
                a href=(link(RUN, "id", &[&run.id])) { (title) }
                div class="soft" { (name) @if !name.is_empty() { " · " } span class="backend" { (backend) } }
            }
            td role="cell" class="text when" data-by=(run.begun_unix_ms) { (when) }
            @match &run.sweep {
                Ok(sweep) => {
                    td role="cell" class="text outcome" { (outcome(sweep)) }
                    td role="cell" class="text counts" data-by=(sweep.counts.total()) { (progress(run, sweep)) }
                }
                Err(why) => {
                    td role="cell" class="text outcome bad" { (why) }
                    td role="cell" {}
                }
            }
        }
    }
}

fn outcome(sweep: &Sweep) -> Markup {
    let class = match sweep.conclusion.outcome {
        Outcome::Good => "came-good",
        Outcome::Slower => "came-slower",
        Outcome::Unknown => "came-open",
    };
    let said = sweep.conclusion.sentences.first().filter(|_| sweep.counts.total() > 0);
    html! {
        @match said {
            Some(sentence) => div class=(class) { (sentence) },
            None => span class="soft" { "No run has ended yet." },
        }
    }
}
