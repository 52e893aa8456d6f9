//! Which runs are to be simulated, and what came of them.

use std::collections::BTreeMap;

use midspan_scenario::record::{Measurement, Outcome, Record, Variant};
use midspan_scenario::{Cell, Scenario};

use crate::candidate::{Candidate, Tried};
use crate::estimate::mean;
use crate::figures::{Figures, Refused};
use crate::scenario::{self, CANDIDATE, FLOW, is_first_of_place};

/// A run to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Which of the scenario's cells.
    pub cell: usize,
    /// With the relay, or without.
    pub variant: Variant,
    /// Counted from 0; the seed is of it.
    pub repetition: u32,
}

/// Runs of a scenario that compare candidates, and what is known from those that were made.
#[derive(Debug)]
pub struct Plan {
    text: String,
    scenario: Scenario,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) flows: Vec<String>,
    seeds: u32,
    /// By flow, candidate and variant the logarithm of the speed, by repetition.
    speeds: BTreeMap<(usize, usize, Variant), BTreeMap<u32, f64>>,
    /// Why runs gave no number.
    broken: Vec<String>,
    taken: usize,
}

/// The least number of seeds: two to choose by, four to expect by.
const LEAST_SEEDS: u32 = 6;
const MOST_SEEDS: u32 = 1000;
/// Of so many runs one may give no number.
const LEAST_MEASURED: usize = 10;
/// Runs before which it is not looked how many these are.
const FIRST_RUNS: usize = 40;

impl Plan {
    /// Compares `tried` on the path of `figures` with so many seeds, a third of them to choose by.
    ///
    /// # Errors
    /// The first figure or setting that cannot be.
    pub fn new(figures: &Figures, tried: &Tried, seed: u64, seeds: u32) -> Result<Plan, Refused> {
        figures.check()?;
        if !(LEAST_SEEDS..=MOST_SEEDS).contains(&seeds) {
            let problem = format!("{seeds}; from {LEAST_SEEDS} to {MOST_SEEDS}");
            return Err(Refused::new("--seeds", problem));
        }
        let candidates = tried.candidates(figures)?;
        let text = scenario::text(figures, tried, &candidates, seed, seeds);
        let scenario = Scenario::parse(&text, "the scenario of these figures")
            .map_err(|error| Refused::new("these figures", error.to_string()))?;
        let flows = figures.flows.labels();
        Ok(Plan {
            text,
            scenario,
            candidates,
            flows,
            seeds,
            speeds: BTreeMap::new(),
            broken: Vec::new(),
            taken: 0,
        })
    }

    /// The scenario file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it says.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The runs to choose by: all candidates.
    pub fn choosing(&self) -> Vec<Planned> {
        let repetitions = 0..self.choosing_seeds();
        let all = 0..self.scenario.cells().len();
        repetitions.flat_map(|repetition| self.runs(all.clone(), repetition, |_| true)).collect()
    }

    /// The runs to expect by: of the chosen candidate and without a relay, with other seeds.
    pub fn expecting(&self, chosen: usize) -> Vec<Planned> {
        let repetitions = self.choosing_seeds()..self.seeds;
        let all = 0..self.scenario.cells().len();
        repetitions
            .flat_map(|repetition| {
                self.runs(all.clone(), repetition, |candidate| candidate == chosen)
            })
            .collect()
    }

    fn choosing_seeds(&self) -> u32 {
        self.seeds / 3
    }

    fn runs(
        &self,
        cells: impl Iterator<Item = usize>,
        repetition: u32,
        takes: impl Fn(usize) -> bool,
    ) -> Vec<Planned> {
        cells
            .flat_map(|cell| {
                let (_, candidate) = self.place_of(&self.scenario.cells()[cell]);
                let without = is_first_of_place(&self.candidates, candidate);
                let without = without.then_some(Variant::None);
                let with = takes(candidate).then_some(Variant::Midspan);
                without.into_iter().chain(with).map(move |variant| Planned {
                    cell,
                    variant,
                    repetition,
                })
            })
            .collect()
    }

    /// Flow and candidate of a cell.
    fn place_of(&self, cell: &Cell) -> (usize, usize) {
        self.place_named(&cell.labels).expect("the cell is of this scenario")
    }

