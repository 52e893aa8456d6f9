//! Unix sockets: their names in the file system, and whom they are for.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// A socket's name in the file system. Dropping this removes it, unless it is another's by now.
#[derive(Debug)]
pub struct Name {
    path: PathBuf,
    inode: (u64, u64),
}

impl Name {
    /// That of the socket that is there.
    ///
    /// # Errors
    /// When there is none, or it may not be looked at.
    pub fn of(path: &Path) -> io::Result<Name> {
        Ok(Name { inode: inode(path)?, path: path.to_owned() })
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Whether this user may tell this process what to do: root, and the process's own.
pub fn is_trusted(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}
