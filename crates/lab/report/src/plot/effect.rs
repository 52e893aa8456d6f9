//! Gains with their bounds: side by side, and over time. Better lies to the right, or above.

use maud::{Markup, html};

use super::frame::{Frame, px};
use super::scale::Scale;
use super::swatch;
use crate::gain::{Effect, Hour, Judgement};
use crate::machine::utc;
use midspan_units::number::shortest;

/// An axis that covers all that is said of these.
pub(crate) fn scale<'a>(effects: impl IntoIterator<Item = &'a Effect>) -> Scale {
    Scale::covering_factors(effects.into_iter().filter_map(Effect::times).flatten())
}

/// What the marks mean, and colours too.
pub(crate) fn legend() -> Markup {
    html! {
        ul class="legend" {
            @for verdict in
                [Judgement::Faster, Judgement::NoSlower, Judgement::Slower, Judgement::Unknown] {
                li { (swatch(class(verdict), mark(verdict, 8.0, 8.0))) (verdict.label()) }
            }
        }
    }
}

/// The style sheet's class.
fn class(verdict: Judgement) -> &'static str {
    match verdict {
        Judgement::Faster => "e-better",
        Judgement::Slower => "e-worse",
        Judgement::NoSlower => "e-even",
        Judgement::Unknown => "e-open",
    }
}

/// A mark whose shape tells verdicts apart without colour.
fn mark(verdict: Judgement, x: f64, y: f64) -> Markup {
    html! {
        @match verdict {
            Judgement::Faster => circle class="mark" cx=(px(x)) cy=(px(y)) r="4.4" {},
            Judgement::Slower => {
                @let path = format!("M{} {}l4.6 -8h-9.2Z", px(x), px(y + 4.9));
                path class="mark" d=(path) {}
            }
            Judgement::NoSlower => {
                rect class="mark" x=(px(x - 3.6)) y=(px(y - 3.6)) width="7.2" height="7.2" {}
            }
            Judgement::Unknown => circle class="mark hollow" cx=(px(x)) cy=(px(y)) r="3.6" {},
        }
    }
}

const WIDTH: f64 = 860.0;
/// What the numbers beside the plot take.
const NUMBERS: f64 = 168.0;
const ROW: f64 = 26.0;
const TOP: f64 = 8.0;
/// Below the plot: labels and the axis' title.
const BELOW: f64 = 48.0;
/// About what a character of a label takes.
const CHARACTER: f64 = 6.8;

/// A row for each effect: what it is of, its bounds, and its numbers.
pub(crate) fn forest(description: &str, effects: &[Effect], scale: Scale) -> Markup {
    let longest = effects.iter().map(|one| one.of.chars().count()).max().unwrap_or(0);
    let left = (longest as f64 * CHARACTER + 12.0).clamp(90.0, 320.0);
    let height = ROW * effects.len() as f64;
    let frame = Frame { left, top: TOP, width: WIDTH - left - NUMBERS, height };
    let even = px(frame.x(scale, 1.0));
    html! {
        svg class="plot wide" viewBox={ "0 0 " (px(WIDTH)) " " (px(TOP + height + BELOW)) } role="img"
            aria-label=(description) {
            (frame.x_ticks(scale, shortest))
            line class="even" x1=(even) x2=(even) y1=(px(TOP)) y2=(px(frame.bottom())) {}
            @for (index, effect) in effects.iter().enumerate() {
                @let y = TOP + ROW * (index as f64 + 0.5);
                g class={ "effect " (class(effect.verdict)) } {
                    title { (hover(effect)) }
                    text class="name" text-anchor="end" dy="0.32em" x=(px(left - 8.0)) y=(px(y)) { (effect.of) }
                    @if let Some([least, gain, most]) = effect.times() {
                        line class="span" x1=(px(frame.x(scale, least))) x2=(px(frame.x(scale, most)))
                            y1=(px(y)) y2=(px(y)) {}
                        (mark(effect.verdict, frame.x(scale, gain), y))
                        text dy="0.32em" x=(px(frame.right() + 10.0)) y=(px(y)) { (effect.in_numbers()) }
                    } @else {
                        text class="tick" dy="0.32em" x=(px(frame.right() + 10.0)) y=(px(y)) {
                            (effect.verdict.label())
                        }
                    }
                }
            }
            (frame.x_axis(TITLE, 0.0))
        }
    }
}

const TITLE: &str = "times as fast if split, log scale";
const HEIGHT: f64 = 300.0;
const FRAME: Frame = Frame { left: 62.0, top: 14.0, width: 788.0, height: 238.0 };
/// More labels than this run into each other.
const MOST_LABELS: u64 = 6;
const HOUR: u64 = 3600;

/// A mark with bounds for each hour of which anything can be said, by rising `start`.
pub(crate) fn over_time(description: &str, hours: &[Hour], scale: Scale) -> Markup {
    let first = hours.first().map_or(0, |hour| hour.start);
    let count = hours.last().map_or(1, |hour| hour.start.saturating_sub(first) / HOUR + 1);
    let step = FRAME.width / count as f64;
    let place =
        |start: u64| FRAME.left + step * ((start.saturating_sub(first) / HOUR) as f64 + 0.5);
    let even = px(FRAME.y(scale, 1.0));
    html! {
        svg class="plot wide" viewBox={ "0 0 " (px(WIDTH)) " " (px(HEIGHT)) } role="img"
            aria-label=(description) {
            (FRAME.y_axis(scale, TITLE, shortest))
            line class="even" x1=(px(FRAME.left)) x2=(px(FRAME.right())) y1=(even) y2=(even) {}
            @for at in (0..count).step_by(count.div_ceil(MOST_LABELS) as usize) {
                text class="tick" text-anchor="middle" x=(px(place(first + at * HOUR)))
                    y=(px(FRAME.bottom() + 17.0)) { (clock(first + at * HOUR)) }
            }
            @for Hour { start, effect } in hours {
                @if let Some([least, gain, most]) = effect.times() {
                    @let x = place(*start);
                    g class={ "effect " (class(effect.verdict)) } {
                        title { (hover(effect)) }
                        line class="span" x1=(px(x)) x2=(px(x)) y1=(px(FRAME.y(scale, least)))
                            y2=(px(FRAME.y(scale, most))) {}
                        (mark(effect.verdict, x, FRAME.y(scale, gain)))
                    }
                }
            }
            (FRAME.x_axis("hour in which slots began (UTC)", 0.0))
        }
    }
}

/// `11-25 06:00`.
fn clock(seconds: u64) -> String {
    let text = utc(seconds.saturating_mul(1000));
    text.get(5..16).unwrap_or(&text).to_owned()
}

/// Everything that there is to say of one.
fn hover(effect: &Effect) -> String {
    let Effect { of, split, held_out, verdict, .. } = effect;
    let numbers = effect.in_numbers();
    format!("{of}\n{split} split, {held_out} held out\n{numbers}\nsplitting is {}", verdict.label())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_written_short() {
        assert_eq!(clock(1_795_586_400), "11-25 06:00");
        // Nothing is too strange.
        clock(u64::MAX);
    }
}
