//! Whether somebody is at work in a folder.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use procfs::{LockKind, LockType};

/// What is locked by `flock` on this machine, to be written to. It is looked up and not tried: a lock taken for a moment
/// could keep a `lab run` from its folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Locks(BTreeSet<u64>);

impl Locks {
    /// As things are; empty where the system does not tell.
    pub(crate) fn now() -> Locks {
        let locks = procfs::locks().unwrap_or_default();
        let written = locks.into_iter().filter(|lock| {
            matches!((&lock.lock_type, &lock.kind), (LockType::FLock, LockKind::Write))
        });
        // Some file systems have another device number there than stat gives.
        Locks(written.map(|lock| lock.inode).collect())
    }

    /// Whether a program has locked the folder `directory`.
    pub(crate) fn hold(&self, directory: &Path) -> bool {
        fs::metadata(directory).is_ok_and(|folder| self.0.contains(&folder.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_batch::results::Results;

    #[test]
    fn a_folder_is_held_as_long_as_somebody_writes_to_it() {
        let base = tempfile::tempdir().unwrap();
        let results = Results::create(base.path(), "", "").unwrap();
        let directory = results.directory().to_owned();
        assert!(Locks::now().hold(&directory));
        assert!(!Locks::now().hold(base.path()));
        drop(results);
        assert!(!Locks::now().hold(&directory));
    }
}
