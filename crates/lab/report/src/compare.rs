//! Our runs beside reference curves: cell by cell, who wins, and how far off.

use std::collections::BTreeMap;

use midspan_scenario::record::Variant;
use midspan_scenario::reference::{Comparison, Conditions, Contest, Pair};
use midspan_scenario::summary::{Measurability, Summary};
use midspan_scenario::{Scenario, Stats};
use midspan_units::Share;

use crate::grid::{Cell, Grid, Look, painted, wrapped};
use crate::view::{cell_name, variant_name};
use crate::{Terminal, html};
use midspan_units::number::{Quantity, factor, percent};

/// Errors up to this share count as agreement.
pub(crate) const CLOSE: f64 = 0.15;

/// What the names of Midspan's own controls begin with.
const OURS: &str = "ms_";

/// Retransmissions in the reference below which chance has too much say.
const MANY: u64 = 20;

/// One scenario's results beside a reference.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// What was run.
    pub scenario: &'a Scenario,
    /// What it gave.
    pub summary: &'a Summary,
    /// The same beside the reference.
    pub comparison: &'a Comparison,
}

/// The comparison of several scenarios as text: a line for each cell that the reference has, who
/// wins, and the agreement in sentences. Ends in a newline.
pub fn text(compared: &[Compared<'_>], terminal: Terminal) -> String {
    let all = Against::of(compared);
    let mut out =
        format!("Acknowledged goodput against the reference, Mbit/s\n{}", cells(&all, terminal));
    if !all.contests.is_empty() {
        out.push_str("\nGain of a proxy against the reference\n");
        out.push_str(&contests(&all, terminal));
    }
    out.push('\n');
    for sentence in all.sentences() {
        let sentence = wrapped(&sentence, terminal.width, 0);
        out.push_str(&painted(&sentence, Look::Bold, terminal.colour));
        out.push('\n');
    }
    out
}

/// The comparison of several scenarios as a page that needs nothing but itself.
pub fn page(title: &str, compared: &[Compared<'_>]) -> String {
    html::comparison_page(title, &Against::of(compared))
}

/// Everything that is compared, flat.
pub(crate) struct Against<'a> {
    /// What speaks against the numbers.
    doubts: Vec<String>,
    pub(crate) lines: Vec<Line<'a>>,
    pub(crate) contests: Vec<Bout<'a>>,
}

/// One cell and variant beside its reference.
pub(crate) struct Line<'a> {
    pub(crate) pair: &'a Pair,
    /// What we have; none if it was not measured, or cannot be here.
    pub(crate) ours: Option<Ours>,
}

/// Our number, and what it comes to beside theirs.
#[derive(Clone, Copy)]
pub(crate) struct Ours {
    pub(crate) stats: Stats,
    /// Ours over theirs.
    pub(crate) ratio: f64,
}

/// One cell with a proxy against the same without, in the reference and here.
pub(crate) struct Bout<'a> {
    pub(crate) contest: &'a Contest,
    /// The cell's name.
    pub(crate) cell: String,
    /// Our factor; none if either side was not measured, or cannot be here.
    pub(crate) ours: Option<f64>,
}

