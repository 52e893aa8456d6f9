//! The axes of a sweep, and putting a point's values where the file names them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use midspan_units::wording::{quoted, unknown};

use super::source::{Source, TextSpan};
use crate::{Axis, Error};

/// A sweep of more cells than this is a mistake.
const MOST_CELLS: usize = 10_000;

/// The axes in the file's order.
pub(crate) struct Sweep<'t> {
    source: Source<'t>,
    axes: Vec<AxisPoints<'t>>,
}

struct AxisPoints<'t> {
    name: String,
    place: TextSpan,
    points: Vec<Point<'t>>,
}

#[derive(Clone)]
struct Point<'t> {
    label: String,
    place: TextSpan,
    values: Values<'t>,
}

/// What a point stands for: one value, or several that change together.
#[derive(Clone)]
enum Values<'t> {
    /// `$axis`
    One(Spanned<DeValue<'t>>),
    /// `$axis.field`
    Fields(DeTable<'t>),
}

/// One choice of a point on each axis, and a log of where its values went.
pub(crate) struct Choice<'s, 't> {
    sweep: &'s Sweep<'t>,
    points: Vec<&'s Point<'t>>,
    /// The place of a value on an axis -> the variable and the place that it was put in.
    uses: RefCell<Vec<Use>>,
}

/// One substitution.
struct Use {
    value: TextSpan,
    variable: String,
    place: TextSpan,
}

impl<'t> Sweep<'t> {
    /// Reads `[sweep]`.
    pub(crate) fn parse(source: Source<'t>, table: DeTable<'t>) -> Result<Sweep<'t>, Error> {
        let mut axes = Vec::new();
        for (name, points) in table {
            let place = name.span();
            let name = name.into_inner().into_owned();
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                let what = format!(
                    "`{name}` cannot name an axis; letters, digits and `_` can, for `$name` to use it"
                );
                return Err(source.error(&place, what));
            }
            let points = axis_points(source, &name, points)?;
            axes.push(AxisPoints { name, place, points });
        }
        axes.sort_by_key(|axis| axis.place.start);
        let sweep = Sweep { source, axes };
        let cells =
            sweep.axes.iter().fold(1, |cells: usize, axis| cells.saturating_mul(axis.points.len()));
        match sweep.axes.first() {
            Some(axis) if cells > MOST_CELLS => Err(source.error(
                &axis.place,
                format!("the sweep has {cells} cells; at most {MOST_CELLS} can be run"),
            )),
            _ => Ok(sweep),
        }
    }

    /// Names and labels, for the reader of results.
    pub(crate) fn axes(&self) -> Vec<Axis> {
        let labels =
            |axis: &AxisPoints<'_>| axis.points.iter().map(|point| point.label.clone()).collect();
        self.axes
            .iter()
            .map(|axis| Axis { name: axis.name.clone(), points: labels(axis) })
            .collect()
    }

    /// The sweep with only those points whose labels `wanted` lists; axes that it does not name
    /// stay whole.
    pub(crate) fn narrowed(
        &self,
        wanted: &BTreeMap<Spanned<String>, Spanned<Vec<Spanned<String>>>>,
    ) -> Result<Sweep<'t>, Error> {
        let mut axes = Vec::new();
        for axis in &self.axes {
            let mut points = axis.points.clone();
            let chosen = wanted.iter().find(|(name, _)| name.get_ref() == &axis.name);
            if let Some((_, labels)) = chosen {
                if labels.get_ref().is_empty() {
                    let what = format!("no point is left on axis `{}`; name one", axis.name);
                    return Err(self.source.error(&labels.span(), what));
                }
                let labels = labels.get_ref();
                points.retain(|point| labels.iter().any(|label| *label.get_ref() == point.label));
            }
            axes.push(AxisPoints { name: axis.name.clone(), place: axis.place.clone(), points });
        }
        for (name, labels) in wanted {
            for label in labels.get_ref() {
                self.check_label(name, label)?;
            }
        }
        Ok(Sweep { source: self.source, axes })
    }

    /// Refuses an axis that does not exist, or a label that is not on it.
    pub(crate) fn check_label(
        &self,
        axis: &Spanned<String>,
        label: &Spanned<String>,
    ) -> Result<(), Error> {
        let found = self.axes.iter().find(|known| known.name == *axis.get_ref());
        let Some(found) = found else {
            let known = self.axes.iter().map(|axis| axis.name.as_str());
            return Err(self.source.error(&axis.span(), unknown("axis", axis.get_ref(), known)));
        };
        if found.points.iter().all(|point| point.label != *label.get_ref()) {
            let points: Vec<&str> = found.points.iter().map(|point| point.label.as_str()).collect();
            let what = format!(
                "axis `{}` has no point `{}`; it has {}",
                found.name,
                label.get_ref(),
                quoted(&points)
            );
            return Err(self.source.error(&label.span(), what));
        }
        Ok(())
    }

    /// Every choice of a point on each axis, the last axis turning fastest.
    pub(crate) fn choices(&self) -> Vec<Choice<'_, 't>> {
        let mut choices: Vec<Vec<&Point<'t>>> = vec![Vec::new()];
        for axis in &self.axes {
            choices = choices
                .iter()
                .flat_map(|choice| {
                    axis.points.iter().map(move |point| {
                        let mut longer = choice.clone();
                        longer.push(point);
                        longer
                    })
                })
                .collect();
        }
        choices
            .into_iter()
            .map(|points| Choice { sweep: self, points, uses: RefCell::new(Vec::new()) })
            .collect()
    }

    /// Refuses an axis, or a field of one, that no choice has put anywhere.
    pub(crate) fn check_used(&self, choices: &[Choice<'_, 't>]) -> Result<(), Error> {
        let used: BTreeSet<String> = choices
            .iter()
            .flat_map(|choice| {
                choice.uses.borrow().iter().map(|used| used.variable.clone()).collect::<Vec<_>>()
            })
            .collect();
        for axis in &self.axes {
            for point in &axis.points {
                let variables: Vec<(String, TextSpan)> = match &point.values {
                    Values::One(_) => vec![(axis.name.clone(), axis.place.clone())],
                    Values::Fields(fields) => fields
                        .keys()
                        .map(|field| (format!("{}.{}", axis.name, field.get_ref()), field.span()))
                        .collect(),
                };
                for (variable, place) in variables {
                    if !used.contains(&variable) {
                        let what = format!(
                            "nothing in the file uses `${variable}`; put it in place of a value, or remove it"
                        );
                        return Err(self.source.error(&place, what));
                    }
                }
            }
        }
        Ok(())
    }
}

