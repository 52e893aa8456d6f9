//! Figures and tables of papers with ours beside them: what a description says of each, the numbers of the recorded
//! runs that it names, and how far they agree, as Markdown with drawings and as one page.
//!
//! The description (`bench/papers/*.toml`) says which figure it is, which runs show it, and what the paper states. Whether
//! ours agree is computed here, claim by claim, and nowhere written by hand.

mod claim;
mod describe;
mod draw;
mod markdown;
mod page;
mod read;
mod stated;
mod values;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};

use maud::Markup;

pub use describe::{Item, Paper, Wrong};
pub use values::Values;

use claim::Row;

/// Recorded runs, by the names of their folders, with their numbers where those are wanted.
pub type Runs = BTreeMap<String, Option<Values>>;

/// All papers with all that there is to show.
#[derive(Debug)]
pub struct Papers {
    papers: Vec<Shown>,
}

/// One paper.
#[derive(Debug)]
struct Shown {
    paper: Paper,
    items: Vec<ShownItem>,
}

/// One of its figures or tables.
#[derive(Debug)]
struct ShownItem {
    item: Item,
    rows: Vec<Row>,
    /// Names of the drawings' files, and the drawings.
    drawings: Vec<(String, Markup)>,
    agreement: Agreement,
}

/// How far ours agrees with the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Agreement {
    /// In all that the paper states.
    Reproduced,
    /// In so many of so many statements.
    Part(usize, usize),
    /// In none.
    Differs,
    /// The paper states nothing that could be held against ours.
    Shown,
    /// There is no run of it.
    NotRun,
    /// It shows no result.
    NotApplicable,
}

impl Papers {
    /// The papers in their order, with the numbers of `runs`.
    ///
    /// # Errors
    /// The first thing that a description names and that is not there, or that it lacks.
    pub fn new(mut papers: Vec<Paper>, runs: &Runs) -> Result<Papers, Wrong> {
        papers.sort_by_key(|paper| paper.order);
        let shown = papers.into_iter().map(|paper| Shown::new(paper, runs));
        Ok(Papers { papers: shown.collect::<Result<_, _>>()? })
    }

    /// The names of the runs that `papers` draw or hold against theirs, whose numbers are wanted.
    pub fn runs_with_numbers(papers: &[Paper]) -> BTreeSet<&str> {
        papers.iter().flat_map(|paper| &paper.item).flat_map(Item::measured).collect()
    }

    /// The names of the runs that `papers` name as evidence, of which it counts that they are there.
    pub fn evidence(papers: &[Paper]) -> BTreeSet<&str> {
        let items = papers.iter().flat_map(|paper| &paper.item);
        items.flat_map(|item| &item.evidence).map(String::as_str).collect()
    }

    /// The page as Markdown, whose drawings are in the folder `drawings` beside it, and this repository in `root`.
    pub fn markdown(&self, drawings: &str, root: &str) -> String {
        markdown::page(self, drawings, root)
    }

    /// The drawings: a file's name and its text.
    pub fn drawings(&self) -> impl Iterator<Item = (&str, String)> {
        let items = self.papers.iter().flat_map(|paper| &paper.items);
        let drawings = items.flat_map(|item| &item.drawings);
        drawings.map(|(name, drawing)| (name.as_str(), format!("{}\n", drawing.0)))
    }

    /// The page as one HTML file that needs nothing but itself.
    pub fn html(&self) -> String {
        page::page(self)
    }
}

impl Shown {
    fn new(paper: Paper, runs: &Runs) -> Result<Shown, Wrong> {
        let items = paper.item.iter().map(|item| ShownItem::new(&paper, item, runs));
        let items = items.collect::<Result<Vec<_>, _>>()?;
        Ok(Shown { paper, items })
    }
}

impl ShownItem {
    fn new(paper: &Paper, item: &Item, runs: &Runs) -> Result<ShownItem, Wrong> {
        let place = format!("{} {}", paper.short, item.name());
        let wrong = |what: String| Wrong { place: place.clone(), what };
        item.check().map_err(wrong)?;
        for name in item.runs() {
            if !runs.contains_key(name) {
                return Err(wrong(format!("no recorded run `{name}`")));
            }
        }
        let mut rows = Vec::new();
        for claim in &item.claim {
            rows.extend(claim::rows(claim, item, runs).map_err(wrong)?);
        }
        let mut drawings = Vec::new();
        for (index, chart) in item.chart.iter().enumerate() {
            let drawing = draw::chart(chart, item, runs).map_err(wrong)?;
            drawings.push((file_name(&paper.short, item, index), drawing));
        }
        let agreement = Agreement::of(item, &rows);
        if !matches!(agreement, Agreement::Reproduced) && item.says.is_empty() {
            return Err(wrong("`says` must say why it differs, or why there is none".to_owned()));
        }
        Ok(ShownItem { item: item.clone(), rows, drawings, agreement })
    }

