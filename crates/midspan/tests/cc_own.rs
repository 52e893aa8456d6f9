//! Congestion controls of a user's own, through the program: the how-to to the letter, and whatever can be wrong with one.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use midspan_ccload::Kernel;
use tempfile::TempDir;

/// Whether there is what controls are compiled with; says so if not.
fn can_build() -> bool {
    common::has("clang") && common::has("ld")
}

/// Whether programs can be loaded into the kernel; says so if not.
fn can_load() -> bool {
    let can = midspan_sys::userns::is_root()
        && Kernel::running().is_ok()
        && Path::new("/sys/fs/bpf/maps.debug").exists();
    if !can {
        common::skip("needs root, a kernel that takes congestion controls, and a BPF file system");
    }
    can
}

/// A home with nothing in it.
struct Home(TempDir);

impl Home {
    fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        // `midspan` by name, and a `sudo` for who is root already, which has a home of its own.
        let bin = home.path("bin");
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(common::program(), bin.join("midspan")).unwrap();
        fs::write(bin.join("sudo"), "#!/bin/sh\nexec env HOME=/of-none \"$@\"\n").unwrap();
        fs::set_permissions(bin.join("sudo"), fs::Permissions::from_mode(0o755)).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let path = std::env::var("PATH").unwrap();
        Command::new(program)
            .args(arguments)
            .current_dir(self.0.path())
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("HOME", self.0.path())
            .env_remove("XDG_DATA_HOME")
            .env_remove("MIDSPAN_CC")
            .output()
            .unwrap()
    }

    fn midspan(&self, arguments: &str) -> Output {
        self.run("midspan", &arguments.split(' ').collect::<Vec<_>>())
    }

    /// The template's control called `name`, with `from` replaced by `to`.
    fn control(&self, name: &str, from: &str, to: &str) -> String {
        let folder = self.path(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        assert!(self.midspan(&format!("cc new {name}")).status.success());
        let header = format!("{name}/{name}.h");
        let text = fs::read_to_string(self.path(&header)).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(self.path(&header), text.replace(from, to)).unwrap();
        header
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Refused: status 2, and a line that says all of `what`.
fn assert_refused(output: &Output, what: &[&str]) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("midspan: ") && what.iter().all(|what| last.contains(what)), "{said}");
}

