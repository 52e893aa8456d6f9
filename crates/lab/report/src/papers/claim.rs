//! What the paper states, held against ours.

use std::collections::BTreeMap;

use super::Runs;
use super::describe::{Claim, Item, meant};
use super::stated::Stated;
use super::values::{Labels, metric_named};
use super::wanted::Wanted;
use midspan_units::number::factor;

/// One statement with ours beside it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) says: String,
    /// As the paper states it, or its words and how they are read.
    pub(super) paper: String,
    /// Whether the paper states a number, and not words that are read as one here.
    pub(super) in_numbers: bool,
    /// Whether it is our own experiment, which does not count.
    pub(super) experiment: bool,
    stated: Stated,
    live: Option<f64>,
    sim: Option<f64>,
}

/// A row for each of the claim's `each`.
pub(super) fn rows(claim: &Claim, item: &Item, runs: &Runs) -> Result<Vec<Row>, String> {
    let stated = Stated::parse(&claim.paper)?;
    let metric = metric_named(&claim.measure)?;
    let mut rows = Vec::new();
    for (more, name) in variations(&claim.each) {
        let mut of = claim.of.clone();
        of.extend(more);
        let wanted = Wanted {
            metric,
            of,
            over: claim.over.as_ref(),
            take: claim.take,
            except: &claim.except,
        };
        let of_run = |run: Option<&str>| {
            let values = run.and_then(|run| runs.get(run)?.as_ref());
            let number = values.map_or(Ok(None), |values| wanted.number(values));
            number.map_err(|what| format!("{}: {what}", claim.says))
        };
        let number = |run: Option<&str>| -> Result<Option<f64>, String> {
            let Some(beside) = &claim.beside else { return of_run(run) };
            let both = of_run(run)?.zip(of_run(Some(beside))?);
            Ok(both.map(|(ours, other)| ours / other))
        };
        rows.push(Row {
            says: match claim.experiment {
                true => format!("experiment, not counted: {}{name}", claim.says),
                false => format!("{}{name}", claim.says),
            },
            paper: match &claim.words {
                Some(words) => format!("in words ({words}), read as {}", claim.paper),
                None => claim.paper.clone(),
            },
            in_numbers: claim.words.is_none(),
            experiment: claim.experiment,
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

impl Row {
    /// Whether ours is what the paper states; none without ours, and of experiments. Live counts before simulated.
    pub(super) fn agrees(&self) -> Option<bool> {
        if self.experiment {
            return None;
        }
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
                Some(beside) => format!("{beside} {mark}"),
                None => mark.to_owned(),
            }
        };
        let each = self.simulated_over_live().map_or(String::new(), factor);
        [number(self.live), beside(self.live), number(self.sim), beside(self.sim), each]
    }
}

/// The titles of a row's columns.
pub(super) const COLUMNS: [&str; 7] =
    ["stated", "paper", "live", "beside paper", "simulated", "beside paper", "sim. / live"];

fn dash() -> String {
    "–".to_owned()
}
