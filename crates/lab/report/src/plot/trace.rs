//! Curves over a number: distributions, and what was seen over time.

use maud::{Markup, html};

use super::frame::{Frame, px};
use super::scale::Scale;
use super::sheet::{self, Entries, HEIGHT, Sample, Source, WIDTH, mark};
use midspan_units::number::Quantity;

/// Curves on two axes of numbers, or on several vertical ones, one under the other over one horizontal one.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    /// What it shows, for those who cannot see it.
    pub(crate) description: String,
    /// Title of the horizontal axis.
    pub(crate) x_title: String,
    /// How values along the horizontal axis are written.
    pub(crate) x_quantity: Quantity,
    /// Whether the horizontal axis is linear, and not logarithmic where values are far apart.
    pub(crate) x_from_zero: bool,
    /// How far the horizontal axis goes at least, as for drawings beside each other.
    pub(crate) x_up_to: f64,
    /// From top to bottom.
    pub(crate) panels: Vec<Panel>,
}

/// What has one vertical axis.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    /// What is measured.
    pub(crate) title: String,
    /// How values are written.
    pub(crate) quantity: Quantity,
    /// Whether the axis is linear, and not logarithmic where values are far apart.
    pub(crate) from_zero: bool,
    /// How far the axis goes at least.
    pub(crate) up_to: f64,
    /// Where labels are names and not numbers.
    pub(crate) names: Vec<String>,
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

const LEFT: f64 = 78.0;
/// Where labels are names.
const LEFT_OF_NAMES: f64 = 128.0;
const RIGHT: f64 = 18.0;
/// The frame of one panel among several, and its title above.
const LOW: f64 = 92.0;
const HEADING: f64 = 30.0;
/// What a name takes.
const ROW: f64 = 44.0;

impl Trace {
    /// The chart as an SVG of its own.
    pub(crate) fn draw(&self) -> Markup {
        let along = self.panels.iter().flat_map(Panel::points).map(|point| point.0);
        let x = match self.x_from_zero {
            true => Scale::covering_linear(along.chain([self.x_up_to])),
            false => Scale::covering(along.chain([self.x_up_to])),
        };
        let log = if x.is_log() { " (log scale)" } else { "" };
        let named = self.panels.iter().any(|panel| !panel.names.is_empty());
        let left = if named { LEFT_OF_NAMES } else { LEFT };
        sheet::draw(&self.description, self.entries(), |top| {
            let mut frame = Frame { left, top, width: WIDTH - left - RIGHT, height: 0.0 };
            let body = html! {
                @for (index, panel) in self.panels.iter().enumerate() {
                    @let is_last = index + 1 == self.panels.len();
                    ({
                        frame.top = frame.bottom();
                        self.panel(panel, is_last, &mut frame, x)
                    })
                }
                (frame.x_axis(&format!("{}{log}", self.x_title), 0.0))
            };
            (body, frame.bottom())
        })
    }

    /// Draws one panel from the frame's top on, and leaves the frame around it. The last has the labels of all.
    fn panel(&self, panel: &Panel, is_last: bool, frame: &mut Frame, x: Scale) -> Markup {
        let y = panel.scale();
        let title = format!("{}{}", panel.title, panel.quantity.axis_unit());
        let is_alone = self.panels.len() == 1;
        if !is_alone {
            frame.top += HEADING;
        }
        frame.height = match panel.names.len() {
            0 if is_alone => HEIGHT,
            0 => LOW,
            names => ROW * (names + 1) as f64,
        };
        html! {
            @if !is_alone {
                text class="axis" x=(px(frame.left)) y=(px(frame.top - 8.0)) { (title) }
            }
            (frame.y_axis(y, if is_alone { &title } else { "" }, |value| panel.label(value)))
            (frame.x_ticks(x, |value| if is_last { self.x_quantity.tick(value) } else { String::new() }))
            (frame.rules(y, &panel.rules))
            @for curve in &panel.curves { (draw(curve, *frame, x, y)) }
        }
    }

    fn entries(&self) -> Entries {
        let mut entries = Entries::default();
        let curves = || self.panels.iter().flat_map(|panel| &panel.curves);
        for curve in curves() {
            let sample = if curve.joined { Sample::Line } else { Sample::Mark };
            entries.named(&curve.name, curve.hue, sample);
        }
        if curves().any(|curve| curve.joined && curve.source == Source::Sim) {
            entries.plain("simulated", Sample::HollowMark);
        }
        for panel in &self.panels {
            entries.rules(&panel.rules);
        }
        entries
    }
}

impl Panel {
    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.curves.iter().flat_map(|curve| &curve.points)
    }

    fn scale(&self) -> Scale {
        let levels = self.rules.iter().map(|rule| rule.1);
        let up = self.points().map(|point| point.1).chain(levels).chain([self.up_to]);
        match self.names.len() {
            0 if self.from_zero => Scale::covering_linear(up),
            0 => Scale::covering(up),
            names => Scale::Linear { top: (names + 1) as f64, step: 1.0 },
        }
    }

    fn label(&self, value: f64) -> String {
        if self.names.is_empty() {
            return self.quantity.tick(value);
        }
        // Names count from 1, at whole numbers.
        let index = value.round() as usize;
        index.checked_sub(1).and_then(|index| self.names.get(index)).cloned().unwrap_or_default()
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