    fn place_named(&self, labels: &BTreeMap<String, String>) -> Option<(usize, usize)> {
        let flow = self.flows.iter().position(|flow| labels.get(FLOW) == Some(flow))?;
        let candidate = self
            .candidates
            .iter()
            .position(|candidate| labels.get(CANDIDATE) == Some(&candidate.to_string()))?;
        Some((flow, candidate))
    }

    /// Takes what came of a run.
    ///
    /// # Errors
    /// In one line, when it is of another scenario, or of so many that gave no number that the others say nothing.
    pub fn add(&mut self, record: &Record) -> Result<(), String> {
        let (flow, candidate) =
            self.place_named(&record.cell).ok_or("a run of another scenario")?;
        self.taken += 1;
        match &record.outcome {
            Outcome::Measured(measurement) => {
                let of = self.speeds.entry((flow, candidate, record.variant)).or_default();
                of.insert(record.repetition, speed(measurement).ln());
                Ok(())
            }
            Outcome::Failed { reason } | Outcome::Untrusted { reason, .. } => {
                self.broken.push(reason.clone());
                // Few of the first few are not many.
                let most = self.taken.max(FIRST_RUNS) / LEAST_MEASURED;
                if self.broken.len() <= most {
                    return Ok(());
                }
                let count = self.broken.len();
                Err(format!("{count} of the first {} runs gave no number: {reason}", self.taken))
            }
        }
    }

    /// How many runs gave no number, and why one of them did not.
    pub fn broken(&self) -> Option<(usize, &str)> {
        Some((self.broken.len(), self.broken.first()?))
    }

    /// Logarithms of speeds with a candidate, of the seeds to choose by or of the others.
    pub(crate) fn with(&self, flow: usize, candidate: usize, is_choosing: bool) -> Vec<f64> {
        self.of((flow, candidate, Variant::Midspan), is_choosing)
    }

    /// The same without a relay, which is the same path wherever none is.
    pub(crate) fn without(&self, flow: usize, is_choosing: bool) -> Vec<f64> {
        let all = 0..self.candidates.len();
        all.flat_map(|candidate| self.of((flow, candidate, Variant::None), is_choosing)).collect()
    }

    /// With a candidate, the mean over flows, by seed.
    pub(crate) fn with_overall(&self, candidate: usize) -> Vec<f64> {
        self.overall(candidate, Variant::Midspan)
    }

    /// The same without a relay, by place and seed.
    pub(crate) fn without_overall(&self) -> Vec<f64> {
        let all = 0..self.candidates.len();
        all.flat_map(|candidate| self.overall(candidate, Variant::None)).collect()
    }

    /// Of the seeds to expect by, those of which no flow's run broke.
    fn overall(&self, candidate: usize, variant: Variant) -> Vec<f64> {
        (self.choosing_seeds()..self.seeds)
            .filter_map(|repetition| {
                let of = |flow| self.speeds.get(&(flow, candidate, variant))?.get(&repetition);
                let speeds: Option<Vec<f64>> =
                    (0..self.flows.len()).map(|flow| of(flow).copied()).collect();
                speeds.map(mean)
            })
            .collect()
    }

    fn of(&self, key: (usize, usize, Variant), is_choosing: bool) -> Vec<f64> {
        let first_other = self.choosing_seeds();
        let speeds = self.speeds.get(&key).into_iter().flatten();
        let taken = speeds.filter(|(repetition, _)| (**repetition < first_other) == is_choosing);
        taken.map(|(_, speed)| *speed).collect()
    }
}

