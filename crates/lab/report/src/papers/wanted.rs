//! Which number of a run is meant: that of a cell, of one over another, or what stands for several.

use std::collections::BTreeMap;

use midspan_scenario::Metric;
use midspan_scenario::record::Variant;

use super::describe::Take;
use super::values::{Labels, Values};

/// A number that is wanted.
pub(super) struct Wanted<'a> {
    pub(super) metric: &'static Metric,
    /// `variant`, and axis -> label; of other axes all labels count.
    pub(super) of: Labels,
    /// The same of what it is divided by, beside and in place of `of`'s.
    pub(super) over: Option<&'a Labels>,
    /// What stands for several cells.
    pub(super) take: Take,
    /// Axis -> labels of cells that do not count.
    pub(super) except: &'a BTreeMap<String, Vec<String>>,
}

impl Wanted<'_> {
    /// What `values` have of it; none if a run of it is missing or not to be trusted.
    pub(super) fn number(&self, values: &Values) -> Result<Option<f64>, String> {
        let (variant, of) = place(&[&self.of])?;
        if !values.has(&of) {
            return Err(format!("no cell has {of:?}"));
        }
        let mut found = Vec::new();
        let numbers = values.numbers(variant, self.metric, &of);
        for (labels, number) in numbers.filter(|(labels, _)| self.counts(labels)) {
            let Some(over) = self.over else {
                found.push(number.mean);
                continue;
            };
            let (variant, over) = place(&[&self.of, labels, over])?;
            if !values.has(&over) {
                return Err(format!("no cell has {over:?}"));
            }
            let base = values.numbers(variant, self.metric, &over).next();
            let factor = base.map(|(_, base)| number.mean / base.mean);
            found.extend(factor.filter(|factor| factor.is_finite()));
        }
        match (self.take, found.len()) {
            (_, 0) => Ok(None),
            (Take::Only, 1) => Ok(found.pop()),
            (Take::Only, count) => {
                Err(format!("{count} cells have {of:?}; `take` says what stands for them"))
            }
            (Take::Mean, count) => Ok(Some(found.iter().sum::<f64>() / count as f64)),
            (Take::Least, _) => Ok(found.into_iter().reduce(f64::min)),
            (Take::Most, _) => Ok(found.into_iter().reduce(f64::max)),
        }
    }

    fn counts(&self, labels: &Labels) -> bool {
        !self
            .except
            .iter()
            .any(|(axis, excepted)| labels.get(axis).is_some_and(|label| excepted.contains(label)))
    }
}

/// The variant and the labels that these name together, the last one counting.
pub(super) fn place(parts: &[&Labels]) -> Result<(Variant, Labels), String> {
    let mut labels = Labels::new();
    for part in parts {
        labels.extend(part.iter().map(|(axis, label)| (axis.clone(), label.clone())));
    }
    let variant = labels.remove("variant");
    Ok((variant_named(variant.as_deref().unwrap_or("none"))?, labels))
}

pub(super) fn variant_named(name: &str) -> Result<Variant, String> {
    let all = [Variant::None, Variant::Midspan, Variant::Haproxy];
    let known = all.into_iter().find(|variant| variant.to_string() == name);
    known.ok_or_else(|| format!("no variant `{name}`; there are none, midspan and haproxy"))
}
