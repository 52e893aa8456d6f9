//! The hosts, in a row.

use midspan_scenario::record::Variant;

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

/// Its name in records.
pub(crate) fn name(host: Host) -> &'static str {
    ["ue", "enb", "mec", "server"][host]
}

/// The name, in records, of the leg that leads from `host` to `peer`.
pub(crate) fn leg(variant: Variant, host: Host, peer: Host) -> &'static str {
    match (variant, host, peer) {
        (Variant::None, ..) => "end-to-end",
        (_, UE, _) | (_, MEC, UE) => "client",
        _ => "server",
    }
}
