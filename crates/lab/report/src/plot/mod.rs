//! Plots as inline SVG. Colours come from the page's style sheet, so that one drawing serves light
//! screens, dark screens and paper.

pub(crate) mod bars;
pub(crate) mod effect;
pub(crate) mod figure;
mod frame;
pub(crate) mod lines;
mod scale;
pub(crate) mod scatter;
pub(crate) mod sheet;
pub(crate) mod trace;

use maud::{Markup, html};
use midspan_scenario::record::Variant;

pub(crate) use scale::Scale;

use crate::view::Mark;
use frame::px;

/// The style sheet's class of a variant.
pub(crate) fn class(variant: Variant) -> &'static str {
    match variant {
        Variant::None => "v-none",
        Variant::Midspan => "v-midspan",
        Variant::Haproxy => "v-haproxy",
    }
}

/// A mark whose shape tells the variants apart without colour.
fn marker(variant: Variant, x: f64, y: f64) -> Markup {
    html! {
        @match variant {
            Variant::None => {
                rect class="mark" x=(px(x - 3.6)) y=(px(y - 3.6)) width="7.2" height="7.2" {}
            }
            Variant::Midspan => circle class="mark" cx=(px(x)) cy=(px(y)) r="4.2" {},
            Variant::Haproxy => {
                @let path = format!("M{} {}l4.6 8h-9.2Z", px(x), px(y - 4.9));
                path class="mark" d=(path) {}
            }
        }
    }
}

/// What kind of drawing a legend explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bars with single runs as dots.
    Bars,
    /// Lines through marks.
    Lines,
    /// Marks alone.
    Marks,
}

/// The legend of plots of `kind` that show `variants` by name and `reported` marks.
pub(crate) fn legend(variants: &[(Variant, &str)], kind: Kind, reported: &[Mark]) -> Markup {
    let stated = reported.iter().find(|mark| matches!(mark, Mark::Stated(_)));
    let from_gain = reported.iter().find(|mark| matches!(mark, Mark::FromGain(_)));
    html! {
        ul class="legend" {
            @for (variant, name) in variants {
                li { (swatch(class(*variant), sample(*variant, kind))) (name) }
            }
            @if kind == Kind::Bars {
                li { (swatch("", html! { circle class="run" cx="8" cy="8" r="2.4" {} })) "single run" }
            }
            @if kind != Kind::Marks {
                li { (swatch("", frame::whisker(8.0, 14.0, 2.0, 3.5))) "± standard deviation" }
            }
            @if let Some(mark) = stated {
                li { (swatch("", frame::reported_mark(*mark, 8.0, 8.0))) "the paper's number" }
            }
            @if let Some(mark) = from_gain {
                li {
                    (swatch("", frame::reported_mark(*mark, 8.0, 8.0)))
                    "the paper's gain, times no proxy"
                }
            }
        }
    }
}

fn sample(variant: Variant, kind: Kind) -> Markup {
    html! {
        @match kind {
            Kind::Bars => rect class="fill" x="1" y="1" width="14" height="14" {},
            Kind::Lines => {
                path class="line" d="M0 8H16" {}
                (marker(variant, 8.0, 8.0))
            }
            Kind::Marks => (marker(variant, 8.0, 8.0)),
        }
    }
}

fn swatch(class: &str, drawing: Markup) -> Markup {
    html! {
        svg class="swatch" viewBox="0 0 16 16" aria-hidden="true" { g class=(class) { (drawing) } }
    }
}
