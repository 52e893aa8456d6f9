//! A paper's figure with ours in it: named series over the points of one axis, as grouped bars or as lines, each live,
//! simulated, or the paper's. The drawing stands alone: it has its legend and its style sheet in it.

use maud::{Markup, html};

use super::frame::{Frame, px, whisker};
use super::scale::Scale;
use super::sheet::{self, Entries, HEIGHT, Sample, Source, WIDTH, mark};
use midspan_units::number::Quantity;

/// A chart over the points of an axis.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    /// What it shows, for those who cannot see it.
    pub(crate) description: String,
    /// Title of the horizontal axis.
    pub(crate) x_title: String,
    /// What is measured, without its unit.
    pub(crate) y_title: String,
    /// How values are written.
    pub(crate) quantity: Quantity,
    /// Whether points are bars, and not joined by lines.
    pub(crate) bars: bool,
    /// Labels of the points, from left to right.
    pub(crate) points: Vec<String>,
    /// In the order of the legend.
    pub(crate) series: Vec<Series>,
    /// Levels that the paper states, by name.
    pub(crate) rules: Vec<(String, f64)>,
}

/// One line, or the bars of one colour.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// As the legend has it.
    pub(crate) name: String,
    /// Its colour; the same for one thing live, simulated and in the paper.
    pub(crate) hue: usize,
    /// Where its numbers come from.
    pub(crate) source: Source,
    /// At each of the figure's points.
    pub(crate) values: Vec<Option<Dot>>,
}

/// One number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Dot {
    /// Mean of the runs.
    pub(crate) mean: f64,
    /// Their standard deviation; zero if unknown.
    pub(crate) spread: f64,
}

const LEFT: f64 = 78.0;
const RIGHT: f64 = 10.0;
/// About what a character of a label takes.
const CHARACTER: f64 = 6.4;
/// By which labels are tilted that would run into each other, in degrees.
const TILT: f64 = 35.0;

impl Figure {
    /// The chart as an SVG of its own.
    pub(crate) fn draw(&self) -> Markup {
        let values = self.series.iter().flat_map(|series| series.values.iter().flatten());
        let levels = self.rules.iter().map(|rule| rule.1);
        let scale =
            Scale::covering(values.flat_map(|dot| [dot.mean, dot.mean + dot.spread]).chain(levels));
        let step = (WIDTH - LEFT - RIGHT) / self.points.len().max(1) as f64;
        let longest = self.points.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let longest = longest as f64 * CHARACTER;
        let tilts = longest + CHARACTER > step;
        let drop = if tilts { longest * TILT.to_radians().sin() } else { 0.0 };
        let log = if scale.is_log() { " (log scale)" } else { "" };
        let unit = self.quantity.axis_unit();
        sheet::draw(&self.description, self.entries(), |top| {
            let frame = Frame { left: LEFT, top, width: WIDTH - LEFT - RIGHT, height: HEIGHT };
            let body = html! {
                (frame.y_axis(scale, &format!("{}{unit}{log}", self.y_title), |value| self.quantity.tick(value)))
                @for (index, point) in self.points.iter().enumerate() {
                    @let middle = frame.left + step * (index as f64 + 0.5);
                    (label(point, middle, frame.bottom(), tilts))
                }
                @if self.bars { (self.draw_bars(frame, scale, step)) } @else { (self.draw_lines(frame, scale, step)) }
                (frame.rules(scale, &self.rules))
                (frame.x_axis(&self.x_title, drop))
            };
            (body, frame.bottom() + drop)
        })
    }

    /// One entry for each name, and one for each source.
    fn entries(&self) -> Entries {
        let mut entries = Entries::default();
        for series in &self.series {
            let sample = if self.bars { Sample::Bar } else { Sample::Line };
            entries.named(&series.name, series.hue, sample);
        }
        let has = |source| {
            self.series
                .iter()
                .any(|series| series.source == source && series.values.iter().any(Option::is_some))
        };
        let of_source = [
            (Source::Live, "live", if self.bars { Sample::Bar } else { Sample::Mark }),
            (
                Source::Sim,
                "simulated",
                if self.bars { Sample::LightBar } else { Sample::HollowMark },
            ),
            (Source::Paper, "the paper", Sample::Paper),
            (Source::PaperGain, "the paper's gain, times no proxy", Sample::HollowPaper),
        ];
        for (source, text, sample) in of_source {
            if has(source) {
                entries.plain(text, sample);
            }
        }
        entries.rules(&self.rules);
        entries
    }

    fn draw_lines(&self, frame: Frame, scale: Scale, step: f64) -> Markup {
        html! {
            @for series in &self.series {
                @let aside = self.aside(series, step);
                @let places: Vec<Option<(f64, Dot)>> = series.values.iter().enumerate().map(|(index, value)| {
                    Some((frame.left + step * (index as f64 + 0.5) + aside, (*value)?))
                }).collect();
                g class=(class(series)) {
                    @if !series.source.is_paper() {
                        path class="line" d=(path(&places, frame, scale)) {}
                    }
                    @for (x, dot) in places.iter().flatten() {
                        g {
                            title { (self.hover(series, *dot)) }
                            @if dot.spread > 0.0 {
                                (whisker(*x, frame.y(scale, dot.mean - dot.spread),
                                    frame.y(scale, dot.mean + dot.spread), 3.0))
                            }
                            (mark(series.source, *x, frame.y(scale, dot.mean)))
                        }
                    }
                }
            }
        }
    }

