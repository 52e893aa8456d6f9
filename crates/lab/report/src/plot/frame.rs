//! What every plot has: a canvas with margins, axes, grid lines and a legend.

use maud::{Markup, html};

use super::scale::Scale;
use crate::view::Mark;

/// The rectangle in which values are drawn, in the SVG's own units (a CSS pixel at full size).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Frame {
    /// The vertical place of `value`; SVG counts downwards.
    pub(crate) fn y(&self, scale: Scale, value: f64) -> f64 {
        self.top + self.height * (1.0 - scale.place(value))
    }

    /// The horizontal place of `value`.
    pub(crate) fn x(&self, scale: Scale, value: f64) -> f64 {
        self.left + self.width * scale.place(value)
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    /// Horizontal grid lines with their labels, and the axis' title along them, if it has one.
    pub(crate) fn y_axis(
        &self,
        scale: Scale,
        title: &str,
        label: impl Fn(f64) -> String,
    ) -> Markup {
        let middle = self.top + self.height / 2.0;
        html! {
            @for tick in scale.ticks() {
                @let y = px(self.y(scale, tick.value));
                line class=(if tick.major { "grid" } else { "grid minor" })
                    x1=(px(self.left)) x2=(px(self.right())) y1=(y) y2=(y) {}
                @if tick.major {
                    text class="tick" x=(px(self.left - 6.0)) y=(y) dy="0.32em" text-anchor="end" {
                        (label(tick.value))
                    }
                }
            }
            @if !title.is_empty() {
                text class="axis" text-anchor="middle"
                    transform={ "translate(12 " (px(middle)) ") rotate(-90)" } { (title) }
            }
        }
    }

    /// Vertical grid lines with their labels below, where they are not empty.
    pub(crate) fn x_ticks(&self, scale: Scale, label: impl Fn(f64) -> String) -> Markup {
        html! {
            @for tick in scale.ticks().iter().filter(|tick| tick.major) {
                @let place = px(self.x(scale, tick.value));
                line class="grid" x1=(place) x2=(place) y1=(px(self.top)) y2=(px(self.bottom())) {}
                @let label = label(tick.value);
                @if !label.is_empty() {
                    text class="tick" text-anchor="middle" x=(place) y=(px(self.bottom() + 17.0)) { (label) }
                }
            }
        }
    }

    /// Levels across, whatever their names.
    pub(crate) fn rules(&self, scale: Scale, rules: &[(String, f64)]) -> Markup {
        html! {
            @for (_, level) in rules {
                path class="rule" d={
                    "M" (px(self.left)) " " (px(self.y(scale, *level))) "H" (px(self.right()))
                } {}
            }
        }
    }

    /// The base line, and the title of the axis below it and its labels, which take `labels` more than a line.
    pub(crate) fn x_axis(&self, title: &str, labels: f64) -> Markup {
        let y = px(self.bottom());
        html! {
            line class="base" x1=(px(self.left)) x2=(px(self.right())) y1=(y) y2=(y) {}
            text class="axis" text-anchor="middle"
                x=(px(self.left + self.width / 2.0)) y=(px(self.bottom() + 38.0 + labels)) { (title) }
        }
    }
}

/// Two decimals are finer than any screen or printer shows.
pub(crate) fn px(value: f64) -> String {
    let text = format!("{:.2}", if value.is_finite() { value } else { 0.0 });
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A whisker from `low` to `high` with caps, around `x`.
pub(crate) fn whisker(x: f64, low: f64, high: f64, half: f64) -> Markup {
    let path = format!(
        "M{l} {hi}H{r}M{l} {lo}H{r}M{x} {hi}V{lo}",
        l = px(x - half),
        r = px(x + half),
        x = px(x),
        hi = px(high),
        lo = px(low),
    );
    html! { path class="whisker" d=(path) {} }
}

/// The paper's number: a diamond, full if the paper states it and hollow if it follows from a gain.
pub(crate) fn reported_mark(mark: Mark, x: f64, y: f64) -> Markup {
    let class = match mark {
        Mark::Stated(_) => "reported",
        Mark::FromGain(_) => "reported hollow",
    };
    let size = 5.5;
    let path = format!(
        "M{} {}L{} {}L{} {}L{} {}Z",
        px(x),
        px(y - size),
        px(x + size),
        px(y),
        px(x),
        px(y + size),
        px(x - size),
        px(y)
    );
    html! { path class=(class) d=(path) {} }
}
