use midspan_path::SpecError;
use midspan_scenario::record::Variant;

/// Why a cell cannot be simulated, or did not run to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A congestion control that there is none of.
    #[error(transparent)]
    Control(#[from] midspan_cc::Unknown),
    /// A congestion control of the caller's that the caller has not brought.
    #[error("nobody gave a congestion control `{name}`")]
    NoExternal {
        /// The caller's name of it.
        name: String,
    },
    /// An element of the path that cannot be.
    #[error(transparent)]
    Path(#[from] SpecError),
    /// A variant of which there is no model.
    #[error("{0} is not simulated; run it live")]
    Variant(Variant),
    /// What a leg of the relay is set to have, of which there is no model.
    #[error("`{0}` of a relay's leg is not simulated; run it live")]
    Leg(&'static str),
    /// NetAssist whose feedback goes with the data.
    #[error("feedback in band is not simulated; run it live")]
    InBand,
    /// NetAssist without a radio link to tell of.
    #[error("feedback needs a trace on the access link, which is not there")]
    NoRadio,
    /// Users of cells who make transfers; scenario files cannot ask for it.
    #[error("users of cells make no transfers; make them load pages")]
    TransferInCells,
    /// A connection did not open, or broke.
    #[error("{what} {number}: {why}")]
    Connection {
        /// `flow` or `transfer`.
        what: &'static str,
        /// Which, counted from 0.
        number: usize,
        /// In one line.
        why: &'static str,
    },
}
