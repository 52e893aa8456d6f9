//! What is made of the command line's own definitions.

use std::fs;
use std::path::Path;
use std::process::Command;

fn generate(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_midspan"));
    let output = command.arg("generate").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_reference_is_of_these_commands() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    assert!(
        fs::read_to_string(file).unwrap() == generate(&["reference"]),
        "docs/reference/commands.md is of other commands; made anew by `midspan generate reference > docs/reference/commands.md`"
    );
}

#[test]
fn each_command_has_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    generate(&["man", folder.path().to_str().unwrap()]);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("midspan.1").contains("TCP acceleration"));
    assert!(read("midspan-lab-run.1").contains("scenario"));
    let pages: Vec<_> = fs::read_dir(&folder).unwrap().map(|page| page.unwrap().path()).collect();
    assert!(pages.len() > 20);
    for page in &pages {
        let Ok(output) = Command::new("groff").args(["-man", "-ww", "-z"]).arg(page).output()
        else {
            return eprintln!("skipped in part: no groff to read the pages with");
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.is_empty(), "{}: {said}", page.display());
    }
}

#[test]
fn a_shell_completes_what_was_begun() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("completions");
    fs::write(&file, generate(&["completions", "bash"])).unwrap();
    let script = format!(
        ". {}; complete -p midspan >&2 || exit 1\n\
         COMP_WORDS=(midspan relay --rep); COMP_CWORD=2; _midspan midspan --rep relay; echo \"${{COMPREPLY[@]}}\"",
        file.display()
    );
    let output = Command::new("bash").args(["--norc", "-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "--replace", "{output:?}");
    for shell in ["zsh", "fish"] {
        assert!(generate(&["completions", shell]).contains("midspan"));
    }
}
