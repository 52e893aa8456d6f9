//! The lab: runs scenarios live, with real kernel TCP over emulated links, or simulated.
//!
//! [`experiment`] is the whole way from a scenario to a results folder, [`sweep`] the order of its
//! runs, [`simulation`] all of them in virtual time, [`run`] one run live: a [`topology`] of network namespaces and emulated links, perhaps a
//! [`proxy`] on the MEC, [`traffic`] across it; [`trial`] asks whether the machine can. [`shell`] puts that network around programs of the user's. [`recorded`] is the form in which results are kept. [`doctor`] says what this machine can do.

pub mod assist;
mod capture;
mod controls;
pub mod doctor;
pub mod experiment;
pub mod export;
mod host;
mod legs;
mod links;
mod mobile;
mod pages;
pub mod proxy;
pub mod recorded;
pub mod run;
pub mod shell;
pub mod topology;
pub mod traffic;
pub mod trial;

pub use midspan_batch::{machine, results, simulation, sweep};
