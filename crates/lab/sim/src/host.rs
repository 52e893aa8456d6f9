//! The hosts, in a row.

/// A host, counted from the UE.
pub(crate) type Host = usize;

/// The hosts of a scenario, from the UE on.
pub(crate) const UE: Host = 0;
/// A base station, where there are cells.
pub(crate) const ENB: Host = 1;
/// See [`UE`]; where there are cells, the gateway.
pub(crate) const MEC: Host = 2;
/// See [`UE`].
pub(crate) const SERVER: Host = 3;
