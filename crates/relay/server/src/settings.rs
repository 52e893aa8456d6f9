//! What may change while the relay runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use midspan_config::Config;
use midspan_forward::Forward;

/// All of it, as a whole.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// Where connections are made to the relay itself, and whom they are passed on to.
    pub(crate) forwards: Vec<Arc<Forward>>,
}

/// Settings that one thread changes and others look at.
#[derive(Debug)]
pub(crate) struct WatchedSettings {
    current: Mutex<Arc<Settings>>,
    /// How often they were changed.
    version: AtomicU64,
}

impl WatchedSettings {
    pub(crate) fn new(settings: Settings) -> WatchedSettings {
        WatchedSettings { current: Mutex::new(Arc::new(settings)), version: AtomicU64::new(0) }
    }

    /// As they are now.
    pub(crate) fn get(&self) -> Arc<Settings> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often they were changed.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Changes them. Who is to go by them at once must be told.
    pub(crate) fn set(&self, settings: Settings) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        self.version.fetch_add(1, Ordering::Release);
    }
}
