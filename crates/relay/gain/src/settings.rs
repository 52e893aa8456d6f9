use serde::{Deserialize, Serialize};

/// What an [`Estimator`](crate::Estimator) is to hold to. Gains are differences of natural logarithms of completion
/// times: 0.1 is about 10 % faster if split, -0.03 about 3 % slower.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How often, above 0 and below 1/2, the bounds of one unit may ever be wrong at any time, and which share of
    /// the units found harmed may not be.
    pub error: f64,
    /// How much slower splitting may be for all that is known, where it is taken for fine; above 0, at most 1.
    pub margin: f64,
    /// The share of transfers that are not split where splitting is fine, so that harm is noticed; 0.001 to 1/4.
    pub holdout: f64,
    /// The share of transfers that are split where splitting harms, so that its end is noticed; 0.001 to 1/4.
    pub explore: f64,
    /// The share that are not split where that it is fine is only known of what is around; at least `holdout`, at most
    /// 1/4. Becomes `holdout` as more is known.
    pub learning: f64,
    /// The gain that is expected before anything is seen; -2.5 to 2.5, a twelfth to twelve times as fast.
    pub prior_gain: f64,
    /// How many transfers, half of them split, that expectation is worth; at least 1.
    pub prior_weight: f64,
    /// How many transfers, half of them split, what is around a unit tells about it; at least 1. The scatter of one
    /// transfer by the root of this is by how much units are thought to differ: 200 stands for gains 0.17 apart.
    pub pool_weight: f64,
    /// Most units about which anything is remembered. Transfers of more count for what is around them.
    pub max_units: usize,
    /// Most subscribers and places at one time in slots that are open. Transfers of more are not counted.
    pub max_clusters: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            error: 0.05,
            margin: 0.03,
            holdout: 0.05,
            explore: 0.05,
            learning: 0.15,
            prior_gain: 0.0,
            prior_weight: 100.0,
            pool_weight: 200.0,
            max_units: 10_000,
            max_clusters: 100_000,
        }
    }
}

/// A setting outside its range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("`{name}` is {value}: must be {range}")]
pub struct SettingsError {
    /// Which.
    pub name: &'static str,
    /// What it was set to.
    pub value: f64,
    /// What would be right.
    pub range: &'static str,
}

impl Settings {
    /// # Errors
    /// For the first one that is outside its range.
    pub fn check(&self) -> Result<(), SettingsError> {
        let is_share = |share: f64| (0.001..=0.25).contains(&share);
        let all = [
            ("error", self.error, 0.0 < self.error && self.error < 0.5, "above 0 and below 0.5"),
            ("margin", self.margin, 0.0 < self.margin && self.margin <= 1.0, "above 0, at most 1"),
            ("holdout", self.holdout, is_share(self.holdout), "0.001 to 0.25"),
            ("explore", self.explore, is_share(self.explore), "0.001 to 0.25"),
            (
                "learning",
                self.learning,
                self.holdout <= self.learning && self.learning <= 0.25,
                "at least `holdout`, at most 0.25",
            ),
            ("prior_gain", self.prior_gain, self.prior_gain.abs() <= 2.5, "-2.5 to 2.5"),
            ("prior_weight", self.prior_weight, is_weight(self.prior_weight), "1 to a million"),
            ("pool_weight", self.pool_weight, is_weight(self.pool_weight), "1 to a million"),
            ("max_units", self.max_units as f64, self.max_units > 0, "at least 1"),
            ("max_clusters", self.max_clusters as f64, self.max_clusters > 0, "at least 1"),
        ];
        let wrong = all.into_iter().find(|(_, _, is_fine, _)| !is_fine);
        wrong.map_or(Ok(()), |(name, value, _, range)| Err(SettingsError { name, value, range }))
    }
}

fn is_weight(weight: f64) -> bool {
    (1.0..=1e6).contains(&weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        assert_eq!(Settings::default().check(), Ok(()));
        let wrong = Settings { explore: f64::NAN, ..Settings::default() };
        assert_eq!(wrong.check().unwrap_err().name, "explore");
        let wrong = Settings { learning: 0.01, ..Settings::default() };
        assert!(
            wrong
                .check()
                .unwrap_err()
                .to_string()
                .starts_with("`learning` is 0.01: must be at least")
        );
    }
}