impl<'t> Choice<'_, 't> {
    /// Axis -> label.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        let axes = self.sweep.axes.iter().map(|axis| axis.name.clone());
        axes.zip(self.points.iter().map(|point| point.label.clone())).collect()
    }

    /// Puts the chosen values in place of the variables throughout `value`. A value keeps the place
    /// where it was written, so that an error in it is told where it can be mended.
    pub(crate) fn substitute(&self, value: &mut Spanned<DeValue<'t>>) -> Result<(), Error> {
        let place = value.span();
        match value.get_mut() {
            DeValue::String(text) => {
                let Some(variable) = text.strip_prefix('$') else { return Ok(()) };
                let chosen = self.value_of(variable, &place)?.clone();
                self.uses.borrow_mut().push(Use {
                    value: chosen.span(),
                    variable: variable.to_owned(),
                    place,
                });
                *value = chosen;
            }
            DeValue::Array(items) => {
                for item in items.iter_mut() {
                    self.substitute(item)?;
                }
            }
            DeValue::Table(table) => {
                for (_, item) in table.iter_mut() {
                    self.substitute(item)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds to an error in a value from an axis where that value was put.
    pub(crate) fn explain(&self, place: &TextSpan, mut error: Error) -> Error {
        let uses = self.uses.borrow();
        let from =
            uses.iter().find(|used| used.value.start <= place.start && place.end <= used.value.end);
        if let Some(used) = from {
            let line = self.sweep.source.line(&used.place);
            error.what.push_str(&format!(" (here as `${}` of line {line})", used.variable));
        }
        error
    }

    fn value_of(&self, variable: &str, place: &TextSpan) -> Result<&Spanned<DeValue<'t>>, Error> {
        let (axis, field) = match variable.split_once('.') {
            Some((axis, field)) => (axis, Some(field)),
            None => (variable, None),
        };
        let source = self.sweep.source;
        let mut chosen = self.sweep.axes.iter().zip(&self.points);
        let Some((_, point)) = chosen.find(|(known, _)| known.name == axis) else {
            let known = self.sweep.axes.iter().map(|axis| axis.name.as_str());
            return Err(source.error(place, unknown("axis", axis, known)));
        };
        match (&point.values, field) {
            (Values::One(value), None) => Ok(value),
            (Values::Fields(fields), Some(field)) => fields.get(field).ok_or_else(|| {
                let known = fields.keys().map(|field| field.get_ref().as_ref());
                let what = unknown("field", field, known);
                let line = source.line(&point.place);
                source.error(place, format!("{what} (point `{}` of line {line})", point.label))
            }),
            (Values::One(_), Some(_)) => {
                let what = format!("axis `{axis}` has plain values; write `${axis}`");
                Err(source.error(place, what))
            }
            (Values::Fields(fields), None) => {
                let fields: Vec<String> =
                    fields.keys().map(|field| format!("`${axis}.{}`", field.get_ref())).collect();
                let what = format!(
                    "axis `{axis}` has points of several values; write {}",
                    fields.join(" or ")
                );
                Err(source.error(place, what))
            }
        }
    }
}

fn axis_points<'t>(
    source: Source<'t>,
    axis: &str,
    points: Spanned<DeValue<'t>>,
) -> Result<Vec<Point<'t>>, Error> {
    let place = points.span();
    let DeValue::Array(points) = points.into_inner() else {
        return Err(source.error(&place, format!("axis `{axis}` must be a list of points")));
    };
    if points.is_empty() {
        return Err(source.error(&place, format!("axis `{axis}` has no points; give at least one")));
    }
    let mut labels = BTreeSet::new();
    let mut read = Vec::new();
    for point in points {
        let point = axis_point(source, point)?;
        if !labels.insert(point.label.clone()) {
            let what = format!("axis `{axis}` has two points `{}`; labels differ", point.label);
            return Err(source.error(&point.place, what));
        }
        read.push(point);
    }
    Ok(read)
}

