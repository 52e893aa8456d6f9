//! One experiment, as its file describes it.

use std::collections::{BTreeMap, BTreeSet};

use midspan_path::CellularSpec;
use midspan_split::FirstWindows;
use midspan_units::{Rate, Span};
use serde::{Deserialize, Serialize};

use crate::host::{LINUX_RECEIVE_WINDOW, LINUX_RTO_MIN};
use crate::record::{Record, Variant};
use crate::{CellSpec, Compare, Error, digest, parse};

/// One experiment: its cells, and what to run in each.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Short, unique, fit for a file name: lower case letters, digits, `-`.
    pub name: String,
    /// What it shows, in one line.
    pub title: String,
    /// The paper's figure that it repeats, such as `mec 3a`.
    pub figure: Option<String>,
    /// What a reader of the results should know: choices where the paper is silent, its claims in
    /// words. Shown with the results.
    pub notes: Vec<String>,
    /// Where all randomness of the path comes from.
    pub seed: u64,
    /// Runs of each variant in each cell; at least 1.
    pub repetitions: u32,
    /// What untrusted runs speak against.
    pub verdict: VerdictOn,
    /// What stands in the middle, in the order in which a repetition runs them.
    pub variants: Vec<Variant>,
    /// The sweep's axes in the file's order; the last one turns fastest.
    pub axes: Vec<Axis>,
    /// What the paper reports, to be shown beside our own numbers. Nothing is computed from it.
    pub reported: Vec<Reported>,
    /// Synthetic traces, by the name under which paths ask for them.
    pub traces: BTreeMap<String, CellularSpec>,
    /// What is left out of the sweep, and why.
    pub skips: Vec<Skip>,
    /// Which point of an axis is held against the others, if one is.
    pub compare: Option<Compare>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) short: Option<Box<Scenario>>,
}

/// What cannot be measured on a machine where too many runs were untrusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictOn {
    /// The cell: its runs are interleaved, so what disturbed one variant's may have disturbed the others'.
    #[default]
    Cell,
    /// The variant, in that cell alone: every other run was found punctual for itself.
    Variant,
}

/// One axis of the sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// As in the file's `[sweep]`.
    pub name: String,
    /// The labels of its points, in order.
    pub points: Vec<String>,
}

/// One point of the sweep, with everything that a backend needs to run it.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Axis -> label of the point on it. Empty without a sweep.
    pub labels: BTreeMap<String, String>,
    /// The variants to run in this cell: the scenario's, but for those that the file skips.
    pub variants: Vec<Variant>,
    /// What to run.
    pub spec: CellSpec,
}

/// What the paper reports for one variant in the cells that bear the given labels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reported {
    /// Axis -> label. Axes that are not named match at every point.
    pub cell: BTreeMap<String, String>,
    /// Which variant it speaks of.
    pub variant: Variant,
    /// Goodput.
    pub goodput: Option<Rate>,
    /// Goodput over that without a proxy in the same cell, as a factor.
    pub gain: Option<f64>,
    /// What else is to be said of the number.
    pub note: Option<String>,
}

/// Runs that are left out of the sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Skip {
    /// Axis -> labels. Axes that are not named match at every point.
    pub cell: BTreeMap<String, Vec<String>>,
    /// The variants that are not run there.
    pub variants: Vec<Variant>,
    /// Why not.
    pub because: String,
}

impl Scenario {
    /// Reads a scenario file's text. `file` only names it in errors.
    ///
    /// # Errors
    /// The first thing that is unknown, missing or impossible, with its line.
    pub fn parse(text: &str, file: &str) -> Result<Scenario, Error> {
        parse::scenario(text, file)
    }

    /// The quick version that the file's `[short]` describes, if it has one.
    pub fn short(&self) -> Option<&Scenario> {
        self.short.as_deref()
    }

    /// Every point of the sweep: the product of the axes, the last one turning fastest, without
    /// the points of which the file skips every variant.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// A hash, as 16 hexadecimal digits, of all that determines a run's result: seed, cells and
    /// what is in them. It does not change with the title, reported numbers, variants or
    /// repetitions: of those, more may be run later and set beside the earlier ones.
    pub fn digest(&self) -> String {
        digest::of_scenario(self)
    }

    /// Whether a record is of this scenario, as its digest says.
    pub fn has(&self, record: &Record) -> bool {
        let of_schema_1 = || record.schema == 1 && record.digest == digest::of_schema_1(self);
        record.scenario == self.name && (record.digest == self.digest() || of_schema_1())
    }

    /// What the same text said when records were of `schema`: in schema 1 a client leg of the relay that names no
    /// congestion control has the MEC's, before schema 3 no hole is kept from UEs, before schema 4 the client leg has
    /// the MEC's initial window and least timeout, and before schema 5 its receive window begins as Linux has it.
    #[must_use]
    pub fn as_of(mut self, schema: u32) -> Scenario {
        if schema < 5 {
            for cell in &mut self.cells {
                let mec = &cell.spec.hosts.mec;
                let relay = &mut cell.spec.relay;
                let leg = &mut relay.client_leg;
                if leg.receive_buffer.is_none() {
                    leg.initial_receive_window.get_or_insert(LINUX_RECEIVE_WINDOW);
                }
                if schema < 4 {
                    leg.initial_window_beside.get_or_insert(FirstWindows::MOST);
                    leg.rto_min.get_or_insert(mec.rto_min.unwrap_or(LINUX_RTO_MIN));
                }
                if schema < 3 {
                    relay.reordering_hold.get_or_insert(Span::ZERO);
                }
                if schema == 1 {
                    leg.congestion_control.get_or_insert_with(|| mec.congestion_control.clone());
                }
            }
            self.short = self.short.map(|short| Box::new(short.as_of(schema)));
        }
        self
    }

    /// The seed for the path's randomness in one repetition of a cell: the same for every variant,
    /// so that all of them meet the same losses.
    pub fn run_seed(&self, cell: &Cell, repetition: u32) -> u64 {
        digest::run_seed(self.seed, &cell.labels, repetition)
    }

    /// The congestion controls that hosts, legs and applications of its cells name.
    pub fn controls(&self) -> BTreeSet<String> {
        self.cells.iter().flat_map(|cell| cell.spec.controls()).collect()
    }

    /// What the paper reports for `variant` in the cell with these `labels`.
    pub fn reported_for(
        &self,
        labels: &BTreeMap<String, String>,
        variant: Variant,
    ) -> impl Iterator<Item = &Reported> {
        self.reported.iter().filter(move |reported| reported.speaks_of(labels, variant))
    }
}

impl Reported {
    /// Whether it speaks of `variant` in the cell with these `labels`.
    pub fn speaks_of(&self, labels: &BTreeMap<String, String>, variant: Variant) -> bool {
        self.variant == variant
            && self.cell.iter().all(|(axis, label)| labels.get(axis) == Some(label))
    }
}

impl Skip {
    /// Whether the cell with these `labels` is among those it names.
    pub fn covers(&self, labels: &BTreeMap<String, String>) -> bool {
        self.cell
            .iter()
            .all(|(axis, skipped)| labels.get(axis).is_some_and(|label| skipped.contains(label)))
    }
}
