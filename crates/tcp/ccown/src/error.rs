use std::io;
use std::path::PathBuf;

/// Why a control of a user's own cannot be made, or used. Each is in one line, and names the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A control cannot be called so.
    #[error("`{name}` is no name for a control: {what}")]
    Name {
        /// The name asked for.
        name: String,
        /// What would be right.
        what: &'static str,
    },
    /// A control is a header.
    #[error("{file} is no control: give the header that it is, NAME.h")]
    NotAHeader {
        /// What was given.
        file: PathBuf,
    },
    /// A file of the template is there already.
    #[error("{file} is there already: give another name, or another folder")]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// There is no compiler.
    #[error(
        "no `{program}` to compile controls with: install clang (`apt install clang`), or set CLANG to where it is"
    )]
    NoCompiler {
        /// What was called.
        program: String,
    },
    /// A header of the system's is missing.
    #[error(
        "{file}: the header <{header}> of the system is missing: install the kernel's headers for programs (`apt install linux-libc-dev`)"
    )]
    NoSystemHeader {
        /// The control.
        file: PathBuf,
        /// The header that is missing.
        header: String,
    },
    /// The control is at fault: what, at which line.
    #[error("{at}: {what}")]
    Fault {
        /// The file, with line and column where there is one.
        at: String,
        /// What is wrong.
        what: String,
    },
    /// Nothing tests the control.
    #[error("{file} is missing: it is the unit test, a program in C that ends with status 0")]
    NoTest {
        /// Where it would be.
        file: PathBuf,
    },
    /// There is nowhere to keep what is built.
    #[error("no folder for what is built: set {variable} to one")]
    NoFolder {
        /// The variable of the environment.
        variable: &'static str,
    },
    /// A shared object that this program did not build.
    #[error(
        "{file}: built by another version of Midspan ({object}): build it again with `midspan cc build {file}`"
    )]
    Stale {
        /// The control.
        file: PathBuf,
        /// Its shared object.
        object: PathBuf,
    },
    /// A shared object that is none.
    #[error("{file}: its shared object {object} cannot be opened: {why}")]
    Object {
        /// The control.
        file: PathBuf,
        /// Its shared object.
        object: PathBuf,
        /// What the linker says.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("{file}: {error}")]
    File {
        /// Which.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

impl Error {
    pub(crate) fn file(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let file = file.into();
        |error| Error::File { file, error }
    }
}
