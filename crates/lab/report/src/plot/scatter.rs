//! Ours against a reference, point by point, on logarithmic axes: agreement lies on the diagonal.

use maud::{Markup, html};
use midspan_scenario::record::Variant;

use super::frame::{Frame, px};
use super::scale::Scale;
use super::{class, marker};
use midspan_units::number::Quantity;

/// One panel of points.
#[derive(Debug, Clone)]
pub(crate) struct ScatterChart {
    /// What the panel shows, for those who cannot see it.
    pub(crate) description: String,
    /// Title of the horizontal axis: where the reference comes from.
    pub(crate) x_title: String,
    /// Title of the vertical axis.
    pub(crate) y_title: String,
    /// How values are written.
    pub(crate) quantity: Quantity,
    /// In no order that matters.
    pub(crate) dots: Vec<Dot>,
    /// Relative errors up to this share lie in the shaded band.
    pub(crate) band: f64,
}

/// One cell that both sides have.
#[derive(Debug, Clone)]
pub(crate) struct Dot {
    /// Colour and shape.
    pub(crate) variant: Variant,
    /// The reference's value.
    pub(crate) reference: f64,
    /// Our mean.
    pub(crate) ours: f64,
    /// Shown while the pointer rests on it.
    pub(crate) hover: String,
}

const SIZE: f64 = 430.0;
const FRAME: Frame = Frame { left: 62.0, top: 14.0, width: 356.0, height: 356.0 };

impl ScatterChart {
    /// The panel as SVG.
    pub(crate) fn draw(&self) -> Markup {
        let scale = Scale::covering_log(self.dots.iter().flat_map(|dot| [dot.reference, dot.ours]));
        let unit = self.quantity.axis_unit();
        html! {
            svg class="plot" viewBox={ "0 0 " (px(SIZE)) " " (px(SIZE)) } role="img"
                aria-label=(self.description) {
                (FRAME.y_axis(scale, &format!("{}{unit}", self.y_title), |value| {
                    self.quantity.tick(value)
                }))
                (FRAME.x_ticks(scale, |value| self.quantity.tick(value)))
                (self.diagonal(scale))
                (FRAME.x_axis(&format!("{}{unit}", self.x_title), 0.0))
                @for dot in &self.dots {
                    g class={ "series " (class(dot.variant)) } {
                        title { (dot.hover) }
                        (marker(dot.variant, FRAME.x(scale, dot.reference),
                            FRAME.y(scale, dot.ours)))
                    }
                }
            }
        }
    }

    /// The line of perfect agreement, and the band around it.
    fn diagonal(&self, scale: Scale) -> Markup {
        let (bottom, top) = scale.ends();
        let at = |x: f64, y: f64| format!("{} {}", px(FRAME.x(scale, x)), px(FRAME.y(scale, y)));
        let (over, under) = (1.0 + self.band, 1.0 - self.band);
        let corners = [
            at(bottom, bottom),
            at(bottom, bottom * over),
            at(top / over, top),
            at(top, top),
            at(top, top * under),
            at(bottom / under, bottom),
        ];
        html! {
            path class="band" d={ "M" (corners.join("L")) "Z" } {}
            path class="diagonal" d={ "M" (at(bottom, bottom)) "L" (at(top, top)) } {}
        }
    }
}
