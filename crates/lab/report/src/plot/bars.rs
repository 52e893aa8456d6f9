//! Grouped bars: one group for each point of an axis, one bar for each variant.

use maud::{Markup, html};
use midspan_scenario::record::Variant;

use super::class;
use super::frame::{Frame, px, reported_mark, whisker};
use super::scale::Scale;
use crate::view::Mark;
use midspan_units::number::Quantity;

/// A chart of grouped bars.
#[derive(Debug, Clone)]
pub(crate) struct BarChart {
    /// What the chart shows, for those who cannot see it.
    pub(crate) description: String,
    /// Title and unit of the horizontal axis.
    pub(crate) x_title: String,
    /// What is measured, without its unit.
    pub(crate) y_title: String,
    /// How values are written.
    pub(crate) quantity: Quantity,
    /// From left to right.
    pub(crate) groups: Vec<Group>,
}

/// The bars above one point of the horizontal axis.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The point's label.
    pub(crate) label: String,
    /// From left to right; every group has the same variants in the same places.
    pub(crate) bars: Vec<Bar>,
}

/// One bar, or the place where it would stand.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    /// Colour and pattern.
    pub(crate) variant: Variant,
    /// Its height, unless there is nothing to show.
    pub(crate) value: Value,
    /// What a paper reports here.
    pub(crate) reported: Option<Mark>,
    /// A few characters above the bar, such as the gain.
    pub(crate) note: String,
    /// Shown while the pointer rests on it.
    pub(crate) hover: String,
}

/// A bar's height.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// There are trusted runs.
    Measured {
        /// Mean of the runs.
        mean: f64,
        /// Standard deviation of the runs; zero where there is one run only.
        spread: f64,
        /// Each run.
        runs: Vec<f64>,
    },
    /// There is none; a few words say so.
    Missing(&'static str),
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 350.0;
const FRAME: Frame = Frame { left: 62.0, top: 18.0, width: 788.0, height: 284.0 };
/// About what a character of a label takes.
const CHARACTER: f64 = 6.6;
/// By which labels are tilted that would run into each other, in degrees.
const TILT: f64 = 60.0;

impl BarChart {
    /// The chart as SVG, on a vertical axis that covers `values`: the same for charts that are to
    /// be compared by eye.
    pub(crate) fn draw(&self, scale: Scale) -> Markup {
        let unit = self.quantity.axis_unit();
        let log = if scale.is_log() { " (log scale)" } else { "" };
        let step = FRAME.width / self.groups.len().max(1) as f64;
        let longest = self.longest_label();
        let tilts = longest + CHARACTER > step;
        let drop = if tilts { longest * TILT.to_radians().sin() } else { 0.0 };
        html! {
            svg class="plot wide" viewBox={ "0 0 " (px(WIDTH)) " " (px(HEIGHT + drop)) } role="img"
                aria-label=(self.description) {
                (FRAME.y_axis(scale, &format!("{}{unit}{log}", self.y_title), |value| {
                    self.quantity.tick(value)
                }))
                @for (index, group) in self.groups.iter().enumerate() {
                    @let left = FRAME.left + step * index as f64;
                    (label(&group.label, left + step / 2.0, tilts))
                    (draw_group(group, scale, left, step))
                }
                (FRAME.x_axis(&self.x_title, drop))
            }
        }
    }

    /// About the width of the longest one.
    fn longest_label(&self) -> f64 {
        let lengths = self.groups.iter().map(|group| group.label.chars().count());
        lengths.max().unwrap_or(0) as f64 * CHARACTER
    }

    /// The papers' numbers in it.
    pub(crate) fn marks(&self) -> impl Iterator<Item = Mark> {
        self.groups.iter().flat_map(|group| &group.bars).filter_map(|bar| bar.reported)
    }

    /// Every value that must fit on the vertical axis.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> {
        self.groups.iter().flat_map(|group| &group.bars).flat_map(Bar::values)
    }
}

impl Bar {
    /// Everything that must fit on the axis.
    fn values(&self) -> impl Iterator<Item = f64> {
        let own = match &self.value {
            Value::Measured { mean, spread, runs } => {
                let mut values = vec![*mean, mean + spread];
                values.extend(runs);
                values
            }
            Value::Missing(_) => Vec::new(),
        };
        own.into_iter().chain(self.reported.map(Mark::value))
    }

