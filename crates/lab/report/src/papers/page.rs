//! The same as one HTML page.

use maud::{Markup, html};

use super::claim::{COLUMNS, Row};
use super::{Agreement, MEANING, Papers, Shown, ShownItem};
use crate::html::document;

pub(super) fn page(all: &Papers) -> String {
    let body = html! {
        header {
            h1 { "The five papers, figure by figure" }
            div class="verdict" {
                p { (all.count()) }
                @if let Some(sentence) = all.live_beside_simulated() { p { (sentence) } }
            }
            @for sentence in MEANING { p class="soft" { (plain(sentence)) } }
        }
        main {
            @for shown in &all.papers { (contents(shown)) }
            @for shown in &all.papers { (paper(shown)) }
        }
    };
    document("The five papers", &body)
}

fn contents(Shown { paper, items }: &Shown) -> Markup {
    html! {
        div class="scroll" { table {
            thead { tr { th class="text" colspan="3" { a href={ "#" (paper.short) } { (paper.short) } } } }
            tbody { @for item in items { tr {
                td class="text" { a href={ "#" (item.anchor(paper)) } { (item.item.name()) } }
                td class="text wrap" { (item.item.title) }
                td class={ "text wrap " (tone(item.agreement)) } { (item.agreement.words()) }
            } } }
        } }
    }
}

fn paper(Shown { paper, items }: &Shown) -> Markup {
    html! {
        h2 id=(paper.short) { (paper.short) ": " (paper.title) }
        p class="soft" { (paper.by) }
        p { (plain(&paper.about)) }
        @for shown in items {
            h3 id=(shown.anchor(paper)) { (shown.item.name()) ": " (shown.item.title) }
            (item(shown))
        }
    }
}

fn item(ShownItem { item, rows, drawings, agreement }: &ShownItem) -> Markup {
    html! {
        p { strong class=(tone(*agreement)) { (agreement.sentence()) } " " (plain(&item.says)) }
        @for ((_, drawing), chart) in drawings.iter().zip(&item.chart) {
            @if !chart.title.is_empty() { h4 { (chart.title) } }
            figure { (drawing) }
        }
        @if !rows.is_empty() { (table(rows)) }
        @let runs: std::collections::BTreeSet<&str> = item.runs().collect();
        @if !runs.is_empty() {
            p class="caption" { "Records: " (runs.into_iter().collect::<Vec<_>>().join(", ")) }
        }
        @if !item.code.is_empty() {
            p class="caption" { "Code: " (item.code.join(", ")) }
        }
    }
}

fn table(rows: &[Row]) -> Markup {
    html! {
        div class="scroll" { table {
            thead { tr { @for (index, title) in COLUMNS.iter().enumerate() {
                th class=(if index == 0 { "text" } else { "" }) { (title) }
            } } }
            tbody { @for row in rows { tr {
                td class="text wrap" { (row.says) }
                td class="reported" { (row.paper) }
                @for (index, column) in row.columns().into_iter().enumerate() {
                    @let is_mark = index == 1 || index == 3;
                    td class=(match column.chars().last() {
                        Some('✓') if is_mark => "good",
                        Some('✗') if is_mark => "bad",
                        _ => "",
                    }) { (column) }
                }
            } } }
        } }
    }
}

fn tone(agreement: Agreement) -> &'static str {
    match agreement {
        Agreement::Reproduced => "good",
        Agreement::Differs | Agreement::NotRun => "bad",
        Agreement::Part(..) | Agreement::Shown => "",
        Agreement::NotApplicable => "soft",
    }
}

/// Without the little Markdown that descriptions have.
fn plain(text: &str) -> String {
    text.replace(['*', '`'], "")
}
