//! Steering connections to the relay, by BPF or by nftables, and back to where they would go
//! without it.
//!
//! Neither outlives the relay, however it ends.

mod accounts;
mod beside;
mod bpf;
mod error;
mod held;
mod interface_changes;
mod local_delivery;
mod nftables;
mod policy;
mod proof;
mod reinjector;

pub use accounts::take_accounts;
pub use bpf::Steered;
pub use error::InterceptionError;
pub use held::take_held;
pub use nftables::Interception;
pub use policy::steering_policy;
pub use proof::{Probes, clients as probe_clients, is_probe};
pub use reinjector::Reinjector;
