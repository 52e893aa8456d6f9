//! What the supervisor is told to do while it supervises.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use midspan_threads::wake::{self, lower, raise};
use tokio::sync::oneshot;

use crate::settings::Settings;

/// Answered in words, once it is done or refused.
pub(crate) type Reply = oneshot::Sender<Result<String, String>>;

/// What may be told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Take no new connections, and end.
    Drain(Reply),
    /// Read the configuration again.
    Reload(Reply),
    /// Have this configuration take effect, or say why there is none.
    Apply(Result<Box<Settings>, String>, Option<Reply>),
}

/// Commands, in order.
#[derive(Debug)]
pub(crate) struct Commands {
    queue: Mutex<Vec<Command>>,
    /// Readable while there are some.
    pub(crate) given: OwnedFd,
}

impl Commands {
    pub(crate) fn new() -> io::Result<Commands> {
        Ok(Commands { queue: Mutex::default(), given: wake::flag()? })
    }

    pub(crate) fn give(&self, command: Command) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        raise(&self.given);
    }

    pub(crate) fn take(&self) -> Vec<Command> {
        lower(&self.given);
        std::mem::take(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
