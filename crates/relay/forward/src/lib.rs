//! Explicit mode while it runs: whom connections are passed on to, names resolved.

mod forward;
mod servers;

pub use forward::{Forward, check_here, follow_names, resolve};
pub use servers::Servers;
