use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};

use crate::clang::Clang;
use crate::{Error, Headers, Name};

/// Compiles the unit test that stands beside the control `header`, `NAME_test.c`, and runs it. What it prints goes where
/// this process's goes. Undefined behaviour ends it.
///
/// # Errors
/// When there is none, or it cannot be compiled.
pub fn unit_test(header: &Path) -> Result<ExitStatus, Error> {
    let name = Name::of(header)?;
    let absolute = fs::canonicalize(header).map_err(Error::file(header))?;
    let source = header.with_file_name(format!("{name}_test.c"));
    if !source.exists() {
        return Err(Error::NoTest { file: source });
    }
    let test = fs::canonicalize(&source).map_err(Error::file(&source))?;
    let headers = Headers::write([])?;
    let program = headers.path().join("test");
    let clang = Clang { headers: &headers, named: &source, absolute: &test };
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let arguments = [
        "-g".into(),
        "-O1".into(),
        "-fsanitize=undefined".into(),
        "-fsanitize-trap=undefined".into(),
        "-I".into(),
        folder.to_owned().into_os_string(),
        "-o".into(),
        program.clone().into_os_string(),
    ];
    clang.run(&test, arguments)?.map_err(|complaints| clang.fault(&complaints))?;
    Command::new(&program).status().map_err(Error::file(&source))
}
