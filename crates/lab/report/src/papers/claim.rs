//! What the paper states, held against ours.

use std::collections::BTreeMap;

use midspan_scenario::record::Variant;

use super::Runs;
use super::describe::{Claim, Item, Take, meant};
use super::stated::Stated;
use super::values::{Labels, Measure, Values};
use crate::number::factor;

/// One statement with ours beside it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) says: String,
    /// As the paper states it.
    pub(super) paper: String,
    stated: Stated,
    live: Option<f64>,
    sim: Option<f64>,
}

/// A row for each of the claim's `each`.
pub(super) fn rows(claim: &Claim, item: &Item, runs: &Runs) -> Result<Vec<Row>, String> {
    let stated = Stated::parse(&claim.paper)?;
    let measure = Measure::named(&claim.measure)?;
    let mut rows = Vec::new();
    for (more, name) in variations(&claim.each) {
        let number = |run: Option<&str>| {
            run.and_then(|run| runs.get(run)?.as_ref()).map_or(Ok(None), |values| {
                number(claim, measure, &more, values)
                    .map_err(|what| format!("{}: {what}", claim.says))
            })
        };
        rows.push(Row {
            says: format!("{}{name}", claim.says),
            paper: claim.paper.clone(),
            stated,
            live: number(meant(&claim.live, &item.live))?,
            sim: number(meant(&claim.sim, &item.sim))?,
        });
    }
    Ok(rows)
}

/// Every combination of the labels, and how it is called.
fn variations(each: &BTreeMap<String, Vec<String>>) -> Vec<(Labels, String)> {
    let mut all = vec![(Labels::new(), String::new())];
    for (axis, labels) in each {
        let longer = |(known, name): &(Labels, String)| {
            let with = |label: &String| {
                let mut known = known.clone();
                known.insert(axis.clone(), label.clone());
                (known, format!("{name}, {label}"))
            };
            labels.iter().map(with).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// What `values` have of it; none if a run of it is missing or not to be trusted.
fn number(
    claim: &Claim,
    measure: Measure,
    more: &Labels,
    values: &Values,
) -> Result<Option<f64>, String> {
    let (variant, of) = place(&[&claim.of, more])?;
    if !values.has(&of) {
        return Err(format!("no cell has {of:?}"));
    }
    let counts = |labels: &Labels| {
        !claim
            .except
            .iter()
            .any(|(axis, excepted)| labels.get(axis).is_some_and(|label| excepted.contains(label)))
    };
    let mut found = Vec::new();
    for (labels, number) in
        values.numbers(variant, measure, &of).filter(|(labels, _)| counts(labels))
    {
        let Some(over) = &claim.over else {
            found.push(number.mean);
            continue;
        };
        let (variant, over) = place(&[&claim.of, labels, more, over])?;
        if !values.has(&over) {
            return Err(format!("no cell has {over:?}"));
        }
        let base = values.numbers(variant, measure, &over).next();
        found.extend(
            base.map(|(_, base)| number.mean / base.mean).filter(|factor| factor.is_finite()),
        );
    }
    match (claim.take, found.len()) {
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

impl Row {
    /// Whether ours is what the paper states; none without ours. Live counts before simulated.
    pub(super) fn agrees(&self) -> Option<bool> {
        self.live.or(self.sim).map(|ours| self.stated.agrees(ours))
    }

    /// Simulated over live, where there are both.
    pub(super) fn simulated_over_live(&self) -> Option<f64> {
        let factor = self.sim? / self.live?;
        factor.is_finite().then_some(factor)
    }

    /// The cells of its line: live and simulated with what each is of the paper's, and simulated over live.
    pub(super) fn columns(&self) -> [String; 5] {
        let number = |ours: Option<f64>| ours.map_or(dash(), |ours| self.stated.unit.written(ours));
        let beside = |ours: Option<f64>| {
            let Some(ours) = ours else { return String::new() };
            let mark = if self.stated.agrees(ours) { "✓" } else { "✗" };
            match self.stated.beside(ours) {
                Some(times) => format!("{} {mark}", factor(times)),
                None => mark.to_owned(),
            }
        };
        let each = self.simulated_over_live().map_or(String::new(), factor);
        [number(self.live), beside(self.live), number(self.sim), beside(self.sim), each]
    }
}

/// The titles of a row's columns.
pub(super) const COLUMNS: [&str; 7] =
    ["stated", "paper", "live", "/ paper", "simulated", "/ paper", "sim. / live"];

fn dash() -> String {
    "–".to_owned()
}
