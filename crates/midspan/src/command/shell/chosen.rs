//! The one cell of a scenario that a shell is of.

use std::collections::BTreeMap;

use anyhow::Result;
use midspan_scenario::{Cell, Scenario};
use toml::{Table, Value};

use crate::command::BadInput;
use crate::command::settings::put;

/// A scenario, and the cell that was chosen of it.
#[derive(Debug)]
pub(super) struct Chosen {
    /// With what was set in it.
    pub(super) scenario: Scenario,
    /// The first one that has the labels that were set.
    pub(super) cell: Cell,
}

/// What a scenario has beside its cells, and what need not fit a shell's.
const ASIDE: [&str; 4] = ["short", "skip", "reported", "compare"];

impl Chosen {
    /// Reads a scenario and sets in it what `settings` name: a point of an axis, by its label or as a value that the axis does
    /// not have, or any other key.
    pub(super) fn of(text: &str, file: &str, settings: &[(String, Value)]) -> Result<Chosen> {
        let mut scenario = Scenario::parse(text, file).map_err(BadInput::because)?;
        let mut table: Table = text.parse().map_err(BadInput::because)?;
        let mut labels = BTreeMap::new();
        for (key, value) in settings {
            let refused = |what: String| BadInput::because(format!("--set {key}: {what}"));
            let label = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let axis = scenario.axes.iter().find(|axis| axis.name == *key);
            let point = axis.and_then(|axis| axis.points.iter().find(|point| same(point, &label)));
            match (axis, point) {
                (Some(_), Some(point)) => {
                    labels.insert(key.clone(), point.clone());
                    continue;
                }
                // What a value means is in the point's table.
                (Some(axis), None) if has_tables(&table, key) => {
                    let points = axis.points.join(", ");
                    return Err(refused(format!("no point `{label}`; the axis has {points}")));
                }
                (Some(_), None) => {
                    put(&mut table, &format!("sweep.{key}"), vec![value.clone()].into())
                        .map_err(refused)?;
                    labels.insert(key.clone(), label);
                }
                (None, _) => put(&mut table, key, value.clone()).map_err(refused)?,
            }
            ASIDE.iter().for_each(|name| drop(table.remove(*name)));
            let changed = toml::to_string(&table)?;
            scenario = Scenario::parse(&changed, file).map_err(|error| refused(error.what))?;
        }
        let has =
            |cell: &&Cell| labels.iter().all(|(axis, label)| cell.labels.get(axis) == Some(label));
        let Some(cell) = scenario.cells().iter().find(has).cloned() else {
            return Err(BadInput::because(format!("{file}: it leaves out what `--set` chooses")));
        };
        Ok(Chosen { scenario, cell })
    }

    /// What it is, in a few words.
    pub(super) fn title(&self) -> String {
        let labels = self.cell.labels.iter().map(|(axis, label)| format!(", {axis} {label}"));
        let path = &self.cell.spec.path;
        let rtt = path.access.base_rtt() + path.wide.base_rtt();
        format!("{}{}, rtt {rtt}", self.scenario.name, labels.collect::<String>())
    }
}

/// Whether they are the same but for spaces: `1%` is `1 %`.
fn same(label: &str, other: &str) -> bool {
    let letters = |text: &str| text.replace(' ', "");
    letters(label) == letters(other)
}

/// Whether an axis' points are of several values each.
fn has_tables(scenario: &Table, axis: &str) -> bool {
    let points = scenario.get("sweep").and_then(|sweep| sweep.get(axis));
    points.and_then(Value::as_array).is_some_and(|points| points.iter().any(Value::is_table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_units::Span;

    const FILE: &str = r#"
        name = "a-path"
        title = "A path"
        variants = ["none"]
        [path.access]
        up = [{ loss = { share = "$loss" } }, { delay = "$at.access" }]
        [path.wide]
        up = [{ delay = "10 ms" }]
        [workload]
        kind = "bulk"
        direction = "upload"
        time = "1 s"
        [sweep]
        loss = ["0 %", "1 %"]
        at = [{ label = "near", access = "1 ms" }, { label = "far", access = "5 ms" }]
        [[skip]]
        cell = { loss = ["0 %"], at = ["far"] }
        variants = ["none"]
        because = "a test"
    "#;

    fn chosen(settings: &[&str]) -> Result<Chosen> {
        let settings: Vec<_> =
            settings.iter().map(|text| crate::command::settings::setting(text).unwrap()).collect();
        Chosen::of(FILE, "path.toml", &settings)
    }

    #[test]
    fn points_values_and_keys_can_be_set() {
        assert_eq!(chosen(&[]).unwrap().title(), "a-path, at near, loss 0 %, rtt 11 ms");
        assert_eq!(
            chosen(&["loss=1%", "at=far"]).unwrap().title(),
            "a-path, at far, loss 1 %, rtt 15 ms"
        );
        let other = chosen(&["loss=3 %", "hosts.ue.congestion_control=reno", "at=far"]).unwrap();
        assert_eq!(other.title(), "a-path, at far, loss 3 %, rtt 15 ms");
        assert_eq!(other.cell.spec.hosts.ue.congestion_control, "reno");
        assert_eq!(other.cell.spec.path.access.base_rtt(), Span::from_millis(5));
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_line() {
        for (settings, words) in [
            (&["at=middle"][..], "the axis has near, far"),
            (&["loss=much"], "--set loss: "),
            (&["hosts.ue.mood=good"], "unknown key `mood`"),
            (&["loss=0 %", "at=far"], "leaves out"),
        ] {
            let error = chosen(settings).unwrap_err();
            assert!(error.is::<BadInput>());
            let said = error.to_string();
            assert!(said.contains(words) && !said.contains('\n'), "{said}");
        }
    }
}
