//! The sheet that a drawing of its own is on: size, background, style, legend, and the marks of where numbers come from.

use maud::{Markup, PreEscaped, html};

use super::frame::px;

/// So many colours can be told apart.
pub(crate) const HUES: usize = 8;

/// The style of such drawings, in each.
const STYLE: &str = include_str!("sheet.css");

/// In the SVG's own units: a CSS pixel at full size.
pub(crate) const WIDTH: f64 = 760.0;
/// What the frame of a drawing takes, as a rule.
pub(crate) const HEIGHT: f64 = 262.0;
/// Between legend and drawing.
const GAP: f64 = 10.0;
/// The labels and the title of the horizontal axis.
const AXIS: f64 = 48.0;

/// Where numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Real kernels.
    Live,
    /// Virtual time.
    Sim,
    /// The paper states them.
    Paper,
    /// The paper states a factor over no proxy.
    PaperGain,
}

/// What a legend says, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entries(Vec<Entry>);

/// One line of a legend.
#[derive(Debug, Clone)]
struct Entry {
    text: String,
    /// Its colour; none if it is of no series.
    hue: Option<usize>,
    sample: Sample,
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
struct Legend {
    drawing: Markup,
    height: f64,
}

const ROW: f64 = 19.0;
const CHARACTER: f64 = 6.3;

impl Source {
    pub(crate) fn is_paper(self) -> bool {
        matches!(self, Source::Paper | Source::PaperGain)
    }
}

impl Entries {
    /// A name with its colour, once.
    pub(crate) fn named(&mut self, text: &str, hue: usize, sample: Sample) {
        if !self.0.iter().any(|entry| entry.text == text) {
            self.0.push(Entry { text: text.to_owned(), hue: Some(hue), sample });
        }
    }

    /// What is of no series.
    pub(crate) fn plain(&mut self, text: &str, sample: Sample) {
        self.0.push(Entry { text: text.to_owned(), hue: None, sample });
    }

    /// Levels by name.
    pub(crate) fn rules(&mut self, rules: &[(String, f64)]) {
        for (name, _) in rules {
            self.plain(name, Sample::Rule);
        }
    }
}

/// A drawing below its legend. `body` is told where it may begin, and answers where its frame ends.
pub(crate) fn draw(
    description: &str,
    entries: Entries,
    body: impl FnOnce(f64) -> (Markup, f64),
) -> Markup {
    let legend = legend(&entries.0, WIDTH);
    let (body, bottom) = body(legend.height + GAP);
    svg(description, WIDTH, bottom + AXIS, &html! { (legend.drawing) (body) })
}

/// A drawing as well for readers that know neither variables of style sheets nor their media, such as librsvg and
/// Inkscape: in the light colours.
pub(crate) fn without_variables(drawing: &str) -> String {
    let light = STYLE.split("@media").next().unwrap_or_default();
    // Its first rule has them all, but for the hues.
    let (_, rules) = light.split_once('{').unwrap_or_default();
    let (root, rules) = rules.split_once('}').unwrap_or_default();
    let mut style = rules.replace("--hue:", "color:").replace("var(--hue)", "currentColor");
    for declaration in root.split(';') {
        let Some((name, value)) = declaration.split_once(':') else { continue };
        match (name.trim(), value.trim()) {
            // Nor do all of them know this short form.
            ("font", font) => {
                let (size, family) = font.split_once(' ').unwrap_or((font, "sans-serif"));
                style = format!("\n.sheet {{ font-size: {size}; font-family: {family}; }}{style}");
            }
            (variable, value) => style = style.replace(&format!("var({variable})"), value),
        }
    }
    drawing.replace(STYLE, &style)
}

/// Live a disc, simulated a ring, the paper's a diamond: told apart without colour.
pub(crate) fn mark(source: Source, x: f64, y: f64) -> Markup {
    html! {
        @if source.is_paper() {
            path class="mark" d={ "M" (px(x)) " " (px(y - 5.5)) "l5.5 5.5l-5.5 5.5l-5.5 -5.5Z" } {}
        } @else {
            circle class="mark" cx=(px(x)) cy=(px(y)) r="3.8" {}
        }
    }
}

/// The entries in rows of at most `width`.
fn legend(entries: &[Entry], width: f64) -> Legend {
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
fn svg(description: &str, width: f64, height: f64, body: &Markup) -> Markup {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_without_variables_has_every_colour() {
        let drawing = draw("test", Entries::default(), |top| (html! {}, top)).into_string();
        assert!(drawing.contains("var(--hue)") && drawing.contains("@media"));
        let drawing = without_variables(&drawing);
        for part in ["var(", "--", "@media"] {
            assert!(!drawing.contains(part), "{part} in {drawing}");
        }
        for part in [
            ".sheet { font-size: 12px; font-family: system-ui,",
            ".sheet .h1 { color: #0072b2; }",
            ".sheet .fill { fill: currentColor;",
            ".sheet .ground { fill: #ffffff; }",
            ".sheet .tick, .sheet .note { fill: #57606a;",
        ] {
            assert!(drawing.contains(part), "{part} not in {drawing}");
        }
    }
}
