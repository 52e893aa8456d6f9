//! What a control of one's own begins with: a header that works, its unit test, and a scenario that runs it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Name};

/// In their place the template has this name.
const PLACE: &str = "NAME";
const FILES: [(&str, &str); 3] = [
    ("NAME.h", include_str!("../template/NAME.h")),
    ("NAME_test.c", include_str!("../template/NAME_test.c")),
    ("NAME.toml", include_str!("../template/NAME.toml")),
];

/// Writes the template of a control called `name` into `folder`, which is made if it is missing. Answers with the files.
///
/// # Errors
/// [`Error::Exists`], before anything is written, or [`Error::File`].
pub fn write(name: &Name, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let named = |text: &str| text.replace(PLACE, name.as_str());
    let files = FILES.map(|(file, text)| (folder.join(named(file)), named(text)));
    if let Some((file, _)) = files.iter().find(|(file, _)| file.exists()) {
        return Err(Error::Exists { file: file.clone() });
    }
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    for (file, text) in &files {
        fs::write(file, text).map_err(Error::file(file))?;
    }
    Ok(files.map(|(file, _)| file).into())
}
