use std::io;

use crate::WORKERS;

/// Why connections cannot be steered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel did not take the program.
    #[error(
        "the steering program cannot be loaded: {0} (it takes Linux 6.1 with BTF, CAP_BPF and CAP_NET_ADMIN)"
    )]
    Load(#[source] io::Error),
    /// Nobody can set initial windows.
    #[error(
        "initial windows cannot be set: {0} (it takes a control group of version 2, CAP_BPF and CAP_NET_ADMIN)"
    )]
    FirstWindow(#[source] io::Error),
    /// A link refused the program.
    #[error("the steering program cannot be attached to {interface}: {error}")]
    Attach {
        /// The link's name.
        interface: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// A map refused an entry.
    #[error("the steering program's map `{map}` cannot be written: {error}")]
    Map {
        /// Its name.
        map: &'static str,
        /// What the kernel says.
        error: io::Error,
    },
    /// What is to outlive the process cannot be put into the BPF file system.
    #[error("{path}: {error} (`pin = false` goes without)")]
    Pin {
        /// Where.
        path: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// More workers than there are places for.
    #[error("{0} workers are more than the {WORKERS} that can be steered to")]
    TooManyWorkers(usize),
}

/// The kernel's error, with the library's words around it.
pub(crate) fn io_error(error: &libbpf_rs::Error) -> io::Error {
    io::Error::new(error.kind().into_io(), format!("{error:#}"))
}

/// What a wait came to; one that was interrupted, as by a signal that stops the process, to nothing.
pub(crate) fn unless_interrupted(waited: libbpf_rs::Result<()>) -> io::Result<()> {
    match waited {
        Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => Ok(()),
        waited => waited.map_err(|error| io_error(&error)),
    }
}

/// The kinds are the same, by another name.
trait IntoIo {
    fn into_io(self) -> io::ErrorKind;
}

impl IntoIo for libbpf_rs::ErrorKind {
    fn into_io(self) -> io::ErrorKind {
        match self {
            libbpf_rs::ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound,
            libbpf_rs::ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::Other,
        }
    }
}
