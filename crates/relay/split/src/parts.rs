use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many that workers seldom meet in one.
pub(crate) const PARTS: usize = 64;

/// A table that all workers look into, in parts that are locked one at a time, for that look.
#[derive(Debug)]
pub(crate) struct Parts<K, V> {
    hasher: RandomState,
    parts: [Mutex<HashMap<K, V>>; PARTS],
}

impl<K: Eq + Hash, V> Parts<K, V> {
    /// With memory for so many entries, taken at the start.
    pub(crate) fn with_capacity(entries: usize) -> Self {
        let room = entries.div_ceil(PARTS);
        Parts {
            hasher: RandomState::new(),
            parts: std::array::from_fn(|_| Mutex::new(HashMap::with_capacity(room))),
        }
    }

    /// That part to which this one belongs.
    pub(crate) fn of(&self, key: &K) -> MutexGuard<'_, HashMap<K, V>> {
        lock(&self.parts[self.hasher.hash_one(key) as usize % PARTS])
    }

    /// Each part, as it is when its turn comes.
    pub(crate) fn all(&self) -> impl Iterator<Item = MutexGuard<'_, HashMap<K, V>>> {
        self.parts.iter().map(lock)
    }
}

fn lock<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}