    /// The highest place that the bar's own marks reach.
    fn peak(&self, scale: Scale) -> f64 {
        self.values().map(|value| FRAME.y(scale, value)).fold(FRAME.bottom(), f64::min)
    }
}

fn label(text: &str, middle: f64, tilts: bool) -> Markup {
    html! {
        @if tilts {
            text class="tick" text-anchor="end" dy="0.32em"
                transform={
                    "translate(" (px(middle)) " " (px(FRAME.bottom() + 9.0)) ") rotate(-" (px(TILT)) ")"
                } { (text) }
        } @else {
            text class="tick" text-anchor="middle" x=(px(middle)) y=(px(FRAME.bottom() + 17.0)) { (text) }
        }
    }
}

fn draw_group(group: &Group, scale: Scale, left: f64, width: f64) -> Markup {
    let slot = (width * 0.8 / group.bars.len().max(1) as f64).min(64.0);
    let start = left + (width - slot * group.bars.len() as f64) / 2.0;
    html! {
        @for (index, bar) in group.bars.iter().enumerate() {
            (draw_bar(bar, scale, start + slot * index as f64, slot))
        }
    }
}

fn draw_bar(bar: &Bar, scale: Scale, left: f64, slot: f64) -> Markup {
    let middle = left + slot / 2.0;
    let width = slot * 0.86;
    html! {
        g class={ "bar " (class(bar.variant)) } {
            title { (bar.hover) }
            rect class="target" x=(px(left)) y=(px(FRAME.top)) width=(px(slot))
                height=(px(FRAME.height)) {}
            @match &bar.value {
                Value::Measured { mean, spread, runs } => {
                    @let y = FRAME.y(scale, *mean);
                    rect class="fill" x=(px(middle - width / 2.0)) y=(px(y)) width=(px(width))
                        height=(px(FRAME.bottom() - y)) {}
                    @let dots = dots(runs);
                    @for (index, run) in dots.iter().enumerate() {
                        circle class="run" r="2.2" cy=(px(FRAME.y(scale, *run)))
                            cx=(px(run_place(middle, width, index, dots.len()))) {}
                    }
                    @if *spread > 0.0 {
                        (whisker(middle, FRAME.y(scale, mean - spread),
                            FRAME.y(scale, mean + spread), width * 0.16))
                    }
                }
                Value::Missing(why) => {
                    text class="missing" dy="0.32em"
                        transform={
                            "translate(" (px(middle)) " " (px(FRAME.bottom() - 6.0)) ") rotate(-90)"
                        } { (why) }
                }
            }
            @if let Some(reported) = bar.reported { (reported_mark(reported, middle, FRAME.y(scale, reported.value()))) }
            @if !bar.note.is_empty() {
                text class="note" text-anchor="middle" x=(px(middle))
                    y=(px(bar.peak(scale) - 8.0)) { (bar.note) }
            }
        }
    }
}

/// More dots at a bar only hide one another.
const DOTS: usize = 50;

/// The values that have a dot: all; or of many the least, the greatest, and between them each so many of all in their order.
fn dots(runs: &[f64]) -> Vec<f64> {
    if runs.len() <= DOTS {
        return runs.to_vec();
    }
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    (0..DOTS).map(|dot| sorted[dot * (sorted.len() - 1) / (DOTS - 1)]).collect()
}

/// Spreads a bar's runs over its width, in their order, so that equal ones can be told apart; the
/// middle is the whisker's.
fn run_place(middle: f64, width: f64, index: usize, count: usize) -> f64 {
    let share = (index as f64 + 0.5) / count as f64 - 0.5;
    let aside = 0.12 + 0.6 * share.abs();
    middle + width * if share < 0.0 { -aside } else { aside }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_runs_have_fewer_dots_and_the_ends_are_among_them() {
        let runs: Vec<f64> = (0..1000).rev().map(f64::from).collect();
        let dots = dots(&runs);
        assert_eq!((dots.len(), dots[0], dots[DOTS - 1]), (DOTS, 0.0, 999.0));
        assert!(dots.is_sorted_by(|one, next| one < next));
        assert_eq!(super::dots(&runs[..DOTS]), runs[..DOTS]);
    }
}
