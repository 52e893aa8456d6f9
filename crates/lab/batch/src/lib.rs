//! Many runs of a scenario, without any network: what both the lab and the Python package stand on.
//!
//! [`sweep`] is the order of the runs, [`simulation`] makes them in virtual time on all cores, [`results`] is the folder
//! that they leave, [`machine`] what is written there of the machine, [`capture`] what is kept of packets,
//! [`qlog`] what is kept of simulated senders' events, and [`read_traces`] reads what paths name. Nothing here needs BPF, privileges or a particular kernel.

pub mod capture;
pub mod machine;
pub mod qlog;
pub mod results;
mod run_folder;
pub mod simulation;
pub mod sweep;
mod traces;

pub use traces::{made_traces, read_traces, recorded_traces};
