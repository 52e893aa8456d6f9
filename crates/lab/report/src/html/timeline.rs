//! Legs and queues over time.

use maud::{Markup, html};

use crate::Report;
use crate::timeline::{self, Timelines};

/// A drawing for each variant of each cell whose records have series; nothing where none has. Of many cells the first
/// is open.
pub(super) fn section(report: &Report<'_>) -> Markup {
    let cells = timeline::of(report.scenario, &report.summary, report.records);
    html! {
        @if !cells.is_empty() {
            h2 { "Over time" }
            p class="caption" {
                "Of each variant the first run with a number, all of a cell on the same axes. A leg is shown as the end that sends \
                 the data has it; of many looks each stretch's least and greatest. All of it is in the records."
            }
            @if let [only] = &cells[..] { (drawings(only)) } @else {
                @for (index, cell) in cells.iter().enumerate() {
                    details open[index == 0] {
                        summary { (cell.cell) }
                        (drawings(cell))
                    }
                }
            }
        }
    }
}

fn drawings(cell: &Timelines) -> Markup {
    html! {
        @for (title, trace) in &cell.runs {
            figure { h4 { (title) } (trace.draw()) }
        }
    }
}
