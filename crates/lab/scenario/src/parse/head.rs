//! What a file says beside its cells: names, repetitions, variants, reported numbers, skips, and
//! the short version.

use std::collections::BTreeMap;

use midspan_path::CellularSpec;
use midspan_units::Rate;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::source::{Source, TextSpan};
use super::sweep::{Choice, Sweep};
use super::{read, table};
use crate::record::Variant;
use crate::{Axis, Cell, Compare, Error, Reported, ReportedRatio, Scenario, Skip, VerdictOn};

/// The keys that [`Head`] reads.
pub(crate) const KEYS: [&str; 12] = [
    "name",
    "title",
    "figure",
    "notes",
    "seed",
    "repetitions",
    "verdict",
    "variants",
    "compare",
    "traces",
    "reported",
    "skip",
];

/// Repetitions beyond this are a mistake.
const MOST_REPETITIONS: u32 = 1000;

/// A file's top-level keys.
#[derive(Clone, Deserialize)]
pub(crate) struct Head {
    name: Spanned<String>,
    title: Spanned<String>,
    figure: Option<String>,
    #[serde(default)]
    notes: Vec<String>,
    #[serde(default = "one_seed")]
    seed: u64,
    #[serde(default = "one_repetition")]
    repetitions: Spanned<u32>,
    #[serde(default)]
    verdict: VerdictOn,
    variants: Spanned<Vec<Variant>>,
    compare: Option<CompareEntry>,
    #[serde(default)]
    traces: BTreeMap<String, Spanned<CellularSpec>>,
    #[serde(default)]
    reported: Vec<Spanned<ReportedEntry>>,
    #[serde(default)]
    skip: Vec<Spanned<SkipEntry>>,
}

/// `[compare]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompareEntry {
    axis: Spanned<String>,
    point: Spanned<String>,
    #[serde(default)]
    except: BTreeMap<Spanned<String>, Vec<Spanned<String>>>,
    #[serde(default)]
    reported: Vec<RatioEntry>,
}

/// One `[[compare.reported]]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RatioEntry {
    against: Spanned<String>,
    goodput: Option<f64>,
    power: Option<f64>,
    power95: Option<f64>,
}

/// One `[[reported]]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportedEntry {
    #[serde(default)]
    cell: BTreeMap<Spanned<String>, Spanned<String>>,
    variants: Vec<Variant>,
    goodput: Option<Rate>,
    gain: Option<f64>,
    note: Option<String>,
}

/// One `[[skip]]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkipEntry {
    #[serde(default)]
    cell: BTreeMap<Spanned<String>, Vec<Spanned<String>>>,
    #[serde(default = "every_variant")]
    variants: Vec<Variant>,
    because: String,
}

/// `[short]`.
pub(crate) struct Short<'t> {
    pub(crate) place: TextSpan,
    pub(crate) sweep: BTreeMap<Spanned<String>, Spanned<Vec<Spanned<String>>>>,
    keys: ShortKeys,
    /// Keys of `[workload]` to replace.
    workload: DeTable<'t>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShortKeys {
    repetitions: Option<Spanned<u32>>,
    variants: Option<Spanned<Vec<Variant>>>,
    #[serde(default)]
    sweep: BTreeMap<Spanned<String>, Spanned<Vec<Spanned<String>>>>,
    /// Stays untyped: it is merged into the full version's before that is read.
    #[serde(default, rename = "workload")]
    _workload: IgnoredAny,
}

impl Head {
    /// Refuses what is impossible whatever the sweep.
    pub(crate) fn check(&self, source: Source<'_>) -> Result<(), Error> {
        let name = self.name.get_ref();
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(fits) {
            let what =
                format!("`{name}` cannot name a scenario; lower case letters, digits and `-` can");
            return Err(source.error(&self.name.span(), what));
        }
        if !super::sweep::is_one_line(self.title.get_ref()) {
            return Err(source.error(&self.title.span(), "the title is one line of text"));
        }
        if !(1..=MOST_REPETITIONS).contains(self.repetitions.get_ref()) {
            let what = format!(
                "{} repetitions cannot be run; from 1 to {MOST_REPETITIONS} can",
                self.repetitions.get_ref()
            );
            return Err(source.error(&self.repetitions.span(), what));
        }
        check_variants(source, &self.variants)?;
        for trace in self.traces.values() {
            let wrong = |what| source.error(&trace.span(), what);
            trace.get_ref().check().map_err(wrong)?;
        }
        self.reported.iter().try_for_each(|entry| check_reported(source, entry))
    }

