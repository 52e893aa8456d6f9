//! A count.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that one thread raises and others may read.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// None so far.
    pub const fn new() -> Count {
        Count(AtomicU64::new(0))
    }

    /// Counts so many more.
    pub fn add(&self, more: u64) {
        // One thread alone raises it, so a plain load and store lose nothing.
        self.set(self.get() + more);
    }

    /// Makes it so many.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// How many it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
