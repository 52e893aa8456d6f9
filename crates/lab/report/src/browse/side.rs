//! Runs side by side, or one along an axis of choice.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use midspan_scenario::beside::Beside;
use midspan_scenario::record::Variant;

use super::view::{Column, View, letter};
use super::{COMPARE, MOST_COMPARED, RUN, backend_name, link};
use crate::machine::utc;
use crate::view::{Entry, axis_name, variant_name};
use crate::{Report, beside};
use midspan_units::number::{factor, sort_key};

/// One of the runs.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// As [`Listed::id`](super::Listed::id).
    pub id: &'a str,
    /// When it was begun, milliseconds since the Unix epoch.
    pub begun_unix_ms: u64,
    /// Its report.
    pub report: &'a Report<'a>,
}

/// What is asked for; what is unknown counts as not asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pick {
    /// Which runs, in the order in which they were named, each once.
    pub runs: Vec<String>,
    /// `measure`: of which number.
    pub measure: Option<String>,
    /// `along`: over which axis.
    pub along: Option<String>,
    /// `through`: which variant; all without.
    pub through: Option<String>,
    /// `at.AXIS`: at which point of another axis; all points without.
    pub at: BTreeMap<String, String>,
}

/// What stands before the name of an axis that is held at a point.
const AT: &str = "at.";
/// Drawings that a page has at most.
const FIGURES: usize = 12;

impl Pick {
    /// What an address' query asks for. What is empty is left out.
    pub fn parse(query: &str) -> Pick {
        let mut pick = Pick::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            match &*name {
                "run" if !pick.runs.contains(&value) => pick.runs.push(value),
                _ if value.is_empty() => {}
                "measure" => pick.measure = Some(value),
                "along" => pick.along = Some(value),
                "through" => pick.through = Some(value),
                name => {
                    if let Some(axis) = name.strip_prefix(AT) {
                        pick.at.insert(axis.to_owned(), value);
                    }
                }
            }
        }
        pick
    }
}

