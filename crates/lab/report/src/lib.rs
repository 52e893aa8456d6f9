//! Result records turned into what people read: an aligned table for the terminal, a self-contained
//! HTML page with plots, and the comparison with reference curves in both.
//!
//! Pure: records and text in, text out. Nothing here reads a file or a clock, and the statistics
//! of runs are not computed here: those are [`midspan_scenario::summary`]'s and
//! [`midspan_scenario::reference`](mod@midspan_scenario::reference)'s.

pub mod beside;
pub mod browse;
mod charts;
pub mod compare;
mod conclusion;
mod drawings;
mod factors;
pub mod gain;
mod grid;
mod html;
mod machine;
pub mod papers;
mod plot;
mod report;
mod terminal;
mod timeline;
mod view;

pub use conclusion::{Conclusion, Outcome};
pub use drawings::Drawing;
pub use machine::Machine;
pub use report::Report;
pub use terminal::Terminal;
