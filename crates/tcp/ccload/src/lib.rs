//! Midspan's congestion controls in the running kernel.
//!
//! Each algorithm of the crate `cc` is here a BPF program of type struct_ops: its header, and glue that
//! fills it from kernel sockets (`bpf/`); those of a user's own are programs that the crate `ccown` has built with the
//! same [`glue`]. [`Controls`] registers them under names of ours (`ms_cubic`),
//! either for as long as a process [holds](Controls::hold) them, or until they are
//! [unloaded](Controls::unload) again, replaceable while connections use them. A name holds for every
//! network namespace of the machine, and so does what a control has at its sockets' ingress. What this kernel can do, and lacks, [`Kernel`] says.

mod controls;
mod error;
mod feedback;
mod ingress;
mod intf;
mod kernel;
mod object;
mod refusal;
mod registration;
mod sharing;

pub use controls::{Change, Controls, Options, PREFIX, RegisteredControl, Removal, Status};
pub use error::Error;
pub use feedback::{feedback_in, goes_by_feedback, is_feedback};
pub use kernel::Kernel;
pub use object::{Algorithm, algorithms, own_algorithms};

/// The headers that make a program for the kernel of a control's own header, as paths and texts: the glue, and libbpf's.
pub fn glue() -> impl Iterator<Item = (String, &'static str)> {
    const GLUE: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/glue.rs"));
    let of_libbpf = libbpf_rs::libbpf_sys::API_HEADERS;
    let of_libbpf = of_libbpf.into_iter().map(|(name, text)| (format!("bpf/{name}"), text));
    GLUE.iter().map(|&(name, text)| (name.to_owned(), text)).chain(of_libbpf)
}
