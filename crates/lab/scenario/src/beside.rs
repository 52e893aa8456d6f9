//! One scenario's results from two backends, or two days, cell by cell.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Stats;
use crate::metric::{GOODPUT, Metric, RECEIVED};
use crate::record::Variant;
use crate::summary::{CellSummary, Measurability, Summary, VariantSummary};

/// Results held against others of the same scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Beside {
    /// Cells and variants that were measured in both, in the sweep's order.
    pub pairs: Vec<Twin>,
    /// Gains of proxies where both have one.
    pub gains: Vec<TwinGain>,
}

/// One cell and variant in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Twin {
    /// Axis -> label.
    pub labels: BTreeMap<String, String>,
    /// What stood in the middle.
    pub variant: Variant,
    /// What is compared: goodput, or the time to the last byte received where that is what is measured.
    pub of: &'static Metric,
    /// Of the results.
    pub ours: Stats,
    /// Of those that they are held against.
    pub theirs: Stats,
}

/// A proxy's gain in one cell in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TwinGain {
    /// Axis -> label.
    pub labels: BTreeMap<String, String>,
    /// The proxy.
    pub variant: Variant,
    /// Of the results.
    pub ours: f64,
    /// Of those that they are held against.
    pub theirs: f64,
}

/// How far results are from others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Errors {
    /// Cells and variants that were compared; at least 1.
    pub n: usize,
    /// Of these, those within 10 %.
    pub within_10: usize,
    /// Those within 25 %.
    pub within_25: usize,
    /// Those within a factor of 2.
    pub within_twice: usize,
    /// Of the errors' sizes.
    pub median: f64,
    /// Their 90th percentile.
    pub p90: f64,
    /// The greatest.
    pub worst: f64,
}

/// A difference up to this factor decides nothing.
const DRAW: f64 = 1.1;

impl Beside {
    /// Holds `ours` against `theirs`, two summaries of one scenario.
    pub fn of(ours: &Summary, theirs: &Summary) -> Beside {
        let mut beside = Beside { pairs: Vec::new(), gains: Vec::new() };
        let measurable = |cell: &&CellSummary| cell.measurability == Measurability::Measurable;
        for cell in ours.cells.iter().filter(measurable) {
            let other = theirs.cells.iter().filter(measurable);
            let Some(other) = other.into_iter().find(|other| other.labels == cell.labels) else {
                continue;
            };
            for variant in &cell.variants {
                let Some(twin) = other.variant(variant.variant) else { continue };
                let both = measured(variant).zip(measured(twin));
                beside.pairs.extend(both.map(|((of, ours), (_, theirs))| Twin {
                    labels: cell.labels.clone(),
                    variant: variant.variant,
                    of,
                    ours,
                    theirs,
                }));
                beside.gains.extend(variant.gain.zip(twin.gain).map(|(ours, theirs)| TwinGain {
                    labels: cell.labels.clone(),
                    variant: variant.variant,
                    ours: ours.mean,
                    theirs: theirs.mean,
                }));
            }
        }
        beside
    }

    /// How far all cells and variants are from each other; none if there is none in both.
    pub fn errors(&self) -> Option<Errors> {
        let mut errors: Vec<f64> = self.pairs.iter().map(Twin::error).collect();
        errors.sort_by(f64::total_cmp);
        let stats = Stats::of(&errors)?;
        let within = |most: f64| errors.iter().filter(|error| **error <= most).count();
        Some(Errors {
            n: errors.len(),
            within_10: within(0.1),
            within_25: within(0.25),
            within_twice: self
                .pairs
                .iter()
                .filter(|twin| (0.5..=2.0).contains(&twin.ratio()))
                .count(),
            median: stats.median,
            p90: errors[(errors.len() * 9).div_ceil(10) - 1],
            worst: stats.max,
        })
    }
}

impl Twin {
    /// Ours over theirs.
    pub fn ratio(&self) -> f64 {
        self.ours.mean / self.theirs.mean
    }

    /// By how much of theirs ours is off.
    pub fn error(&self) -> f64 {
        (self.ratio() - 1.0).abs()
    }
}

impl TwinGain {
    /// Whether the same side wins in both, a tenth or less being a draw.
    pub fn same_winner(&self) -> bool {
        let winner = |gain: f64| i8::from(gain > DRAW) - i8::from(gain < 1.0 / DRAW);
        winner(self.ours) == winner(self.theirs)
            || (1.0 / DRAW..=DRAW).contains(&(self.ours / self.theirs))
    }
}

fn measured(variant: &VariantSummary) -> Option<(&'static Metric, Stats)> {
    let of = |metric| Some((metric, variant.stats(metric)?));
    of(&RECEIVED).or_else(|| of(&GOODPUT)).filter(|(_, stats)| stats.mean > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twin(ours: f64, theirs: f64) -> Twin {
        let stats = |value: f64| Stats::of(&[value]).unwrap();
        Twin {
            labels: BTreeMap::new(),
            variant: Variant::None,
            of: &GOODPUT,
            ours: stats(ours),
            theirs: stats(theirs),
        }
    }

    #[test]
    fn errors_are_told_by_their_distribution() {
        let ours = [100.0, 109.0, 80.0, 130.0, 40.0, 100.0, 100.0, 100.0, 100.0, 100.0];
        let pairs = ours.map(|ours| twin(ours, 100.0)).to_vec();
        let errors = Beside { pairs, gains: Vec::new() }.errors().unwrap();
        assert_eq!(
            (errors.n, errors.within_10, errors.within_25, errors.within_twice),
            (10, 7, 8, 9)
        );
        assert!(errors.median < 1e-9 && (errors.p90 - 0.3).abs() < 1e-9);
        assert!((errors.worst - 0.6).abs() < 1e-9);
        assert_eq!(Beside { pairs: Vec::new(), gains: Vec::new() }.errors(), None);
    }

    #[test]
    fn who_wins_is_the_same_unless_one_is_off_by_more_than_a_draw() {
        let gain = |ours, theirs| TwinGain {
            labels: BTreeMap::new(),
            variant: Variant::Midspan,
            ours,
            theirs,
        };
        assert!(gain(40.0, 2.0).same_winner());
        assert!(gain(1.05, 0.95).same_winner());
        assert!(gain(1.12, 1.08).same_winner());
        assert!(!gain(1.5, 1.0).same_winner());
        assert!(!gain(1.2, 0.8).same_winner());
    }
}
