use std::fmt;

/// Which stretch of time a measurement is about. Two implementations, [`Causal`] and [`Oracle`]; a
/// reading, an estimator and a registry are of one of them, so that the two never mix.
pub trait Basis: fmt::Debug + Clone + Copy + Default + PartialEq + Eq + Send + 'static {
    /// The same as a value, for the wire and for people.
    const KIND: BasisKind;
}

/// Measured over the window that has passed: all that a network can know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Causal;

/// Taken from a recording over the window that is to come, as the `natcp` paper's authors did. It
/// bounds what better estimation could bring; no network has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Oracle;

impl Basis for Causal {
    const KIND: BasisKind = BasisKind::Causal;
}

impl Basis for Oracle {
    const KIND: BasisKind = BasisKind::Oracle;
}

/// [`Causal`] or [`Oracle`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BasisKind {
    /// See [`Causal`].
    #[default]
    Causal,
    /// See [`Oracle`].
    Oracle,
}

impl fmt::Display for BasisKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BasisKind::Causal => "causal",
            BasisKind::Oracle => "oracle",
        })
    }
}
