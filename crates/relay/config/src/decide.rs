//! Whether to split goes by whether it harms.

use std::path::PathBuf;

use ipnet::IpNet;
use midspan_gain::Settings;
use midspan_units::{Factor, Share};
use serde::{Deserialize, Serialize};

/// Splitting only where it does not harm, by what transfers show that were split and that were not. Takes BPF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecideConfig {
    /// Whether what is decided is done.
    #[serde(default)]
    pub mode: DecideMode,
    /// A file that keeps what was learned; made where it is not there. Absent: it is learned anew in each run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// Prefixes of clients for each of which it is decided by itself, such as what is behind one gateway. Empty: those of
    /// `clients`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<IpNet>,
    /// Prefixes of servers whose connections are split whatever is learned. (`policy.pass_servers` has the opposite.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub always_split: Vec<IpNet>,
    /// How many times faster connections are expected to be if they are split, before any has shown it, as
    /// `midspan advise` has it; it is worth as much as a hundred subscribers' slots. Absent: as fast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior: Option<Factor>,
    /// How much slower splitting may be where it is taken for harmless.
    #[serde(default = "default_margin")]
    pub margin: Share,
    /// The share of subscribers that are left alone where splitting is harmless, so that harm is noticed.
    #[serde(default = "default_holdout")]
    pub holdout: Share,
    /// The share of subscribers whose connections are split where that harms, so that its end is noticed.
    #[serde(default = "default_explore")]
    pub explore: Share,
}

/// Whether what is decided is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecideMode {
    /// It is.
    #[default]
    On,
    /// It is only told; `policy.holdout` says how many are left alone.
    DryRun,
}

fn default_margin() -> Share {
    Share::from_fraction(Settings::default().margin)
}

fn default_holdout() -> Share {
    Share::from_fraction(Settings::default().holdout)
}

fn default_explore() -> Share {
    Share::from_fraction(Settings::default().explore)
}

impl DecideConfig {
    pub(crate) fn first_fault(&self) -> Option<(&'static str, &'static str)> {
        let shares = Share::from_fraction(0.001)..=Share::from_fraction(0.25);
        if self.margin == Share::ZERO {
            return Some(("margin", "must be above 0 %"));
        }
        let priors = Factor::new(0.1)..=Factor::new(10.0);
        if self.prior.is_some_and(|prior| !priors.contains(&prior)) {
            return Some(("prior", "must be between 0.1 x and 10 x"));
        }
        if !shares.contains(&self.holdout) {
            return Some(("holdout", "must be between 0.1 % and 25 %"));
        }
        if !shares.contains(&self.explore) {
            return Some(("explore", "must be between 0.1 % and 25 %"));
        }
        (self.groups.len() > MOST_GROUPS).then_some(("groups", "must be at most 1024 prefixes"))
    }

    /// The same, as the estimator takes it.
    pub fn settings(&self) -> Settings {
        let by_default = Settings::default();
        let holdout = self.holdout.as_fraction();
        Settings {
            margin: self.margin.as_fraction(),
            holdout,
            explore: self.explore.as_fraction(),
            prior_gain: self.prior.map_or(0.0, |prior| prior.as_f64().ln()),
            learning: by_default.learning.max(holdout),
            ..by_default
        }
    }
}

/// As many as the steering program tells apart.
const MOST_GROUPS: usize = 1024;