    /// `#mec-figure-3a`.
    fn anchor(&self, paper: &Paper) -> String {
        format!("{}-{}", paper.short, self.item.name()).to_lowercase().replace(' ', "-")
    }
}

fn file_name(paper: &str, item: &Item, index: usize) -> String {
    let number = if item.chart.len() > 1 { format!("-{}", index + 1) } else { String::new() };
    format!("{paper}-{}{number}.svg", item.name().to_lowercase().replace(' ', "-"))
}

impl Agreement {
    fn of(item: &Item, rows: &[Row]) -> Agreement {
        if item.shows_no_result {
            return Agreement::NotApplicable;
        }
        if item.runs().next().is_none() {
            return Agreement::NotRun;
        }
        let told: Vec<bool> = rows.iter().filter_map(Row::agrees).collect();
        let agree = told.iter().filter(|agrees| **agrees).count();
        match (told.len(), agree) {
            (0, _) => Agreement::Shown,
            (all, agree) if all == agree => Agreement::Reproduced,
            (_, 0) => Agreement::Differs,
            (all, agree) => Agreement::Part(agree, all),
        }
    }

    fn words(self) -> String {
        match self {
            Agreement::Reproduced => "reproduced".to_owned(),
            Agreement::Part(agree, all) => format!("in part: {agree} of {all}"),
            Agreement::Differs => "differs".to_owned(),
            Agreement::Shown => "shown; the paper's text states no number".to_owned(),
            Agreement::NotRun => "not run".to_owned(),
            Agreement::NotApplicable => "not applicable".to_owned(),
        }
    }

    /// The words as a sentence.
    fn sentence(self) -> String {
        let words = self.words();
        let mut letters = words.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        format!("{first}{}.", letters.as_str())
    }
}

impl Papers {
    /// Items of results by agreement, in words.
    fn count(&self) -> String {
        let items = || self.papers.iter().flat_map(|paper| &paper.items);
        let of =
            |wanted: fn(Agreement) -> bool| items().filter(|item| wanted(item.agreement)).count();
        let results = of(|agreement| agreement != Agreement::NotApplicable);
        let agree = |in_numbers: bool| {
            let rows =
                items().flat_map(|item| &item.rows).filter(|row| row.in_numbers == in_numbers);
            let told: Vec<bool> = rows.filter_map(Row::agrees).collect();
            (told.iter().filter(|agrees| **agrees).count(), told.len())
        };
        let ((numbers, of_numbers), (words, of_words)) = (agree(true), agree(false));
        format!(
            "Of {results} figures and tables with results, {} agree in all that the texts state, {} in part, and {} in nothing; \
             of {} the text states nothing to hold against ours; {} were not run. Of numbers that the texts state {numbers} of \
             {of_numbers} agree, of statements in words {words} of {of_words}.",
            of(|agreement| agreement == Agreement::Reproduced),
            of(|agreement| matches!(agreement, Agreement::Part(..))),
            of(|agreement| agreement == Agreement::Differs),
            of(|agreement| agreement == Agreement::Shown),
            of(|agreement| agreement == Agreement::NotRun),
        )
    }

    /// How live and simulated numbers agree where a row has both, in words; none if none has.
    fn live_beside_simulated(&self) -> Option<String> {
        let rows = self.papers.iter().flat_map(|paper| &paper.items).flat_map(|item| &item.rows);
        let factors: Vec<f64> = rows.filter_map(Row::simulated_over_live).collect();
        let within = |most: f64| {
            factors.iter().filter(|factor| (1.0 / most..=most).contains(*factor)).count()
        };
        (!factors.is_empty()).then(|| {
            format!(
                "Of {} numbers that were both run live and simulated, {} are within 15 % of each other and {} within 50 %.",
                factors.len(),
                within(1.15),
                within(1.5),
            )
        })
    }
}

/// What the columns mean, for the top of the page.
const MEANING: [&str; 5] = [
    "*Live* is real kernel TCP over emulated links, *simulated* is virtual time with our own TCP and the same paths. Both are \
     of recorded runs, which tests make again or hold to their records; the names at the end of each section are their folders, and what decides a figure is linked below them.",
    "A number agrees (✓) if it is within 25 % of the paper's, a change in per cent if it is within 10 points of it. Where a text \
     has words and no number, their sense is given in short with the range or bound that they are read as here: that reading is \
     ours, not the paper's. What is only drawn in the papers, as bars and curves, was not read off.",
    "Tolerances and readings were chosen when most of the results were known, and not before: take the counts as a guide, and the \
     numbers as the finding. A figure run by packets and by super-packets counts twice. Rows marked as experiments are under \
     settings that are not the figure's, chosen to find a cause; they count for nothing.",
    "The live column counts where there is one, else the simulated one. A dash means that there is no trusted run.",
    "In drawings discs and full bars are live, rings and light bars simulated, diamonds the paper's.",
];