    fn draw_bars(&self, frame: Frame, scale: Scale, step: f64) -> Markup {
        let measured: Vec<&Series> =
            self.series.iter().filter(|series| !series.source.is_paper()).collect();
        let slot = (step * 0.84 / measured.len().max(1) as f64).min(46.0);
        let start = (step - slot * measured.len() as f64) / 2.0;
        html! {
            @for (place, series) in measured.iter().enumerate() {
                g class=(class(series)) {
                    @for (index, dot) in series.values.iter().enumerate() {
                        @let left = frame.left + step * index as f64 + start + slot * place as f64;
                        @if let Some(dot) = dot {
                            @let y = frame.y(scale, dot.mean);
                            g {
                                title { (self.hover(series, *dot)) }
                                rect class="fill" x=(px(left + slot * 0.06)) y=(px(y)) width=(px(slot * 0.88))
                                    height=(px(frame.bottom() - y)) {}
                                @if dot.spread > 0.0 {
                                    (whisker(left + slot / 2.0, frame.y(scale, dot.mean - dot.spread),
                                        frame.y(scale, dot.mean + dot.spread), slot * 0.16))
                                }
                            }
                        }
                    }
                }
            }
            @for series in self.series.iter().filter(|series| series.source.is_paper()) {
                g class=(class(series)) {
                    @let beside: Vec<usize> = measured.iter().enumerate()
                        .filter(|(_, other)| other.name == series.name).map(|(place, _)| place).collect();
                    @let middle = if beside.is_empty() { measured.len() as f64 / 2.0 } else {
                        beside.iter().map(|place| *place as f64 + 0.5).sum::<f64>() / beside.len() as f64
                    };
                    @for (index, dot) in series.values.iter().enumerate() {
                        @if let Some(dot) = dot {
                            g {
                                title { (self.hover(series, *dot)) }
                                (mark(series.source, frame.left + step * index as f64 + start + slot * middle,
                                    frame.y(scale, dot.mean)))
                            }
                        }
                    }
                }
            }
        }
    }

    /// How far from a point's middle a series' mark stands, so that series, and live, simulated and the paper's of each,
    /// do not hide each other.
    fn aside(&self, series: &Series, step: f64) -> f64 {
        let aside = (step * 0.09).min(9.0);
        let last = self.series.iter().map(|series| series.hue).max().unwrap_or(0) as f64;
        let of_hue = (series.hue as f64 - last / 2.0) * (step * 0.05).min(5.0);
        match series.source {
            Source::Live => of_hue - aside / 2.0,
            Source::Sim => of_hue + aside / 2.0,
            Source::Paper | Source::PaperGain => of_hue + aside * 1.6,
        }
    }

    fn hover(&self, series: &Series, dot: Dot) -> String {
        let spread = match dot.spread {
            0.0 => String::new(),
            spread => format!(" ± {}", self.quantity.spread(spread, dot.mean)),
        };
        let source = match series.source {
            Source::Live => "live",
            Source::Sim => "simulated",
            Source::Paper => "paper",
            Source::PaperGain => "paper's gain",
        };
        let number = format!(
            "{}{spread} {}",
            self.quantity.digits(dot.mean),
            self.quantity.unit_of(dot.mean)
        );
        format!("{}, {source}: {}", series.name, number.trim_end())
    }
}

fn class(series: &Series) -> String {
    let source = match series.source {
        Source::Live => "live",
        Source::Sim => "sim",
        Source::Paper => "paper",
        Source::PaperGain => "paper hollow",
    };
    format!("h{} {source}", series.hue % sheet::HUES)
}

/// A line through what is there: it breaks where a number is missing.
fn path(places: &[Option<(f64, Dot)>], frame: Frame, scale: Scale) -> String {
    let mut path = String::new();
    let mut pen = 'M';
    for place in places {
        let Some((x, dot)) = place else {
            pen = 'M';
            continue;
        };
        path.push_str(&format!("{pen}{} {}", px(*x), px(frame.y(scale, dot.mean))));
        pen = 'L';
    }
    path
}

fn label(text: &str, middle: f64, bottom: f64, tilts: bool) -> Markup {
    html! {
        @if tilts {
            text class="tick" text-anchor="end" dy="0.32em"
                transform={ "translate(" (px(middle + 4.0)) " " (px(bottom + 11.0)) ") rotate(-" (px(TILT)) ")" } { (text) }
        } @else {
            text class="tick" text-anchor="middle" x=(px(middle)) y=(px(bottom + 17.0)) { (text) }
        }
    }
}
