//! What splitting gains: a page of its own.

use maud::{Markup, html};

use super::{document, tone};
use crate::gain::{Effect, Hour, Page};
use crate::plot::effect::{forest, legend, over_time, scale};
use midspan_units::number::{count, factor};

const TITLE: &str = "What splitting gains";
/// More of them cannot be told apart in a plot: a week.
const MOST_HOURS: usize = 168;

/// Draws the page.
pub(crate) fn page(page: &Page<'_>) -> String {
    let conclusion = page.conclusion();
    let all = page.all.map(std::slice::from_ref).unwrap_or_default();
    let whole_and_sizes: Vec<Effect> = all.iter().chain(page.sizes).cloned().collect();
    let least = page.hours.len().saturating_sub(MOST_HOURS);
    let body = html! {
        header {
            h1 { (TITLE) }
            p class="lead" { "by " (page.source) }
            div class=(tone(conclusion.outcome)) {
                @for sentence in &conclusion.sentences { p { (sentence) } }
            }
        }
        main {
            (legend())
            (section("All, and by size", "By what connections carried, both ways.", &whole_and_sizes, usize::MAX))
            (hours(&page.hours[least..]))
            (section("By server", "Each address by itself.", page.services, page.most))
            (section("By servers' network", "A network is a /24 of IPv4, a /48 of IPv6.", page.prefixes, page.most))
            @if !page.notes.is_empty() {
                h2 { "Left out" }
                ul class="notes" { @for note in page.notes { li { (note) "." } } }
            }
        }
        footer { p { (meaning_of_numbers()) } }
    };
    document(TITLE, &body)
}

/// A plot and a table of the first `most`.
fn section(title: &str, caption: &str, effects: &[Effect], most: usize) -> Markup {
    let shown = &effects[..most.min(effects.len())];
    let more = effects.len() - shown.len();
    html! {
        @if !shown.is_empty() {
            h2 { (title) }
            figure { (forest(title, shown, scale(shown))) }
            p class="caption" {
                (caption)
                @if more > 0 { " " (count(more as u64)) " more are not shown." }
            }
            (table(shown))
        }
    }
}

fn hours(hours: &[Hour]) -> Markup {
    let title = "Over time";
    let effects: Vec<Effect> = hours.iter().map(|hour| hour.effect.clone()).collect();
    html! {
        @if !hours.is_empty() {
            h2 { (title) }
            figure { (over_time(title, hours, scale(&effects))) }
            p class="caption" {
                "Each hour by its own connections alone, a week at most. One without a mark has too few to say anything."
            }
            details { summary { "Hour by hour" } (table(&effects)) }
        }
    }
}

fn table(effects: &[Effect]) -> Markup {
    let times = |value: Option<f64>| value.map_or("–".to_owned(), factor);
    html! {
        div class="scroll" { table {
            thead { tr {
                th class="text" { "connections" } th { "split" } th { "held out" } th { "gain" }
                th { "at least" } th { "at most" } th class="text" { "splitting is" }
            } }
            tbody { @for effect in effects { tr {
                td class="text" { (effect.of) }
                td { (count(effect.split)) }
                td { (count(effect.held_out)) }
                @for value in [effect.gain, effect.at_least, effect.at_most] { td { (times(value)) } }
                td class="text" { (effect.verdict.label()) }
            } } }
        } }
    }
}

fn meaning_of_numbers() -> &'static str {
    "A gain is how many times faster connections were done if they were split, from their first SYN until their ends had \
     acknowledged all, beside those that by chance were not. Lines are bounds that hold at all times together, for each \
     line by itself, but for one time in twenty, however often one looks. Splitting is faster or slower where the bounds \
     say so; no slower where they exclude that it is slower by more than 3 %; else it is not known yet."
}