impl<'a> Against<'a> {
    pub(crate) fn of(compared: &[Compared<'a>]) -> Self {
        let mut all = Against { doubts: Vec::new(), lines: Vec::new(), contests: Vec::new() };
        for Compared { scenario, summary, comparison } in compared {
            let measurable = summary.measurability == Measurability::Measurable;
            let trusted = |labels: &BTreeMap<String, String>| {
                measurable
                    && summary.cells.iter().any(|cell| {
                        cell.labels == *labels && cell.measurability == Measurability::Measurable
                    })
            };
            let counts = summary.counts;
            if counts.untrusted > 0 {
                let verdict = if measurable { "" } else { "not measurable here: " };
                all.doubts.push(format!(
                    "{}: {verdict}{} of {} runs untrusted.",
                    scenario.name,
                    counts.untrusted,
                    counts.total()
                ));
            }
            all.lines.extend(comparison.pairs.iter().map(|pair| {
                let ours = pair.ours.zip(pair.ratio).filter(|_| trusted(&pair.labels));
                Line { pair, ours: ours.map(|(stats, ratio)| Ours { stats, ratio }) }
            }));
            all.contests.extend(comparison.contests.iter().map(|contest| Bout {
                contest,
                cell: cell_name(scenario, &contest.labels),
                ours: contest.ours.filter(|_| trusted(&contest.labels)),
            }));
        }
        all
    }

    /// The variants that have a line, each once.
    pub(crate) fn variants(&self) -> Vec<Variant> {
        let mut variants: Vec<Variant> = self.lines.iter().map(|line| line.pair.variant).collect();
        variants.sort();
        variants.dedup();
        variants
    }

    /// How well it agrees, in sentences.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let errors: Vec<f64> =
            self.lines.iter().filter_map(|line| Some((line.ours?.ratio - 1.0).abs())).collect();
        let Some(stats) = Stats::of(&errors) else {
            let nothing = "No cell that the reference has was measured.".to_owned();
            return self.doubts.iter().cloned().chain([nothing]).collect();
        };
        let close = errors.iter().filter(|error| **error <= CLOSE).count();
        let mut sentences = self.doubts.clone();
        sentences.push(format!(
            "{} of {} cells and variants of the reference's kind measured: median error {}, worst {}; {} of {} \
             ({}) within {:.0} %.",
            errors.len(),
            self.lines.len(),
            percent(stats.median),
            percent(stats.max),
            close,
            errors.len(),
            percent(close as f64 / errors.len() as f64),
            CLOSE * 100.0,
        ));
        sentences.extend(self.of_many_losses());
        sentences.extend(self.of_twins());
        let bouts: Vec<&Bout<'_>> =
            self.contests.iter().filter(|bout| bout.ours.is_some()).collect();
        if !bouts.is_empty() {
            let count = |agrees: fn(&Contest) -> Option<bool>| {
                bouts.iter().filter(|bout| agrees(bout.contest) == Some(true)).count()
            };
            sentences.push(format!(
                "With or without a proxy, the same side wins in {} of {} cells, and the factor of \
                 acknowledged goodput is of the same order in {}.",
                count(|contest| contest.same_winner),
                bouts.len(),
                count(|contest| contest.same_order),
            ));
        }
        sentences
    }
}

impl Against<'_> {
    /// The agreement where chance has little say: the cells in which the reference lost often.
    fn of_many_losses(&self) -> Option<String> {
        let many = |line: &&Line<'_>| line.pair.theirs.retransmits >= MANY;
        let errors: Vec<f64> = self
            .lines
            .iter()
            .filter(many)
            .filter_map(|line| Some((line.ours?.ratio - 1.0).abs()))
            .collect();
        let within = |most: f64| {
            let count = errors.iter().filter(|error| **error <= most).count();
            let share = percent(count as f64 / errors.len() as f64);
            format!("{count} of {} ({share}) within {:.0} %", errors.len(), most * 100.0)
        };
        (!errors.is_empty()).then(|| {
            format!(
                "Of those with {MANY} retransmissions or more in the reference, {}, {} and {}.",
                within(0.1),
                within(CLOSE),
                within(0.25)
            )
        })
    }
}

impl Against<'_> {
    /// Midspan's own controls beside the kernel's of the same name, in the same conditions of the same run.
    fn of_twins(&self) -> Option<String> {
        let mean = |line: &Line<'_>| Some(line.ours?.stats.mean);
        let factors: Vec<f64> = self
            .lines
            .iter()
            .filter_map(|line| {
                let name = line.pair.control.strip_prefix(OURS)?;
                let twin = self.lines.iter().find(|twin| {
                    twin.pair.control == name
                        && twin.pair.variant == line.pair.variant
                        && twin.pair.theirs == line.pair.theirs
                })?;
                Some(mean(line)? / mean(twin)?)
            })
            .collect();
        let stats = Stats::of(&factors)?;
        let close = factors.iter().filter(|factor| (*factor - 1.0).abs() <= 0.1).count();
        Some(format!(
            "Midspan's own controls beside the kernel's of the same name, in the same run: {close} of {} cells \
             within 10 %, from {} to {} times as fast, {} on the mean.",
            factors.len(),
            factor(stats.min),
            factor(stats.max),
            factor(stats.mean),
        ))
    }
}