/// In bit/s: what a flow got while it was measured, or a transfer's size over the mean time until its receiver had it.
fn speed(run: &Measurement) -> f64 {
    let bytes: u64 = run.transfers().iter().map(|transfer| transfer.bytes).sum();
    let seconds: f64 = run.transfers().iter().map(|transfer| transfer.received_s).sum();
    let speed = run.bulk().map_or(bytes as f64 * 8.0 / seconds, |bulk| bulk.goodput_bps);
    // A flow that got nothing at all is as slow as can be told.
    speed.max(1.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use midspan_scenario::record::{Backend, BulkRecord, SCHEMA, TransferRecord, WorkloadRecord};
    use midspan_units::{ByteSize, Span};

    use super::*;
    use crate::figures::Flows;
    use crate::figures::tests::figures;

    /// A plan with these flows, of which every run that is asked for gives what `speed` says of flow, candidate, variant
    /// and repetition.
    pub(crate) fn run(
        sizes: &[u64],
        speed: impl Fn(usize, &Candidate, Variant, u32) -> f64,
    ) -> (Plan, usize) {
        let sizes = sizes.iter().map(|bytes| ByteSize::from_bytes(*bytes)).collect();
        let figures = Figures { flows: Flows::Sizes(sizes), ..figures() };
        let mut plan = Plan::new(&figures, &Tried::default(), 1, 12).unwrap();
        let first = plan.choosing();
        add(&mut plan, &first, &speed);
        let chosen = plan.choose();
        let second = plan.expecting(chosen);
        add(&mut plan, &second, &speed);
        (plan, chosen)
    }

    fn add(
        plan: &mut Plan,
        runs: &[Planned],
        speed: &impl Fn(usize, &Candidate, Variant, u32) -> f64,
    ) {
        for run in runs {
            let cell = plan.scenario().cells()[run.cell].clone();
            let (flow, candidate) = plan.place_of(&cell);
            let bps = speed(flow, &plan.candidates[candidate], run.variant, run.repetition);
            plan.add(&record(cell, run, bps)).unwrap();
        }
    }

    fn record(cell: Cell, run: &Planned, bps: f64) -> Record {
        let seconds = 8e6 / bps;
        let transfer = TransferRecord {
            bytes: 1_000_000,
            connected_s: 0.0,
            acknowledged_s: seconds,
            closed_s: seconds,
            received_s: seconds,
        };
        let measurement = Measurement {
            measured_s: seconds,
            sender_retransmits: 0,
            workload: WorkloadRecord::Transfers(vec![transfer]),
            legs: Vec::new(),
            links: Vec::new(),
            feedback: None,
        };
        Record {
            schema: SCHEMA,
            scenario: "advise".into(),
            digest: String::new(),
            backend: Backend::Sim,
            cell: cell.labels,
            variant: run.variant,
            repetition: run.repetition,
            seed: 0,
            started_unix_ms: 0,
            outcome: Outcome::Measured(measurement),
        }
    }

    #[test]
    fn no_seed_is_of_both_choice_and_expectation() {
        let plan = Plan::new(&figures(), &Tried::default(), 1, 12).unwrap();
        // Twelve candidates, and three places without.
        assert_eq!(plan.choosing().len(), 4 * 15);
        assert_eq!(plan.expecting(5).len(), 8 * 4);
        let first = plan.choosing().iter().map(|run| run.repetition).max().unwrap();
        let second = plan.expecting(5).iter().map(|run| run.repetition).min().unwrap();
        assert!(first < second);
        let scenario = plan.scenario();
        assert_eq!(scenario.repetitions, 12);
        for run in plan.choosing().iter().chain(&plan.expecting(5)) {
            assert!(scenario.cells()[run.cell].variants.contains(&run.variant));
        }
    }

    #[test]
    fn what_came_of_other_runs_is_refused() {
        let mut plan = Plan::new(&figures(), &Tried::default(), 1, 6).unwrap();
        let run = plan.choosing()[0];
        let cell = plan.scenario().cells()[run.cell].clone();
        let mut record = record(cell, &run, 1e6);
        record.cell.insert(FLOW.into(), "2 MB".into());
        assert!(plan.add(&record).unwrap_err().contains("another scenario"));
        record.cell.insert(FLOW.into(), "1 MB".into());
        record.outcome = Outcome::Failed { reason: "too long".into() };
        // A few may break; they are told.
        assert_eq!(plan.broken(), None);
        (0..4).for_each(|_| plan.add(&record).unwrap());
        assert_eq!(plan.broken(), Some((4, "too long")));
        assert!(plan.add(&record).unwrap_err().ends_with("gave no number: too long"));
        assert_eq!(Plan::new(&figures(), &Tried::default(), 1, 5).unwrap_err().figure, "--seeds");
    }

    #[test]
    fn a_flow_that_stands_still_has_a_speed_nevertheless() {
        let figures = Figures { flows: Flows::Times(vec![Span::from_secs(1)]), ..figures() };
        let mut plan = Plan::new(&figures, &Tried::default(), 1, 6).unwrap();
        let run = plan.choosing()[0];
        let cell = plan.scenario().cells()[run.cell].clone();
        let mut record = record(cell, &run, 1e6);
        if let Outcome::Measured(measurement) = &mut record.outcome {
            measurement.workload = WorkloadRecord::Bulk(BulkRecord::default());
        }
        plan.add(&record).unwrap();
        assert_eq!(plan.without(0, true), [0.0]);
    }
}
