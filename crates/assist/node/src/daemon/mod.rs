//! The NetAssist daemon: measurements in, authenticated feedback out.

mod core;
mod probe;
mod session;
mod sources;
mod status;

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc as std_mpsc;
use std::thread::{self, JoinHandle};

use midspan_assist_proto::{Basis, BasisKind, Causal, Oracle, SessionId, SourceId, ToDaemon};
use midspan_units::Span;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

pub use status::{DaemonStatus, SessionStatus, SourceCounts, SourceStatus};

use crate::config::{ConfigError, DaemonConfig};
use crate::control::{Answer, Question, Request};
use crate::source::{Embedded, SourceKind, Sourced};
use crate::tls::IdentityError;
use session::{Failed, Opened};

/// Why a daemon, or an agent, cannot run.
#[derive(Debug, Error)]
pub enum Error {
    /// A setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A certificate.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A source's settings.
    #[error("source `{name}`: {said}")]
    Source {
        /// Which.
        name: String,
        /// What is wrong, and what would be right.
        said: String,
    },
    /// The system.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
}

impl Error {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |error| Error::System { what, error }
    }

    /// Whether the user can mend it in a file.
    pub fn is_input(&self) -> bool {
        !matches!(self, Error::System { .. })
    }
}

/// What happens to the daemon's connections.
#[derive(Debug)]
enum Event {
    Opened(SessionId, Box<Opened>),
    Message(SessionId, ToDaemon),
    Closed(SessionId, Close),
    Failed(Failed),
    Network(Option<Span>),
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Close {
    /// The other end went, or was lost.
    Left,
    /// This daemon stops.
    Stopped,
    /// It said what is no message.
    Violation,
    /// Its certificate is no longer good.
    Revoked,
    /// It did not read its answers.
    Deaf,
    /// Its certificate has as many sessions as may be.
    TooMany,
}

/// Runs a daemon until a signal ends it.
///
/// # Errors
/// When it cannot begin.
pub fn run(config: DaemonConfig) -> Result<(), Error> {
    match config.basis {
        BasisKind::Causal => run_basis::<Causal>(config),
        BasisKind::Oracle => run_basis::<Oracle>(config),
    }
}

fn run_basis<B: Sourced>(config: DaemonConfig) -> Result<(), Error> {
    runtime()?.block_on(async {
        let prepared = core::Core::<B>::prepare(config)?;
        let stop = crate::signals::stop()?;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        prepared.run(stop).await;
        Ok(())
    })
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::system("starting the runtime"))
}

/// A daemon in a thread of this process. Ends when dropped.
#[derive(Debug)]
pub struct Daemon<B: Basis> {
    address: SocketAddr,
    embedded: Vec<(String, Embedded<B>)>,
    questions: mpsc::Sender<Question>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl<B: Sourced> Daemon<B> {
    /// Starts one; the basis in the settings must be `B`'s.
    ///
    /// # Errors
    /// When it cannot begin.
    pub fn start(config: DaemonConfig) -> Result<Self, Error> {
        debug_assert_eq!(config.basis, B::KIND);
        let (ready, readied) = std_mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let work = move || {
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            runtime.block_on(async {
                let names: Vec<(u32, String)> = (0..)
                    .zip(&config.sources)
                    .filter(|(_, source)| source.kind == SourceKind::Embedded)
                    .map(|(index, source)| (index, source.name.clone()))
                    .collect();
                match core::Core::<B>::prepare(config) {
                    Ok(core) => {
                        let embedded = names
                            .into_iter()
                            .map(|(id, name)| {
                                (name, Embedded::new(SourceId(id), core.source_events()))
                            })
                            .collect();
                        let _ = ready.send(Ok((core.address(), embedded, core.questions())));
                        core.run(async { drop(stopped.await) }).await;
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            });
        };
        let thread = thread::Builder::new()
            .name("assist".into())
            .spawn(work)
            .map_err(Error::system("starting a thread"))?;
        let ended =
            || Error::System { what: "the daemon".into(), error: io::Error::other("ended") };
        let (address, embedded, questions) = readied.recv().map_err(|_| ended())??;
        Ok(Daemon { address, embedded, questions, stop: Some(stop), thread: Some(thread) })
    }
}

impl<B: Basis> Daemon<B> {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The way in for the embedded source of this name.
    pub fn embedded(&self, name: &str) -> Option<Embedded<B>> {
        self.embedded.iter().find(|(known, _)| known == name).map(|(_, source)| source.clone())
    }

    /// What `midspan assist top` would be told; none if the daemon has ended.
    pub fn status(&self) -> Option<DaemonStatus> {
        match self.ask(Request::State)? {
            Answer::Daemon(status) => Some(*status),
            Answer::Agent(_) | Answer::Done { .. } | Answer::Refused { .. } => None,
        }
    }

    /// Asks what may be asked over its socket; none if the daemon has ended.
    pub fn ask(&self, request: Request) -> Option<Answer> {
        let (to, answer) = oneshot::channel();
        self.questions.blocking_send((request, to)).ok()?;
        answer.blocking_recv().ok()
    }
}

impl<B: Basis> Drop for Daemon<B> {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
