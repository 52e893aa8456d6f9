//! All runs of a scenario, in an order in which noise hits all variants alike.

use std::collections::{BTreeMap, BTreeSet};

use midspan_scenario::record::{Outcome, Record, Variant};
use midspan_scenario::{Cell, Scenario};

/// One run that is to be made.
#[derive(Debug, Clone, Copy)]
pub struct PlannedRun<'a> {
    /// The point of the sweep.
    pub cell: &'a Cell,
    /// What stands in the middle.
    pub variant: Variant,
    /// Counted from 0.
    pub repetition: u32,
}

/// The part of a scenario that is asked for.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Variants to run; empty for all that the scenario names.
    pub variants: Vec<Variant>,
    /// Axes and labels that cells must have, one of those named on each axis; axes not named are run
    /// in full.
    pub labels: Vec<(String, String)>,
    /// Variants that cannot run here.
    pub unavailable: Vec<Variant>,
}

impl Selection {
    /// Checks that the scenario has what is asked for.
    ///
    /// # Errors
    /// In one line, what it has not and what it has.
    pub fn check(&self, scenario: &Scenario) -> Result<(), String> {
        for (axis, label) in &self.labels {
            let Some(known) = scenario.axes.iter().find(|known| known.name == *axis) else {
                let known: Vec<&str> = scenario.axes.iter().map(|axis| &*axis.name).collect();
                return Err(format!("no axis `{axis}`; there is {}", known.join(", ")));
            };
            if !known.points.contains(label) {
                let points = known.points.join(", ");
                return Err(format!("axis `{axis}` has no point `{label}`; it has {points}"));
            }
        }
        match self.variants.iter().find(|variant| !scenario.variants.contains(variant)) {
            Some(variant) => Err(format!("the scenario has no variant `{variant}`")),
            None => Ok(()),
        }
    }

    fn takes_cell(&self, cell: &Cell) -> bool {
        self.labels.iter().all(|(axis, _)| {
            let mut named = self.labels.iter().filter(|(other, _)| other == axis);
            named.any(|(_, label)| cell.labels.get(axis) == Some(label))
        })
    }

    fn takes_variant(&self, variant: Variant) -> bool {
        (self.variants.is_empty() || self.variants.contains(&variant))
            && !self.unavailable.contains(&variant)
    }
}

/// The runs that `selection` asks for and that `done` does not hold yet, in the order to make
/// them: a repetition goes through all cells before the next begins, and in a cell the variants
/// follow each other, starting with another one each time.
pub fn plan<'a>(
    scenario: &'a Scenario,
    selection: &Selection,
    done: &[Record],
) -> Vec<PlannedRun<'a>> {
    type Run<'r> = (&'r BTreeMap<String, String>, Variant, u32);
    // A run that failed is made again; of its records the last one counts.
    let done: BTreeSet<Run<'_>> = done
        .iter()
        .filter(|record| !matches!(record.outcome, Outcome::Failed { .. }))
        .map(|record| (&record.cell, record.variant, record.repetition))
        .collect();
    let mut runs = Vec::new();
    for repetition in 0..scenario.repetitions {
        for cell in scenario.cells().iter().filter(|cell| selection.takes_cell(cell)) {
            let mut variants: Vec<Variant> = cell.variants.clone();
            variants.retain(|variant| selection.takes_variant(*variant));
            let first = repetition as usize % variants.len().max(1);
            variants.rotate_left(first);
            runs.extend(
                variants
                    .into_iter()
                    .filter(|variant| !done.contains(&(&cell.labels, *variant, repetition)))
                    .map(|variant| PlannedRun { cell, variant, repetition }),
            );
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_scenario::record::{Backend, SCHEMA};

    const FILE: &str = r#"
        name = "two-cells"
        title = "Two cells, two variants, two repetitions"
        seed = 1
        repetitions = 2
        variants = ["none", "midspan"]

        [path.access]
        up = [{ loss = { share = "$loss" } }, { delay = "0.5 ms" }]
        down = [{ delay = "0.5 ms" }]

        [path.wide]
        up = [{ delay = "5 ms" }]
        down = [{ delay = "5 ms" }]

        [workload]
        kind = "bulk"
        direction = "upload"
        time = "1 s"

        [sweep]
        loss = ["0 %", "1 %"]
    "#;

    fn failed(run: &PlannedRun<'_>) -> Record {
        Record {
            schema: SCHEMA,
            scenario: "two-cells".into(),
            digest: String::new(),
            backend: Backend::Live,
            cell: run.cell.labels.clone(),
            variant: run.variant,
            repetition: run.repetition,
            seed: 0,
            started_unix_ms: 0,
            outcome: Outcome::Failed { reason: "test".into() },
        }
    }

    fn untrusted(run: &PlannedRun<'_>) -> Record {
        let outcome = Outcome::Untrusted { reason: "test".into(), links: Vec::new() };
        Record { outcome, ..failed(run) }
    }

    #[test]
    fn variants_alternate_and_who_goes_first_changes() {
        let scenario = Scenario::parse(FILE, "test.toml").unwrap();
        let runs = plan(&scenario, &Selection::default(), &[]);
        let order: Vec<_> = runs.iter().map(|run| (run.repetition, run.variant)).collect();
        use Variant::{Midspan, None};
        assert_eq!(order[..4], [(0, None), (0, Midspan), (0, None), (0, Midspan)]);
        assert_eq!(order[4..], [(1, Midspan), (1, None), (1, Midspan), (1, None)]);
    }

    #[test]
    fn a_cut_sweep_goes_on_where_it_stopped_and_repeats_what_failed() {
        let scenario = Scenario::parse(FILE, "test.toml").unwrap();
        let all = plan(&scenario, &Selection::default(), &[]);
        let done: Vec<Record> = all[..3].iter().map(untrusted).chain([failed(&all[3])]).collect();
        let rest = plan(&scenario, &Selection::default(), &done);
        assert_eq!(rest.len(), all.len() - 3);
        assert_eq!((&rest[0].cell.labels, rest[0].variant), (&all[3].cell.labels, all[3].variant));
    }

    #[test]
    fn a_selection_leaves_the_rest_out() {
        let scenario = Scenario::parse(FILE, "test.toml").unwrap();
        let selection = Selection {
            variants: vec![Variant::Midspan],
            labels: vec![("loss".into(), "1 %".into())],
            ..Selection::default()
        };
        let runs = plan(&scenario, &selection, &[]);
        assert_eq!(runs.len(), 2);
        assert!(runs.iter().all(|run| run.cell.labels["loss"] == "1 %"));
        let both = vec![("loss".into(), "1 %".into()), ("loss".into(), "0 %".into())];
        let selection = Selection { labels: both, ..Selection::default() };
        assert_eq!(plan(&scenario, &selection, &[]).len(), 8);
        let selection = Selection { unavailable: vec![Variant::Midspan], ..Selection::default() };
        assert!(plan(&scenario, &selection, &[]).iter().all(|run| run.variant == Variant::None));
    }
}