    /// Refuses labels that no axis has.
    pub(crate) fn check_labels(&self, sweep: &Sweep<'_>) -> Result<(), Error> {
        for entry in &self.reported {
            for (axis, label) in &entry.get_ref().cell {
                sweep.check_label(axis, label)?;
            }
        }
        if let Some(CompareEntry { axis, point, except, reported }) = &self.compare {
            sweep.check_label(axis, point)?;
            for (axis, labels) in except {
                labels.iter().try_for_each(|label| sweep.check_label(axis, label))?;
            }
            reported.iter().try_for_each(|entry| sweep.check_label(axis, &entry.against))?;
        }
        for entry in &self.skip {
            for (axis, labels) in &entry.get_ref().cell {
                labels.iter().try_for_each(|label| sweep.check_label(axis, label))?;
            }
        }
        Ok(())
    }

    /// Refuses two entries that state the same number of a cell: only one could be shown.
    fn check_once(&self, source: Source<'_>, cell: &Cell, variant: Variant) -> Result<(), Error> {
        let speaks = |entry: &&Spanned<ReportedEntry>| {
            expand(entry.get_ref()).iter().any(|one| one.speaks_of(&cell.labels, variant))
        };
        let states: [fn(&ReportedEntry) -> bool; 2] =
            [|entry| entry.gain.is_some(), |entry| entry.goodput.is_some()];
        for states in states {
            let stating = self.reported.iter().filter(|entry| states(entry.get_ref()));
            if let Some(second) = stating.filter(speaks).nth(1) {
                let what = "another entry states this number of the same cell; keep one";
                return Err(source.error(&second.span(), what));
            }
        }
        Ok(())
    }

    /// Refuses reported numbers of cells that are not run, and skips that skip nothing.
    pub(crate) fn check_matches(
        &self,
        source: Source<'_>,
        choices: &[Choice<'_, '_>],
        cells: &[Cell],
    ) -> Result<(), Error> {
        for cell in cells {
            cell.variants.iter().try_for_each(|variant| self.check_once(source, cell, *variant))?;
        }
        for entry in &self.reported {
            for reported in expand(entry.get_ref()) {
                let speaks = |cell: &Cell| {
                    cell.variants.contains(&reported.variant)
                        && reported.speaks_of(&cell.labels, reported.variant)
                };
                if !cells.iter().any(speaks) {
                    let what = format!(
                        "no cell with these labels runs variant `{}`; mend the labels or remove it",
                        reported.variant
                    );
                    return Err(source.error(&entry.span(), what));
                }
            }
        }
        for (skip, entry) in self.skips().iter().zip(&self.skip) {
            let skips_some = choices.iter().any(|choice| skip.covers(&choice.labels()))
                && skip.variants.iter().any(|variant| self.variants.get_ref().contains(variant));
            if !skips_some {
                let what =
                    "there is nothing here to skip; mend the labels and variants or remove it";
                return Err(source.error(&entry.span(), what));
            }
        }
        match cells.is_empty() {
            true => Err(source.error(&self.variants.span(), "`skip` leaves nothing to run")),
            false => Ok(()),
        }
    }

    /// The variants to run in the cell with these `labels`.
    pub(crate) fn variants_of(&self, labels: &BTreeMap<String, String>) -> Vec<Variant> {
        let skips = self.skips();
        let skipped = |variant: &Variant| {
            skips.iter().any(|skip| skip.covers(labels) && skip.variants.contains(variant))
        };
        self.variants.get_ref().iter().copied().filter(|variant| !skipped(variant)).collect()
    }

    /// The scenario of these keys with the sweep's `axes` and `cells`.
    pub(crate) fn scenario(&self, axes: Vec<Axis>, cells: Vec<Cell>) -> Scenario {
        Scenario {
            name: self.name.get_ref().clone(),
            title: self.title.get_ref().clone(),
            figure: self.figure.clone(),
            notes: self.notes.clone(),
            seed: self.seed,
            repetitions: *self.repetitions.get_ref(),
            verdict: self.verdict,
            variants: self.variants.get_ref().clone(),
            axes,
            reported: self.reported.iter().flat_map(|entry| expand(entry.get_ref())).collect(),
            traces: self
                .traces
                .iter()
                .map(|(name, trace)| (name.clone(), *trace.get_ref()))
                .collect(),
            skips: self.skips(),
            compare: self.compare.as_ref().map(CompareEntry::compare),
            cells,
            short: None,
        }
    }

    fn skips(&self) -> Vec<Skip> {
        self.skip
            .iter()
            .map(Spanned::get_ref)
            .map(|entry| Skip {
                cell: texts(&entry.cell),
                variants: entry.variants.clone(),
                because: entry.because.clone(),
            })
            .collect()
    }
}

