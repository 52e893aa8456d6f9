//! What whoever started the relay does for it.

use std::fmt;
use std::sync::OnceLock;

/// Something to be done for the relay, once somebody has said how.
pub(crate) struct Hook<F: ?Sized>(OnceLock<Box<F>>);

impl<F: ?Sized> Hook<F> {
    /// Says how it is done. Nothing follows from a second time.
    pub(crate) fn set(&self, how: Box<F>) {
        let _ = self.0.set(how);
    }

    /// How it is done, if that was said.
    pub(crate) fn get(&self) -> Option<&F> {
        self.0.get().map(Box::as_ref)
    }
}

impl<F: ?Sized> Default for Hook<F> {
    fn default() -> Self {
        Hook(OnceLock::new())
    }
}

impl<F: ?Sized> fmt::Debug for Hook<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
