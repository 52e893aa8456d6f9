//! Curves over a number: distributions, and what was seen over time.

use maud::{Markup, html};

use super::frame::{Frame, px};
use super::scale::Scale;
use super::sheet::{self, Entries, HEIGHT, Sample, Source, WIDTH, mark};
use crate::number::Quantity;

/// Curves on two axes of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    /// What it shows, for those who cannot see it.
    pub(crate) description: String,
    /// Title of the horizontal axis.
    pub(crate) x_title: String,
    /// What is measured.
    pub(crate) y_title: String,
    /// How values along the horizontal axis are written.
    pub(crate) x_quantity: Quantity,
    /// How those along the vertical one are.
    pub(crate) y_quantity: Quantity,
    /// Whether the horizontal axis is linear, and not logarithmic where values are far apart.
    pub(crate) x_from_zero: bool,
    /// The same of the vertical axis.
    pub(crate) y_from_zero: bool,
    /// Where labels of the vertical axis are names and not numbers.
    pub(crate) y_names: Vec<String>,
    /// In the order of the legend.
    pub(crate) curves: Vec<Curve>,
    /// Levels that the paper states, by name.
    pub(crate) rules: Vec<(String, f64)>,
}

/// One curve.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) hue: usize,
    pub(crate) source: Source,
    /// By rising x.
    pub(crate) points: Vec<(f64, f64)>,
    /// Whether its points are joined.
    pub(crate) joined: bool,
    /// Whether its points have marks.
    pub(crate) marked: bool,
}

const RIGHT: f64 = 18.0;

impl Trace {
    /// The chart as an SVG of its own.
    pub(crate) fn draw(&self) -> Markup {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let along = points().map(|point| point.0);
        let x = match self.x_from_zero {
            true => Scale::covering_linear(along),
            false => Scale::covering(along),
        };
        let levels = self.rules.iter().map(|rule| rule.1);
        let up = points().map(|point| point.1).chain(levels);
        let y = match self.y_names.len() {
            0 if self.y_from_zero => Scale::covering_linear(up),
            0 => Scale::covering(up),
            names => Scale::Linear { top: (names + 1) as f64, step: 1.0 },
        };
        let height =
            if self.y_names.is_empty() { HEIGHT } else { 44.0 * (self.y_names.len() + 1) as f64 };
        let left = if self.y_names.is_empty() { 78.0 } else { 128.0 };
        let log = if x.is_log() { " (log scale)" } else { "" };
        sheet::draw(&self.description, self.entries(), |top| {
            let frame = Frame { left, top, width: WIDTH - left - RIGHT, height };
            let body = html! {
                (frame.y_axis(y, &format!("{}{}", self.y_title, self.y_quantity.axis_unit()), |value| self.y_label(value)))
                (frame.x_ticks(x, |value| self.x_quantity.tick(value)))
                (frame.rules(y, &self.rules))
                @for curve in &self.curves { (draw(curve, frame, x, y)) }
                (frame.x_axis(&format!("{}{log}", self.x_title), 0.0))
            };
            (body, frame.bottom())
        })
    }

    fn y_label(&self, value: f64) -> String {
        if self.y_names.is_empty() {
            return self.y_quantity.tick(value);
        }
        // Names count from 1, at whole numbers.
        let index = value.round() as usize;
        index.checked_sub(1).and_then(|index| self.y_names.get(index)).cloned().unwrap_or_default()
    }

    fn entries(&self) -> Entries {
        let mut entries = Entries::default();
        for curve in &self.curves {
            let sample = if curve.joined { Sample::Line } else { Sample::Mark };
            entries.named(&curve.name, curve.hue, sample);
        }
        if self.curves.iter().any(|curve| curve.joined && curve.source == Source::Sim) {
            entries.plain("simulated", Sample::HollowMark);
        }
        entries.rules(&self.rules);
        entries
    }
}

fn draw(curve: &Curve, frame: Frame, x: Scale, y: Scale) -> Markup {
    let places: Vec<(f64, f64)> =
        curve.points.iter().map(|point| (frame.x(x, point.0), frame.y(y, point.1))).collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{} {}", px(*x), px(*y))).collect();
    let source = if curve.source == Source::Sim { "sim" } else { "live" };
    html! {
        g class={ "h" (curve.hue % sheet::HUES) " " (source) } {
            @if curve.joined && path.len() > 1 { path class="line" d={ "M" (path.join("L")) } {} }
            @if curve.marked {
                @for (x, y) in &places { (mark(curve.source, *x, *y)) }
            }
        }
    }
}
