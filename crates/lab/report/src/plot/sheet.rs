//! The sheet that a drawing of its own is on: size, background, style, legend.

use maud::{Markup, PreEscaped, html};

use super::figure::{Source, mark};
use super::frame::px;

/// So many colours can be told apart.
pub(crate) const HUES: usize = 8;

/// The style of such drawings: in each, and once on a page that has them all.
pub(crate) const STYLE: &str = include_str!("sheet.css");

/// One line of a legend.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) text: String,
    /// Its colour; none if it is of no series.
    pub(crate) hue: Option<usize>,
    pub(crate) sample: Sample,
}

/// What stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sample {
    Bar,
    LightBar,
    Line,
    Mark,
    HollowMark,
    Paper,
    HollowPaper,
    Rule,
}

/// A legend above a drawing.
pub(crate) struct Legend {
    pub(crate) drawing: Markup,
    pub(crate) height: f64,
}

const ROW: f64 = 19.0;
const CHARACTER: f64 = 6.3;

/// The entries in rows of at most `width`.
pub(crate) fn legend(entries: &[Entry], width: f64) -> Legend {
    let (mut x, mut y) = (10.0, 14.0);
    let mut placed = Vec::new();
    for entry in entries {
        let takes = 24.0 + entry.text.chars().count() as f64 * CHARACTER + 16.0;
        if x > 10.0 && x + takes > width {
            (x, y) = (10.0, y + ROW);
        }
        placed.push((x, y, entry));
        x += takes;
    }
    let drawing = html! {
        @for (x, y, entry) in &placed {
            (sample(entry, *x, *y))
            text class="key" x=(px(x + 24.0)) y=(px(*y)) dy="0.34em" { (entry.text) }
        }
    };
    Legend { drawing, height: y + ROW / 2.0 }
}

fn sample(entry: &Entry, x: f64, y: f64) -> Markup {
    let middle = x + 9.0;
    let source = match entry.sample {
        Sample::LightBar | Sample::HollowMark => "sim",
        Sample::Paper => "paper",
        Sample::HollowPaper => "paper hollow",
        Sample::Bar | Sample::Line | Sample::Mark | Sample::Rule => "live",
    };
    let hue = entry.hue.map_or("plain".to_owned(), |hue| format!("h{}", hue % HUES));
    html! {
        g class={ (hue) " " (source) } {
            @match entry.sample {
                Sample::Bar | Sample::LightBar => {
                    rect class="fill" x=(px(x + 2.0)) y=(px(y - 6.0)) width="14" height="12" {}
                }
                Sample::Line => path class="line" d={ "M" (px(x)) " " (px(y)) "h18" } {},
                Sample::Rule => path class="rule" d={ "M" (px(x)) " " (px(y)) "h18" } {},
                Sample::Mark => (mark(Source::Live, middle, y)),
                Sample::HollowMark => {
                    path class="line" d={ "M" (px(x)) " " (px(y)) "h18" } {}
                    (mark(Source::Sim, middle, y))
                }
                Sample::Paper | Sample::HollowPaper => (mark(Source::Paper, middle, y)),
            }
        }
    }
}

/// A drawing of `width` times `height` by itself.
pub(crate) fn svg(description: &str, width: f64, height: f64, body: &Markup) -> Markup {
    html! {
        svg xmlns="http://www.w3.org/2000/svg" class="sheet" viewBox={ "0 0 " (px(width)) " " (px(height)) } role="img"
            aria-label=(description) {
            // The style sheet is ours and holds no markup.
            style { (PreEscaped(STYLE)) }
            rect class="ground" width=(px(width)) height=(px(height)) {}
            (body)
        }
    }
}
