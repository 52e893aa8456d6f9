//! Where controls are kept that were built: by name, a program for the kernel and a shared object for the simulator.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Name};

/// The variable of the environment that names the folder.
pub const FOLDER_VARIABLE: &str = "MIDSPAN_CC";

const PROGRAM: &str = ".bpf.o";
const OBJECT: &str = ".so";
/// Has the path of the header that a control was built from.
const SOURCE: &str = ".source";

/// A folder of controls that were built.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

impl Folder {
    /// The one that [`FOLDER_VARIABLE`] names, or else the user's own (`~/.local/share/midspan/cc`; XDG Base Directory
    /// Specification).
    ///
    /// # Errors
    /// [`Error::NoFolder`], where there is no home either.
    pub fn of_user() -> Result<Folder, Error> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let data = || {
            let home = || set("HOME").map(|home| home.join(".local/share"));
            set("XDG_DATA_HOME").or_else(home).map(|data| data.join("midspan/cc"))
        };
        let none = Error::NoFolder { variable: FOLDER_VARIABLE };
        set(FOLDER_VARIABLE).or_else(data).map(Folder).ok_or(none)
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The control called `name`, with `ms_` or without, if it was built.
    pub fn named(&self, name: &str) -> Option<Built> {
        let name = Name::parse(name).ok()?;
        let built = Built { folder: self.0.clone(), name };
        (built.program().exists() && built.object().exists()).then_some(built)
    }

    /// All, by name.
    pub fn all(&self) -> Vec<Built> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut all: Vec<Built> =
            names.filter_map(|name| self.named(name.strip_suffix(OBJECT)?)).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Puts in what was built of `source`: the files `program` and `object`. Who has opened what was there before
    /// keeps that.
    pub(crate) fn keep(
        &self,
        name: Name,
        source: &Path,
        program: &Path,
        object: &Path,
    ) -> Result<Built, Error> {
        fs::create_dir_all(&self.0).map_err(Error::file(&self.0))?;
        let built = Built { folder: self.0.clone(), name };
        for (from, to) in [(program, built.program()), (object, built.object())] {
            let bytes = fs::read(from).map_err(Error::file(from))?;
            self.put(&to, &bytes)?;
        }
        self.put(&built.file(SOURCE), source.to_string_lossy().as_bytes())?;
        Ok(built)
    }

    fn put(&self, to: &Path, bytes: &[u8]) -> Result<(), Error> {
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
            std::io::Write::write_all(&mut file, bytes)?;
            file.persist(to).map_err(|failed| failed.error).map(drop)
        };
        write().map_err(Error::file(to))
    }
}

/// A control that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    folder: PathBuf,
    name: Name,
}

impl Built {
    /// Its name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The BPF program.
    pub fn program(&self) -> PathBuf {
        self.file(PROGRAM)
    }

    /// The shared object.
    pub fn object(&self) -> PathBuf {
        self.file(OBJECT)
    }

    /// The header that it was built from.
    pub fn source(&self) -> PathBuf {
        let noted = fs::read_to_string(self.file(SOURCE));
        noted.map_or_else(|_| self.object(), PathBuf::from)
    }

    fn file(&self, end: &str) -> PathBuf {
        self.folder.join(format!("{}{end}", self.name))
    }
}
