//! The result in a sentence or two, computed.

use midspan_scenario::record::Variant;
use midspan_scenario::summary::{CellSummary, Gain, Measurability, Summary};
use midspan_scenario::{Direction, Scenario};

use crate::view::{self, cell_name, common_direction, variant_name};
use midspan_units::number::{factor, percent};

/// Gains this close to 1 are no difference worth a word.
pub(crate) const SAME: f64 = 0.03;

/// What came out, in sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conclusion {
    /// One sentence each, the one about Midspan first.
    pub sentences: Vec<String>,
    /// What came out for Midspan.
    pub outcome: Outcome,
}

/// What came out for Midspan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It helped, or at least did no harm, in every cell.
    Good,
    /// It is slower than no proxy in some cell.
    Slower,
    /// There is nothing to say: no number, or nothing to compare with.
    Unknown,
}

/// One variant's gain in one cell.
struct Finding {
    cell: String,
    gain: Gain,
}

impl Conclusion {
    /// What `summary` of `scenario` comes to.
    pub(crate) fn of(scenario: &Scenario, summary: &Summary) -> Conclusion {
        if summary.measurability == Measurability::NotMeasurable {
            let variants = summary.cells.iter().flat_map(|cell| &cell.variants);
            let reasons = variants.flat_map(|variant| &variant.untrusted_reasons);
            let text = view::not_measurable(summary.counts, reasons);
            return Conclusion::unknown(capitalised(&text) + ".");
        }
        let mut proxies: Vec<Variant> = scenario.variants.clone();
        proxies.retain(|variant| *variant != Variant::None);
        proxies.sort();
        let all = proxies.iter().map(|proxy| (*proxy, findings(scenario, summary, *proxy)));
        let all: Vec<(Variant, Vec<Finding>)> = all.filter(|(_, some)| !some.is_empty()).collect();
        if all.is_empty() {
            return Conclusion::unknown(nothing_to_compare(scenario, summary));
        }
        let outcome = match all.iter().find(|(proxy, _)| *proxy == Variant::Midspan) {
            Some((_, found)) if found.iter().any(Finding::is_slower) => Outcome::Slower,
            Some((_, found)) if lost(summary, Variant::Midspan, found) == 0 => Outcome::Good,
            _ => Outcome::Unknown,
        };
        let named = scenario.axes.iter().any(|axis| axis.name == view::DIRECTION);
        let direction = if named { None } else { common_direction(scenario) };
        let mut sentences: Vec<String> =
            all.iter().map(|(proxy, findings)| sentence(*proxy, findings, direction)).collect();
        for proxy in proxies {
            let found = all.iter().find(|(other, _)| *other == proxy);
            let found = found.map(|(_, found)| &found[..]).unwrap_or_default();
            let more = if found.is_empty() { "" } else { " more" };
            let who = variant_name(proxy);
            match lost(summary, proxy, found) {
                0 => {}
                1 => sentences.push(format!("{who} has no number to compare in one{more} cell.")),
                lost => {
                    sentences.push(format!("{who} has no number to compare in {lost}{more} cells."))
                }
            }
        }
        Conclusion { sentences, outcome }
    }

    fn unknown(sentence: String) -> Conclusion {
        Conclusion { sentences: vec![sentence], outcome: Outcome::Unknown }
    }
}

impl Finding {
    fn is_slower(&self) -> bool {
        self.gain.mean < 1.0 - SAME && !is_open(&self.gain)
    }

    fn is_the_same(&self) -> bool {
        (self.gain.mean - 1.0).abs() <= SAME
    }
}

/// The gains of `variant` in the cells that can be measured.
fn findings(scenario: &Scenario, summary: &Summary, variant: Variant) -> Vec<Finding> {
    let cells = summary.cells.iter().filter(|cell| cell.measurability == Measurability::Measurable);
    cells
        .filter_map(|cell| {
            let gain = cell.variant(variant)?.gain?;
            Some(Finding { cell: cell_name(scenario, &cell.labels), gain })
        })
        .collect()
}

/// In how many cells `variant` and no proxy were both run, and no gain came of it.
fn lost(summary: &Summary, variant: Variant, found: &[Finding]) -> usize {
    let ran = |cell: &CellSummary, variant| {
        cell.variant(variant).is_some_and(|summary| summary.counts.total() > 0)
    };
    let both = |cell: &&CellSummary| ran(cell, variant) && ran(cell, Variant::None);
    summary.cells.iter().filter(both).count() - found.len()
}

/// Whether the spread of the runs leaves open which side is faster.
pub(crate) fn is_open(gain: &Gain) -> bool {
    (0.67..1.5).contains(&gain.mean) && gain.ci95.is_some_and(|(low, high)| low < 1.0 && 1.0 < high)
}