impl Line<'_> {
    /// Control, RTT, access RTT, impairment and what stood in the middle.
    pub(crate) fn conditions(&self) -> [String; 5] {
        let conditions = &self.pair.theirs.conditions;
        [
            self.pair.control.clone(),
            conditions.rtt.to_string(),
            conditions.access_rtt.to_string(),
            impairment(conditions),
            variant_name(self.pair.variant).to_owned(),
        ]
    }

    /// Theirs.
    pub(crate) fn reference(&self) -> f64 {
        self.pair.theirs.goodput.as_bps() as f64
    }

    /// The error that the number of losses alone lets expect.
    pub(crate) fn chance(&self) -> String {
        self.pair.sampling_error.map(|error| format!("± {}", percent(error))).unwrap_or_default()
    }
}

/// `0.5 % lost, 1 % by 10 ms late`, or `none`.
fn impairment(conditions: &Conditions) -> String {
    let mut parts = Vec::new();
    if conditions.loss > Share::ZERO {
        parts.push(format!("{} lost", conditions.loss));
    }
    if conditions.late > Share::ZERO {
        parts.push(format!("{} by {} late", conditions.late, conditions.late_by));
    }
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// `yes`, `no`, or a dash where it cannot be said.
pub(crate) fn answer(same: Option<bool>) -> &'static str {
    match same {
        Some(true) => "yes",
        Some(false) => "no",
        None => "–",
    }
}

fn cells(all: &Against<'_>, terminal: Terminal) -> String {
    let mut grid = Grid::default();
    let left = ["control", "RTT", "access", "impairment", "through"].map(Cell::left);
    let right = ["reference", "ours"].map(Cell::right);
    let rest = [Cell::empty(), Cell::right("ratio"), Cell::left("by chance")];
    let header = left.into_iter().chain(right).chain(rest);
    grid.push(header.map(|cell| cell.look(Look::Dim)).collect());
    for line in &all.lines {
        let mut row: Vec<Cell> = line.conditions().map(Cell::left).into();
        row.push(Cell::right(Quantity::Rate.digits(line.reference())));
        match line.ours {
            Some(Ours { stats, ratio }) => {
                let spread = stats
                    .deviation
                    .map(|deviation| format!("± {}", Quantity::Rate.spread(deviation, stats.mean)));
                let look = if (ratio - 1.0).abs() <= CLOSE { Look::Plain } else { Look::Bold };
                row.push(Cell::right(Quantity::Rate.digits(stats.mean)));
                row.push(Cell::left(spread.unwrap_or_default()).look(Look::Dim));
                row.push(Cell::right(factor(ratio)).look(look));
                row.push(Cell::left(line.chance()).look(Look::Dim));
            }
            None => row.push(Cell::right("–")),
        }
        grid.push(row);
    }
    grid.render(terminal.colour)
}

fn contests(all: &Against<'_>, terminal: Terminal) -> String {
    let mut grid = Grid::default();
    let header = [
        Cell::left("cell"),
        Cell::left("proxy"),
        Cell::right("reference"),
        Cell::right("ours"),
        Cell::left("same winner"),
        Cell::left("same order"),
    ];
    grid.push(header.map(|cell| cell.look(Look::Dim)).into());
    for bout in &all.contests {
        let ours = bout.ours;
        let say = |same: Option<bool>| Cell::left(answer(ours.and(same)));
        grid.push(vec![
            Cell::left(&bout.cell),
            Cell::left(variant_name(bout.contest.variant)),
            Cell::right(format!("{} x", factor(bout.contest.theirs))),
            Cell::right(ours.map_or("–".to_owned(), |ours| format!("{} x", factor(ours)))),
            say(bout.contest.same_winner),
            say(bout.contest.same_order),
        ]);
    }
    grid.render(terminal.colour)
}
