use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::Error;

/// Those that say how a shared object and this program understand each other.
const INTERFACE: [&str; 5] = ["cc.h", "feedback.h", "fixed.h", "host.h", "table.h"];

/// Written out to a folder of its own for as long as this lives: the headers that a control includes, and those that
/// make a BPF program of it.
#[derive(Debug)]
pub struct Headers(TempDir);

impl Headers {
    /// Writes those of `midspan_cc`, and `more`, as paths and texts.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write<'a>(more: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Headers, Error> {
        let folder = tempfile::Builder::new().prefix("midspan-cc-").tempdir();
        let folder = folder.map_err(Error::file(std::env::temp_dir()))?;
        for (name, text) in midspan_cc::HEADERS.iter().copied().chain(more) {
            let file = folder.path().join(name);
            let parent = file.parent().unwrap_or(folder.path());
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&file, text))
                .map_err(Error::file(&file))?;
        }
        Ok(Headers(folder))
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// What the interface is of which this program and a shared object must have the same.
pub(crate) fn interface() -> String {
    let mut digest = Sha256::new();
    for (_, text) in midspan_cc::HEADERS.iter().filter(|(name, _)| INTERFACE.contains(name)) {
        digest.update(text);
    }
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
