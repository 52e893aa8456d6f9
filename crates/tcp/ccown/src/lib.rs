//! Congestion controls of a user's own: written as one header, as those of the crate `cc` are, and used by name from
//! then on, by the kernel and by the simulator.
//!
//! [`template`] is what one begins with, [`build()`] makes a BPF program and a shared object of a header and leaves them
//! in a [`Folder`], and [`open_named`] makes the shared objects known to `midspan_cc`, so that a simulation has them
//! by name. Loading the programs is the crate `ccload`'s. Building takes clang, which finds all headers but the
//! kernel's own in this program.

mod build;
mod clang;
mod crash;
mod error;
mod folder;
mod headers;
mod interface;
mod name;
mod object;
pub mod template;
mod unit_test;

pub use build::{Made, build};
pub use error::Error;
pub use folder::{Built, FOLDER_VARIABLE, Folder};
pub use headers::Headers;
pub use name::Name;
pub use object::open_named;
pub use unit_test::unit_test;
