use std::io;
use std::path::PathBuf;

/// Why nothing can be told as configured.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The key of the pseudonyms cannot be had.
    #[error("the key of the pseudonyms, {path}: {said}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        said: String,
    },
    /// Metrics cannot be served where they should be.
    #[error("cannot serve metrics at {at}: {error}")]
    Metrics {
        /// Where.
        at: std::net::SocketAddr,
        /// What the kernel says.
        error: io::Error,
    },
    /// The flow log cannot be opened.
    #[error("cannot open the flow log {path}: {error}")]
    FlowLog {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// The admin socket cannot be made.
    #[error("cannot take the admin socket {path}: {error}")]
    Admin {
        /// Its name.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// The system refused something else.
    #[error("{0}")]
    System(#[from] io::Error),
}
