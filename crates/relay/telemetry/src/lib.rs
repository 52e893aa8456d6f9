//! What is told of the relay to who looks at it from outside: metrics, the flow log, the admin socket.
//!
//! Workers count, and hand over what they know of a flow when it ends ([`Observer`]). All else is read from a [`Source`]
//! by threads of this crate's own, which workers never wait for.

mod admin;
mod error;
mod flow_listing;
mod flow_log;
mod http;
mod listeners;
mod measures;
mod metrics;
mod naming;
mod observer;
mod source;
mod text_format;
mod treatment;

pub use error::ObserveError;
pub use flow_log::FlowLog;
pub use listeners::{Listeners, Served};
pub use observer::{EndedFlow, Observer};
pub use source::{Answer, Brief, Counter, Gone, LegStatistics, Reload, Source};
pub use treatment::{Treatment, TreatmentSnapshot};