/// The page of one to [`MOST_COMPARED`] runs.
pub fn page(sides: &[Side<'_>], pick: &Pick) -> String {
    let title = match sides {
        [one] => one.report.scenario.title.clone(),
        _ => format!("{} runs compared", sides.len()),
    };
    let main = html! {
        header { h1 { (title) } }
        div id="sides" data-live { (compared(sides)) }
        @match View::of(sides, pick) {
            Some(view) => {
                (form(&view))
                div id="numbers" data-live { (figures(&view)) (table(&view)) }
            }
            None => p { "Nothing has been measured yet." }
        }
        @if sides.len() == 1 {
            p { "Choose more runs in the list, " (MOST_COMPARED) " at most, to see them side by side." }
        }
    };
    super::page(&title, super::Place::Below, main)
}

/// Which runs they are, and how far two of one scenario agree.
fn compared(sides: &[Side<'_>]) -> Markup {
    let agreement = match sides {
        [ours, theirs] if ours.report.scenario.name == theirs.report.scenario.name => {
            let beside = Beside::of(&ours.report.summary, &theirs.report.summary);
            beside::sentences(&beside)
        }
        _ => Vec::new(),
    };
    let digest = |side: &Side<'_>| side.report.summary.digest.clone();
    let same = sides.windows(2).all(|pair| digest(&pair[0]) == digest(&pair[1]));
    html! {
        @if !agreement.is_empty() {
            div class="verdict unknown" { @for sentence in &agreement { p { (sentence) } } }
        }
        dl class="facts" {
            @for (index, side) in sides.iter().enumerate() {
                dt { (letter(index)) }
                dd {
                    a href=(link(RUN, "id", &[side.id])) { (side.report.scenario.title) }
                    " · " (side.report.scenario.name) " · " (backend_name(side.report.summary.backend))
                    " · " (utc(side.begun_unix_ms))
                }
            }
        }
        @if !same && agreement.is_empty() {
            p class="soft" { "They are of different scenarios: cells are matched by their labels." }
        } @else if !same {
            p class="soft" { "They are of different versions of the scenario." }
        }
    }
}

fn form(view: &View<'_>) -> Markup {
    let others = view.axes.iter().filter(|axis| Some(&axis.name) != view.along.as_ref());
    let variants: BTreeSet<Variant> =
        view.sides.iter().flat_map(|side| side.report.scenario.variants.clone()).collect();
    let all = |is_picked| (String::new(), "all".to_owned(), is_picked);
    html! {
        form class="tools picks" action=(COMPARE) aria-label="What is shown" {
            @for side in view.sides { input type="hidden" name="run" value=(side.id); }
            (choice("measure", "Measure", view.metrics.iter().map(|metric| {
                (metric.name.to_owned(), metric.title.to_owned(), *metric == view.metric)
            })))
            @if view.axes.len() > 1 {
                (choice("along", "Along", view.axes.iter().map(|axis| {
                    (axis.name.clone(), axis_name(&axis.name), Some(&axis.name) == view.along.as_ref())
                })))
            }
            @for axis in others {
                @let held = view.at.get(&axis.name);
                (choice(&format!("{AT}{}", axis.name), &format!("At {}", axis_name(&axis.name)),
                    std::iter::once(all(held.is_none())).chain(axis.points.iter().map(|point| {
                        (point.clone(), point.clone(), Some(point) == held)
                    }))))
            }
            @if variants.len() > 1 {
                (choice("through", "Through", std::iter::once(all(view.through.is_none())).chain(variants.iter().map(|variant| {
                    (variant.to_string(), variant_name(*variant).to_owned(), Some(*variant) == view.through)
                }))))
            }
            button type="submit" { "Show" }
        }
    }
}

/// A list to pick one of: its value, its name, and whether it is picked.
fn choice(
    name: &str,
    label: &str,
    options: impl Iterator<Item = (String, String, bool)>,
) -> Markup {
    html! {
        span class="choice" {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                @for (value, text, is_picked) in options {
                    option value=(value) selected[is_picked] { (text) }
                }
            }
        }
    }
}

fn figures(view: &View<'_>) -> Markup {
    let figures = view.figures();
    let more = figures.len().saturating_sub(FIGURES);
    html! {
        h2 { (view.metric.title) }
        p class="caption" { (view.metric.meaning) }
        @for (title, figure) in figures.iter().take(FIGURES) {
            figure { @if !title.is_empty() { h3 { (title) } } (figure.draw()) }
        }
        @if more > 0 { p class="soft" { (more) " more are in the table alone: hold an axis at a point to see them." } }
    }
}

fn table(view: &View<'_>) -> Markup {
    let ratios = |column: &Column| view.base(*column).is_some();
    let mut next = view.axes.len();
    let numbers = view.columns.iter().map(|column| {
        let index = next;
        next += 1 + usize::from(ratios(column));
        (index, column)
    });
    html! {
        div class="scroll" { table id="cells" class="sortable" {
            caption class="unseen" { (view.metric.title) " of each cell" }
            thead { tr {
                @for (index, axis) in view.axes.iter().enumerate() {
                    th scope="col" class="text" data-sorts=(index) { (axis_name(&axis.name)) }
                }
                @for (index, column) in numbers {
                    th scope="col" data-sorts=(index) { (view.name(*column)) (view.metric.quantity.axis_unit()) }
                    @if ratios(column) { th scope="col" data-sorts=(index + 1) { (letter(column.side)) " over A" } }
                }
            } }
            tbody { @for row in view.rows() { tr {
                @for axis in &view.axes { td class="text" { (row.get(&axis.name).map_or("", String::as_str)) } }
                @for column in &view.columns {
                    @let entry = view.entry(*column, &row);
                    (number(view, entry))
                    @if let Some(base) = view.base(*column) { (ratio(entry, view.entry(base, &row))) }
                }
            } } }
        } }
    }
}

fn number(view: &View<'_>, entry: Entry) -> Markup {
    let quantity = view.metric.quantity;
    let Entry::Measured(stats) = entry else {
        return html! { td class="missing" title=(entry.spelled_out()) data-by="-1" { (entry.instead()) } };
    };
    let unit = if quantity.axis_unit().is_empty() { quantity.unit_of(stats.mean) } else { "" };
    html! {
        td data-by=[sort_key(stats.mean)] {
            (quantity.digits(stats.mean))
            @if let Some(deviation) = stats.deviation {
                span class="spread" { " ± " (quantity.spread(deviation, stats.mean)) }
            }
            @if !unit.is_empty() { " " (unit) }
        }
    }
}

fn ratio(ours: Entry, base: Entry) -> Markup {
    match (ours, base) {
        (Entry::Measured(ours), Entry::Measured(base)) if base.mean != 0.0 => {
            let ratio = ours.mean / base.mean;
            html! { td data-by=[sort_key(ratio)] { (factor(ratio)) } }
        }
        _ => html! { td class="soft" data-by="-1" { "–" } },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_what_is_picked_and_nonsense_is_passed_over() {
        let pick = Pick::parse(
            "run=a%2Fb&run=c&run=a%2Fb&measure=goodput&along=&at.loss=0.5+%25&at.x=&odd=1&%ff=&&=",
        );
        assert_eq!(pick.runs, ["a/b", "c"]);
        assert_eq!((pick.measure.as_deref(), pick.along), (Some("goodput"), None));
        assert_eq!(pick.at, BTreeMap::from([("loss".to_owned(), "0.5 %".to_owned())]));
    }
}
