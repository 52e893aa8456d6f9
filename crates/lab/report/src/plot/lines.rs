//! Lines over a logarithmic axis: how a time grows with the size of what is moved.

use maud::{Markup, html};
use midspan_scenario::record::Variant;

use super::frame::{Frame, px, whisker};
use super::scale::{Scale, Tick};
use super::{class, marker};
use midspan_units::number::{self, Quantity};

/// One panel of lines; both axes are logarithmic.
#[derive(Debug, Clone)]
pub(crate) struct LineChart {
    /// What the panel shows, for those who cannot see it.
    pub(crate) description: String,
    /// Title of the horizontal axis, which counts bytes.
    pub(crate) x_title: String,
    /// What is measured; stands above the panel.
    pub(crate) title: String,
    /// How values are written.
    pub(crate) quantity: Quantity,
    /// In the order of the legend.
    pub(crate) lines: Vec<Line>,
}

/// One line.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Colour, dashes and marks.
    pub(crate) variant: Variant,
    /// By rising `x`.
    pub(crate) points: Vec<Point>,
}

/// One point of a line.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    /// Bytes.
    pub(crate) x: f64,
    /// Mean of the trusted runs.
    pub(crate) mean: f64,
    /// Standard deviation of the runs; zero where there is one run only.
    pub(crate) spread: f64,
    /// Shown while the pointer rests on it.
    pub(crate) hover: String,
}

/// More labels than this run into each other.
const MOST_LABELS: usize = 5;

const WIDTH: f64 = 330.0;
const HEIGHT: f64 = 312.0;
const FRAME: Frame = Frame { left: 70.0, top: 28.0, width: 240.0, height: 240.0 };

impl LineChart {
    /// The panel as SVG, on axes that cover `values` and `sizes`, so that panels side by side
    /// can be compared by eye.
    pub(crate) fn draw(&self, x: Scale, y: Scale) -> Markup {
        let decades: Vec<Tick> = x.ticks().into_iter().filter(|tick| tick.major).collect();
        let every = decades.len().div_ceil(MOST_LABELS).max(1);
        let centre = FRAME.left + FRAME.width / 2.0;
        html! {
            svg class="plot" viewBox={ "0 0 " (px(WIDTH)) " " (px(HEIGHT)) } role="img"
                aria-label=(self.description) {
                text class="heading" text-anchor="middle" x=(px(centre)) y="16" { (self.title) }
                (FRAME.y_axis(y, "time, log scale", |value| self.quantity.tick(value)))
                @for (index, tick) in decades.iter().enumerate() {
                    @let place = px(FRAME.x(x, tick.value));
                    line class="grid" x1=(place) x2=(place) y1=(px(FRAME.top))
                        y2=(px(FRAME.bottom())) {}
                    @if index % every == 0 {
                        text class="tick" text-anchor="middle" x=(place)
                            y=(px(FRAME.bottom() + 17.0)) { (number::bytes(tick.value)) }
                    }
                }
                (FRAME.x_axis(&format!("{}, log scale", self.x_title), 0.0))
                @for line in &self.lines { (draw_line(line, x, y)) }
            }
        }
    }

    /// Every value that must fit on the vertical axis.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> {
        self.points().flat_map(|point| [point.mean, point.mean + point.spread])
    }

    /// Every size that must fit on the horizontal axis.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = f64> {
        self.points().map(|point| point.x)
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.lines.iter().flat_map(|line| &line.points)
    }
}

fn draw_line(line: &Line, x: Scale, y: Scale) -> Markup {
    let place = |point: &Point| (FRAME.x(x, point.x), FRAME.y(y, point.mean));
    let path: Vec<String> = line
        .points
        .iter()
        .map(|point| {
            let (x, y) = place(point);
            format!("{} {}", px(x), px(y))
        })
        .collect();
    html! {
        g class={ "series " (class(line.variant)) } {
            @if path.len() > 1 { path class="line" d={ "M" (path.join("L")) } {} }
            @for point in &line.points {
                @let (x, at) = place(point);
                g {
                    title { (point.hover) }
                    @if point.spread > 0.0 {
                        (whisker(x, FRAME.y(y, point.mean - point.spread),
                            FRAME.y(y, point.mean + point.spread), 3.0))
                    }
                    (marker(line.variant, x, at))
                }
            }
        }
    }
}
