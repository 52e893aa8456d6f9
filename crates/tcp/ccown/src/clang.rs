//! The compiler, and what it says.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Headers};

/// What clang said of a file that it took.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// Its warnings, a line each.
    pub(crate) warnings: Vec<String>,
}

/// One of the lines of clang's that begin with `FILE:LINE:COLUMN: error: `.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) file: PathBuf,
    pub(crate) line: u32,
    column: u32,
    pub(crate) what: String,
}

/// Clang, for one control.
pub(crate) struct Clang<'a> {
    pub(crate) headers: &'a Headers,
    /// The control's header, as the user named it.
    pub(crate) named: &'a Path,
    /// The same, from the root.
    pub(crate) absolute: &'a Path,
}

impl Clang<'_> {
    /// Runs it on `source` with `arguments`. Answers with the errors, or what it said.
    pub(crate) fn run<A: Into<OsString>>(
        &self,
        source: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Result<Said, Vec<Complaint>>, Error> {
        let program = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
        let mut command = Command::new(&program);
        command
            .args(["-std=gnu11", "-ffreestanding", "-Wall", "-Wextra", "-Wno-unused-parameter"])
            .args(["-Wno-sign-compare", "-Werror=implicit-function-declaration"])
            .args(["-Werror=incompatible-pointer-types", "-ferror-limit=0"])
            .args(["-fno-caret-diagnostics", "-fno-color-diagnostics"])
            .arg("-I")
            .arg(self.headers.path())
            .args(arguments.into_iter().map(Into::into))
            .arg(source)
            .env("LC_ALL", "C");
        let output = command.output().map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                Error::NoCompiler { program: program.to_string_lossy().into_owned() }
            }
            _ => Error::File { file: program.into(), error },
        })?;
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            let warnings = text.lines().filter(|line| line.contains(": warning: "));
            return Ok(Ok(Said { warnings: warnings.map(|line| self.as_named(line)).collect() }));
        }
        let complaints: Vec<Complaint> = text.lines().filter_map(complaint).collect();
        if complaints.is_empty() {
            let errors = |line: &&str| line.contains("error");
            let said = text.lines().find(errors).or(text.lines().next()).unwrap_or("no reason");
            return Err(Error::Fault {
                at: self.named.display().to_string(),
                what: format!("clang does not take it: {said}"),
            });
        }
        Ok(Err(complaints))
    }

    /// The one that the user can do the most with: the first in a file of theirs, else the first.
    pub(crate) fn fault(&self, complaints: &[Complaint]) -> Error {
        let missing = complaints.iter().find_map(|one| {
            let header = one.what.strip_suffix("' file not found")?.strip_prefix('\'')?;
            let of_the_system = ["linux/", "asm/", "asm-generic/"];
            of_the_system.iter().any(|start| header.starts_with(start)).then(|| header.to_owned())
        });
        if let Some(header) = missing {
            return Error::NoSystemHeader { file: self.named.to_owned(), header };
        }
        let theirs = |one: &&Complaint| !one.file.starts_with(self.headers.path());
        let Some(one) = complaints.iter().find(theirs).or(complaints.first()) else {
            return Error::Fault { at: self.named.display().to_string(), what: String::new() };
        };
        let at = if theirs(&one) {
            self.as_named(&format!("{}:{}:{}", one.file.display(), one.line, one.column))
        } else {
            self.named.display().to_string()
        };
        Error::Fault { at, what: one.what.clone() }
    }

    fn as_named(&self, text: &str) -> String {
        text.replace(&*self.absolute.to_string_lossy(), &self.named.to_string_lossy())
    }
}

fn complaint(line: &str) -> Option<Complaint> {
    let (at, what) = line.split_once(": error: ").or_else(|| line.split_once(": fatal error: "))?;
    let mut parts = at.rsplitn(3, ':');
    let (column, line) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    // The name of a warning that counts as an error is of no use here.
    let what = what.split(" [-W").next().unwrap_or(what).to_owned();
    Some(Complaint { file: parts.next()?.into(), line, column, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_read_from_what_clang_prints() {
        let line = "/a:b/gentle.h:12:5: error: use of undeclared identifier 'x'";
        let what = "use of undeclared identifier 'x'".to_owned();
        let read = Complaint { file: "/a:b/gentle.h".into(), line: 12, column: 5, what };
        assert_eq!(complaint(line), Some(read));
        let line = "x.h:1:2: error: incompatible types [-Werror,-Wincompatible-pointer-types]";
        assert_eq!(complaint(line).unwrap().what, "incompatible types");
        assert_eq!(complaint("x.h:1:2: warning: unused"), None);
        assert_eq!(complaint("clang: error: no such file"), None);
    }
}
