//! Whether this host's interfaces have changed since BPF was last attached to them.

use std::os::fd::BorrowedFd;

use midspan_sys::changes::Changes;

use crate::error::InterceptionError;

/// What is still to be followed.
#[derive(Debug)]
pub(crate) struct InterfaceChanges {
    /// None if the kernel tells nothing.
    told: Option<Changes>,
    /// Not all interfaces are known to be steered, and that this failed was said.
    is_behind: bool,
    complained: bool,
}

impl InterfaceChanges {
    /// Of the calling thread's network namespace. What came before is still to be followed.
    pub(crate) fn watch() -> InterfaceChanges {
        let told = Changes::of_interfaces()
            .inspect_err(
                |error| tracing::debug!(%error, "changes of interfaces are not seen at once"),
            )
            .ok();
        InterfaceChanges { told, is_behind: true, complained: false }
    }

    /// Readable when interfaces change.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.told.as_ref().map(Changes::fd)
    }

    /// They are to be followed though they have not changed.
    pub(crate) fn expect(&mut self) {
        self.is_behind = true;
    }

    /// Whether they are to be followed.
    pub(crate) fn take(&mut self) -> bool {
        self.told.as_mut().is_none_or(Changes::take) || self.is_behind
    }

    /// What came of it.
    pub(crate) fn followed(&mut self, outcome: Result<(), InterceptionError>) {
        self.is_behind = outcome.is_err();
        self.complained &= self.is_behind;
        if let Err(error) = outcome
            && !std::mem::replace(&mut self.complained, true)
        {
            tracing::warn!(%error, "not all interfaces are steered");
        }
    }
}