/// A block of the page: how it is marked, and its lines.
fn blocks(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, Vec<&str>)> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(mark), None) => open = Some((mark, Vec::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    blocks
}

#[test]
fn the_how_to_holds_to_the_letter() {
    if !can_build() {
        return;
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/howto/own-congestion-control.md");
    let page = fs::read_to_string(page).unwrap();
    let (home, loads) = (Home::new(), can_load());
    let mut printed = None;
    let mut commands = 0;
    for (mark, lines) in blocks(&page) {
        match mark {
            "sh as root" if !loads => printed = None,
            "sh" | "sh as root" => {
                let mut all = String::new();
                for line in &lines {
                    let output = home.run("sh", &["-c", line]);
                    assert!(output.status.success(), "{line}: {}", said(&output));
                    all.push_str(&String::from_utf8_lossy(&output.stdout));
                    commands += 1;
                }
                printed = Some(all);
            }
            "text" => {
                let Some(printed) = &printed else { continue };
                for line in lines {
                    assert!(printed.contains(line), "{line:?} is not in:\n{printed}");
                }
            }
            other => panic!("a block of {other:?}"),
        }
    }
    assert!(commands > 8, "{commands}");
}

#[test]
fn what_is_wrong_with_a_header_names_it_and_says_what() {
    if !can_build() {
        return;
    }
    let home = Home::new();
    let faults: [(&str, &str, &[&str]); 9] = [
        ("sample->acked", "sample->ackd", &["bad.h:24:", "ackd"]),
        ("bad_undo", "bad_und", &["no bad_undo", "u32 bad_undo(struct bad *, struct cc *)"]),
        ("bad_ssthresh", "bad_thresh", &["no bad_ssthresh"]),
        ("void bad_grow", "void bad_grows", &["neither bad_grow nor bad_control"]),
        (
            "bad_undo(struct bad *state, struct cc *cc)\n{",
            "bad_undo(struct bad *state)\n{\n\tstruct cc *cc = 0;",
            &["bad_undo is not as the interface has it", "u32 bad_undo(struct bad *, struct cc *)"],
        ),
        ("u32 credit;", "u32 credit, more[40];", &["more than 104 bytes"]),
        ("struct bad {", "struct worse;\nstruct worse_ {", &["bad.h:"]),
        ("#include \"cc.h\"", "#include \"cc.h\"\n#include \"other.h\"", &["bad.h:9:", "other.h"]),
        ("u32 acked = sample->acked;", "u32 acked = puts(\"\");", &["bad.h:24:", "puts"]),
    ];
    for (from, to, what) in faults {
        let header = home.control("bad", from, to);
        let output = home.midspan(&format!("cc build {header}"));
        assert_refused(&output, &[what, &["bad/bad.h"]].concat());
        assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    }
    // Nothing that was refused is kept.
    let list = home.midspan("cc list");
    assert!(!String::from_utf8_lossy(&list.stdout).contains("ms_bad"));
}

#[test]
fn what_is_asked_wrongly_is_refused_with_what_would_be_right() {
    let home = Home::new();
    for (command, what) in [
        ("cc new cubic", "none that Midspan has"),
        ("cc new Gentle", "letters from a to z"),
        ("cc new far_too_long_a_name", "at most 12"),
        ("cc build gentle.c", "NAME.h"),
        ("cc build gentle.h", "gentle.h: No such file"),
        ("cc load gentle", "no congestion control is called `gentle`"),
    ] {
        assert_refused(&home.midspan(command), &[what]);
    }
    let header = home.control("mine", "", "");
    assert_refused(&home.midspan("cc new mine"), &["mine/mine.h is there already"]);
    fs::remove_file(home.path("mine/mine_test.c")).unwrap();
    assert_refused(&home.midspan(&format!("cc test {header}")), &["mine_test.c is missing"]);
    let output = home.run("sh", &["-c", "CLANG=/no/clang midspan cc build mine/mine.h"]);
    assert_refused(&output, &["/no/clang", "install clang"]);
}

#[test]
fn a_crash_in_a_simulation_names_the_header() {
    if !can_build() {
        return;
    }
    let home = Home::new();
    for (crash, what) in [
        ("*(volatile u32 *)(unsigned long)cc->now_ns", "memory that is not its own"),
        ("100 / (sample->acked - sample->acked)", "division by zero"),
    ] {
        let header =
            home.control("bad", "u32 acked = sample->acked", &format!("u32 acked = {crash}"));
        let built = home.midspan(&format!("cc build {header}"));
        assert!(built.status.success(), "{}", said(&built));
        let output = home.midspan("lab run bad/bad.toml --backend sim --short");
        assert_refused(&output, &["bad/bad.h: the control crashed", what]);
    }
}

#[test]
fn what_was_not_built_by_this_program_is_not_opened() {
    if !can_build() {
        return;
    }
    let home = Home::new();
    let header = home.control("mine", "", "");
    assert!(home.midspan(&format!("cc build {header}")).status.success());
    let object = home.path(".local/share/midspan/cc/mine.so");
    let run = || home.midspan("lab run mine/mine.toml --backend sim --short");
    // Of another interface: the text that says of which is another.
    let mut bytes = fs::read(&object).unwrap();
    let text = interface_in(&bytes);
    bytes[text] ^= 1;
    fs::write(&object, bytes).unwrap();
    assert_refused(&run(), &["mine/mine.h", "built by another version", "build it again"]);
    fs::write(&object, "no object").unwrap();
    assert_refused(&run(), &["mine/mine.h", "mine.so", "cannot be opened"]);
    fs::write(home.path(".local/share/midspan/cc/mine.bpf.o"), "no object").unwrap();
    let output = home.midspan("cc load mine");
    assert_refused(&output, &["mine/mine.h", "is no program"]);
    assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
}

/// Where 16 hexadecimal digits stand with a zero on either side.
fn interface_in(bytes: &[u8]) -> usize {
    let is_text = |part: &[u8]| part[16] == 0 && part[..16].iter().all(u8::is_ascii_hexdigit);
    bytes.windows(17).position(is_text).unwrap()
}

#[test]
fn the_verifier_s_refusal_names_header_and_line() {
    if !can_build() || !can_load() {
        return;
    }
    let home = Home::new();
    let crash = "u32 acked = *(volatile u32 *)(unsigned long)cc->now_ns";
    let header = home.control("unsafe", "u32 acked = sample->acked", crash);
    assert!(home.midspan(&format!("cc build {header}")).status.success());
    let what = ["unsafe/unsafe.h: Linux", "does not take `ms_unsafe`", "invalid mem access"];
    assert_refused(&home.midspan("cc load unsafe"), &what);
    // A scenario that names it says the same.
    let output = home.midspan("lab run unsafe/unsafe.toml --short --only control=ms_unsafe");
    assert_refused(&output, &what);
}