fn axis_point<'t>(source: Source<'t>, point: Spanned<DeValue<'t>>) -> Result<Point<'t>, Error> {
    let place = point.span();
    let (label, values) = match point.into_inner() {
        DeValue::Table(mut fields) => match fields.remove("label").map(Spanned::into_inner) {
            Some(DeValue::String(_)) if fields.is_empty() => {
                let what = "a label alone changes nothing; give the point values beside it";
                return Err(source.error(&place, what));
            }
            Some(DeValue::String(label)) => (label.into_owned(), Values::Fields(fields)),
            _ => {
                let what = "a point of several values needs a `label` of text";
                return Err(source.error(&place, what));
            }
        },
        value => match plain_label(&value) {
            Some(label) => (label, Values::One(Spanned::new(place.clone(), value))),
            None => {
                let what = "a point is text, a number, or a table with a `label` and the values \
                            that go together";
                return Err(source.error(&place, what));
            }
        },
    };
    if !is_one_line(&label) {
        return Err(source.error(&place, "a label is one line of text"));
    }
    Ok(Point { label, place, values })
}

/// Whether a table or a title can show it.
pub(crate) fn is_one_line(text: &str) -> bool {
    !text.trim().is_empty() && !text.chars().any(char::is_control)
}

fn plain_label(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        DeValue::Array(_) | DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}
