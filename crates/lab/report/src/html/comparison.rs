//! Our runs beside reference curves: a page of its own.

use maud::{Markup, html};

use super::{document, named};
use crate::compare::{Against, CLOSE, Line, Ours, answer};
use crate::plot::scatter::{Dot, ScatterChart};
use crate::plot::{Kind, legend};
use crate::view::variant_name;
use midspan_units::number::{Quantity, factor};

/// A page of the comparison alone.
pub(crate) fn page(title: &str, all: &Against<'_>) -> String {
    let body = html! {
        h1 { (title) }
        div class="verdict" { @for sentence in all.sentences() { p { (sentence) } } }
        (body(all))
    };
    document(title, &body)
}

fn body(all: &Against<'_>) -> Markup {
    let chart = scatter(all);
    html! {
        @if !chart.dots.is_empty() {
            (legend(&named(&all.variants()), Kind::Marks, &[]))
            figure class="square" { (chart.draw()) }
            p class="caption" {
                "Agreement lies on the line; the band holds what is within " (format!("{:.0} %", CLOSE * 100.0)) ". \
                 Compared is what the sender's next TCP acknowledged, which is what the reference \
                 counts."
            }
        }
        (cells(all))
        @if !all.contests.is_empty() { h3 { "Does a proxy help?" } (contests(all)) }
    }
}

fn scatter(all: &Against<'_>) -> ScatterChart {
    let dot = |line: &Line<'_>| {
        let ours = line.ours?;
        Some(Dot {
            variant: line.pair.variant,
            reference: line.reference(),
            ours: ours.stats.mean,
            hover: format!(
                "{}\nreference {}\nours {}\nratio {}",
                line.conditions().join(", "),
                Quantity::Rate.with_unit(line.reference()),
                Quantity::Rate.with_unit(ours.stats.mean),
                factor(ours.ratio)
            ),
        })
    };
    ScatterChart {
        description: "Our goodput over the reference's, cell by cell".to_owned(),
        x_title: "reference".to_owned(),
        y_title: "ours".to_owned(),
        quantity: Quantity::Rate,
        dots: all.lines.iter().filter_map(dot).collect(),
        band: CLOSE,
    }
}

fn cells(all: &Against<'_>) -> Markup {
    html! {
        div class="scroll" { table {
            thead { tr {
                @for name in ["control", "RTT", "access RTT", "impairment", "through"] {
                    th class="text" { (name) }
                }
                th { "reference, Mbit/s" } th { "ours ± sd" } th { "ratio" }
                th title="What the number of losses on both sides alone lets expect" { "by chance" }
            } }
            tbody { @for line in &all.lines { tr {
                @for condition in line.conditions() { td class="text" { (condition) } }
                td { (Quantity::Rate.digits(line.reference())) }
                @match line.ours {
                    Some(ours) => (numbers(ours, &line.chance())),
                    None => { td class="missing" { "–" } td {} td {} }
                }
            } } }
        } }
    }
}

fn numbers(Ours { stats, ratio }: Ours, chance: &str) -> Markup {
    let far = (ratio - 1.0).abs() > CLOSE;
    html! {
        td {
            (Quantity::Rate.digits(stats.mean))
            @if let Some(deviation) = stats.deviation {
                span class="spread" { " ± " (Quantity::Rate.spread(deviation, stats.mean)) }
            }
        }
        td class=[far.then_some("bad")] { (factor(ratio)) }
        td { span class="spread" { (chance) } }
    }
}

fn contests(all: &Against<'_>) -> Markup {
    let say = |same: Option<bool>| {
        html! { td class={ "text" @if same == Some(false) { " bad" } } { (answer(same)) } }
    };
    html! {
        div class="scroll" { table {
            thead { tr {
                th class="text" { "cell" } th class="text" { "proxy" } th { "reference" } th { "ours" }
                th class="text" { "same winner" } th class="text" { "same order" }
            } }
            tbody { @for bout in &all.contests { tr {
                td class="text" { (bout.cell) }
                td class="text" { (variant_name(bout.contest.variant)) }
                td { (factor(bout.contest.theirs)) " x" }
                td { @match bout.ours { Some(ours) => { (factor(ours)) " x" } None => "–" } }
                (say(bout.ours.and(bout.contest.same_winner)))
                (say(bout.ours.and(bout.contest.same_order)))
            } } }
        } }
    }
}
