//! Controls in the running kernel, over real connections in namespaces of their own. These take root in the
//! initial user namespace; without it they say that they were skipped.
//!
//! A control's name holds for the whole machine, so every test registers its own under a prefix that no
//! other process has.

mod controls;
mod marks;
mod pacing;
mod path;
mod unanswered;
mod world;
