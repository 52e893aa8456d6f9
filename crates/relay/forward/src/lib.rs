//! Where connections come in, and whom they are for: the server that the client wanted, or in explicit mode one of those that
//! a listener passes on to, whose names are resolved, for a client that a PROXY protocol header may have told.

mod forward;
mod frontend;
mod proxy_header;
mod servers;

pub use forward::{Forward, check_here, follow_names, resolve};
pub use frontend::{Accepted, Frontend};
pub use proxy_header::{HeaderOutcome, ProxyHeaderWait};
pub use servers::Servers;