/// Axis -> labels, without their places.
fn texts(cells: &BTreeMap<Spanned<String>, Vec<Spanned<String>>>) -> BTreeMap<String, Vec<String>> {
    let text = |text: &Spanned<String>| text.get_ref().clone();
    cells.iter().map(|(axis, labels)| (text(axis), labels.iter().map(text).collect())).collect()
}

impl<'t> Short<'t> {
    /// Reads `[short]`.
    pub(crate) fn parse(source: Source<'t>, value: Spanned<DeValue<'t>>) -> Result<Self, Error> {
        let place = value.span();
        let keys = table(source, "short", value)?;
        let workload = match keys.get("workload") {
            Some(workload) => table(source, "short.workload", workload.clone())?,
            None => DeTable::new(),
        };
        let mut keys: ShortKeys = read(source, keys, place.clone()).map_err(|(_, error)| error)?;
        let sweep = std::mem::take(&mut keys.sweep);
        Ok(Short { place, sweep, keys, workload })
    }

    /// The full version's head with what the short one changes.
    pub(crate) fn head(&self, source: Source<'_>, full: &Head) -> Result<Head, Error> {
        let mut head = full.clone();
        if let Some(repetitions) = &self.keys.repetitions {
            head.repetitions = repetitions.clone();
        }
        if let Some(variants) = &self.keys.variants {
            head.variants = variants.clone();
        }
        head.check(source)?;
        Ok(head)
    }

    /// The full version's cell sections with the workload's keys that the short one changes.
    pub(crate) fn template(
        &self,
        source: Source<'_>,
        full: &DeTable<'t>,
    ) -> Result<DeTable<'t>, Error> {
        let mut template = full.clone();
        if let Some(DeValue::Table(keys)) = template.get_mut("workload").map(Spanned::get_mut) {
            for (key, value) in self.workload.iter() {
                if key.get_ref() == "kind" {
                    let what = "the short version cannot change the `kind` of the workload";
                    return Err(source.error(&key.span(), what));
                }
                // Removed first, as an insertion would keep the old key and with it its place.
                keys.remove(key);
                keys.insert(key.clone(), value.clone());
            }
        }
        Ok(template)
    }
}

impl CompareEntry {
    fn compare(&self) -> Compare {
        let reported = |entry: &RatioEntry| ReportedRatio {
            against: entry.against.get_ref().clone(),
            goodput: entry.goodput,
            power: entry.power,
            power95: entry.power95,
        };
        Compare {
            axis: self.axis.get_ref().clone(),
            point: self.point.get_ref().clone(),
            except: texts(&self.except),
            reported: self.reported.iter().map(reported).collect(),
        }
    }
}

/// What an entry reports, variant by variant.
fn expand(entry: &ReportedEntry) -> Vec<Reported> {
    let text = |(axis, label): (&Spanned<String>, &Spanned<String>)| {
        (axis.get_ref().clone(), label.get_ref().clone())
    };
    let reported = |variant: &Variant| Reported {
        cell: entry.cell.iter().map(text).collect(),
        variant: *variant,
        goodput: entry.goodput,
        gain: entry.gain,
        note: entry.note.clone(),
    };
    entry.variants.iter().map(reported).collect()
}

fn check_variants(source: Source<'_>, variants: &Spanned<Vec<Variant>>) -> Result<(), Error> {
    let list = variants.get_ref();
    if list.is_empty() {
        let what = "there is no variant to run; name some of `none`, `midspan`, `haproxy`";
        return Err(source.error(&variants.span(), what));
    }
    if (1..list.len()).any(|index| list[..index].contains(&list[index])) {
        return Err(source.error(&variants.span(), "a variant is named twice; once is enough"));
    }
    Ok(())
}

fn check_reported(source: Source<'_>, entry: &Spanned<ReportedEntry>) -> Result<(), Error> {
    let ReportedEntry { variants, goodput, gain, note, .. } = entry.get_ref();
    let what = if variants.is_empty() {
        "reported of no variant; name one, such as `variants = [\"none\"]`"
    } else if goodput.is_none() && gain.is_none() && note.is_none() {
        "nothing is reported here; give a `goodput`, a `gain` or a `note`"
    } else if gain.is_some() && variants.contains(&Variant::None) {
        "a gain is over variant `none`; that one has none itself"
    } else if gain.is_some_and(|gain| !gain.is_finite() || gain <= 0.0) {
        "a gain is a factor above 0, such as 17.4; 0.663 for a loss of 33.7 %"
    } else {
        return Ok(());
    };
    Err(source.error(&entry.span(), what))
}

fn every_variant() -> Vec<Variant> {
    vec![Variant::None, Variant::Midspan, Variant::Haproxy]
}

fn one_seed() -> u64 {
    1
}

fn one_repetition() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}