/// What `findings`, at least one, say of `variant`.
fn sentence(variant: Variant, findings: &[Finding], direction: Option<Direction>) -> String {
    let who = variant_name(variant);
    let direction = match direction {
        Some(Direction::Upload) => " (upload)",
        Some(Direction::Download) => " (download)",
        None => "",
    };
    let first = |finding: &Finding| {
        format!("{} no proxy{}{direction}", compared(finding.gain), at(&finding.cell))
    };
    let second = |finding: &Finding| {
        let relation = compared(finding.gain);
        let relation = relation.rsplit_once(' ').map_or(relation.as_str(), |(short, _)| short);
        format!("{relation}{}", at(&finding.cell))
    };
    let by_gain = |a: &&Finding, b: &&Finding| a.gain.mean.total_cmp(&b.gain.mean);
    match findings {
        [one] => format!("{who} is {}.", first(one)),
        [one, two] => format!("{who} is {}, and {}.", first(one), second(two)),
        all if all.iter().all(Finding::is_the_same) => {
            format!("{who} is as fast as no proxy in all {} cells compared{direction}.", all.len())
        }
        all => {
            let best = all.iter().max_by(by_gain).map(first).unwrap_or_default();
            let worst = all.iter().min_by(by_gain).map(second).unwrap_or_default();
            let slower = all.iter().filter(|finding| finding.is_slower()).count();
            let count = match slower {
                0 => String::new(),
                slower => format!(" It is slower in {slower} of {} cells compared.", all.len()),
            };
            format!("{who} is at best {best}, and at worst {worst}.{count}")
        }
    }
}

/// `23.4 times faster than`, `as fast as`: the last word leads to what it is compared with.
fn compared(gain: Gain) -> String {
    let mean = gain.mean;
    match mean {
        _ if (mean - 1.0).abs() <= SAME => "as fast as".to_owned(),
        _ if is_open(&gain) => format!("within the runs' spread ({} x) of", factor(mean)),
        _ if mean >= 2.0 => format!("{} times faster than", factor(mean)),
        _ if mean > 1.0 => format!("{} faster than", percent(mean - 1.0)),
        _ if mean > 0.5 => format!("{} slower than", percent(1.0 - mean)),
        _ => format!("{} times slower than", factor(1.0 / mean)),
    }
}

/// ` at 0.5 % loss (upload)`; a cell named by its direction alone needs no preposition.
fn at(cell: &str) -> String {
    match cell {
        "" => String::new(),
        direction if direction.starts_with('(') => format!(" {direction}"),
        place => format!(" at {place}"),
    }
}

fn nothing_to_compare(scenario: &Scenario, summary: &Summary) -> String {
    let proxied = scenario.variants.iter().any(|variant| *variant != Variant::None);
    if summary.counts.total() == 0 {
        "No runs yet.".to_owned()
    } else if summary.counts.measured == 0 {
        "No run succeeded.".to_owned()
    } else if !proxied {
        "No proxy stands in this path; the numbers are those of plain TCP.".to_owned()
    } else {
        "No cell was measured both with a proxy and without, so there is nothing to compare."
            .to_owned()
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gain(mean: f64, ci95: Option<(f64, f64)>) -> Gain {
        Gain { n: 3, mean, ci95, min: mean, max: mean }
    }

    fn said(gains: &[(&str, f64)]) -> String {
        let findings: Vec<Finding> = gains
            .iter()
            .map(|(cell, mean)| Finding { cell: (*cell).to_owned(), gain: gain(*mean, None) })
            .collect();
        sentence(Variant::Midspan, &findings, Some(Direction::Upload))
    }

    #[test]
    fn one_cell_is_said_plainly() {
        let one = |mean| said(&[("0.5 % loss", mean)]);
        let tail = "no proxy at 0.5 % loss (upload).";
        assert_eq!(one(23.43), format!("Midspan is 23.4 times faster than {tail}"));
        assert_eq!(one(1.27), format!("Midspan is 27.0 % faster than {tail}"));
        assert_eq!(one(0.99), format!("Midspan is as fast as {tail}"));
        assert_eq!(one(0.663), format!("Midspan is 33.7 % slower than {tail}"));
        assert_eq!(one(0.1), format!("Midspan is 10.0 times slower than {tail}"));
    }

    #[test]
    fn several_cells_are_their_best_and_their_worst() {
        assert_eq!(
            said(&[("0 % late", 1.0), ("0.5 % late", 0.66), ("1 % late", 0.4)]),
            "Midspan is at best as fast as no proxy at 0 % late (upload), and at worst 2.50 times \
             slower at 1 % late. It is slower in 2 of 3 cells compared."
        );
        assert_eq!(
            said(&[("0 % late", 1.0), ("0.5 % late", 0.98), ("1 % late", 1.02)]),
            "Midspan is as fast as no proxy in all 3 cells compared (upload)."
        );
        assert_eq!(
            sentence(
                Variant::Haproxy,
                &[
                    Finding { cell: "(download)".to_owned(), gain: gain(24.4, None) },
                    Finding { cell: "(upload)".to_owned(), gain: gain(1.0, None) },
                ],
                None
            ),
            "HAProxy is 24.4 times faster than no proxy (download), and as fast (upload)."
        );
    }

    #[test]
    fn a_small_difference_within_the_spread_is_none() {
        let said = compared(gain(1.2, Some((0.8, 1.7))));
        assert_eq!(said, "within the runs' spread (1.20 x) of");
        let said = compared(gain(23.0, Some((0.8, 600.0))));
        assert_eq!(said, "23.0 times faster than");
    }
}
