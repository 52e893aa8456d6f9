//! The scenario file and the result record: what every backend reads and writes.
//!
//! - [`Scenario`] is one experiment: [`Scenario::parse`] reads its TOML, refuses what is impossible
//!   with file and line, and spreads the sweep into typed [`Cell`]s.
//! - [`record`] is one run's result, one JSON object a line.
//! - [`metric`] says what runs measure; a metric is a row of its table.
//! - [`summary`] turns records into statistics, cell by cell.
//! - [`beside`] sets the simulator's beside live ones.
//! - [`reference`](mod@reference) sets them beside curves that a real kernel gave on the same paths.
//!
//! Pure: parsing takes text, not a path, and nothing here reads a clock or a file. Nothing here
//! runs a scenario either: that is a backend's work.

mod assist;
pub mod beside;
mod cells;
mod comparison;
mod digest;
mod error;
mod host;
pub mod metric;
mod parse;
pub mod record;
pub mod reference;
mod relay;
mod scenario;
mod spec;
mod stats;
pub mod summary;

pub use assist::{Assist, CutTimes, Cuts, FeedbackOf, FeedbackRoute, OwnRtt, Radio, Tell};
pub use cells::{Cells, Clients, Others, Split};
pub use comparison::{Compare, Comparison, Factors, ReportedRatio};
pub use digest::of_results as digest_of_results;
pub use error::Error;
pub use host::{Buffers, Host, Hosts, TcpMemory, external_control};
pub use metric::Metric;
pub use midspan_config::{Dscp, LegConfig};
pub use midspan_split::ReadAheadKind;
pub use relay::Relay;
pub use scenario::{Axis, Cell, Reported, Scenario, Skip, VerdictOn};
pub use spec::{
    Bulk, CellSpec, Cross, Direction, Objects, Page, PathSpec, Service, ServiceHost, Transfer,
    Video, Workload,
};
pub use stats::Stats;
