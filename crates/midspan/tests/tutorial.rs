//! The tutorials hold, line by line: what they tell to type is run, and what they show is printed.

mod common;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

/// One at a time: congestion controls are the whole machine's.
static ALONE: Mutex<()> = Mutex::new(());

/// A page's blocks of code, each with what it is marked as.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open = None;
    for event in Parser::new(page) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(mark))) => {
                open = Some((mark.into_string(), String::new()));
            }
            Event::Text(text) => {
                if let Some((_, body)) = &mut open {
                    body.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
            _ => {}
        }
    }
    blocks
}

/// Runs all blocks of a page in one shell, in an empty folder, and in namespaces that take along what it leaves: processes,
/// links, mounts. Those marked `sh live`, which take a minute, among the long tests.
fn holds(page: &str) {
    let live = std::env::var_os("MIDSPAN_TEST_ALL").is_some();
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorial").join(page);
    let work = tempfile::tempdir().unwrap();
    let printed = |number: usize| work.path().join(format!(".{number}"));
    let mut script = String::from("set -e\n[ \"$(id -u)\" != 0 ] || mount -t tmpfs none /run\n");
    let mut shown: Vec<(usize, String)> = Vec::new();
    let mut commands = 0;
    for (mark, body) in blocks(&fs::read_to_string(&path).unwrap()) {
        match mark.as_str() {
            "sh live" if !live => {}
            "sh" | "sh live" => {
                script += &format!("exec >.{commands} 2>&1\n{body}");
                commands += 1;
            }
            "text" => shown.extend(body.lines().map(|line| (commands - 1, line.to_string()))),
            other => panic!("{page}: a block of {other:?}"),
        }
    }
    fs::write(work.path().join(".script"), script).unwrap();
    let folder = common::program().parent().unwrap();
    let status = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["bash", ".script"])
        .current_dir(work.path())
        .env(
            "PATH",
            format!("{}:{}:/usr/sbin:/sbin", folder.display(), std::env::var("PATH").unwrap()),
        )
        .stdin(Stdio::null())
        .stdout(File::create(work.path().join(".end")).unwrap())
        .stderr(File::create(work.path().join(".end")).unwrap())
        .status()
        .unwrap();
    let all = |number: usize| fs::read_to_string(printed(number)).unwrap_or_default();
    let last = (0..commands).rev().find(|&number| printed(number).exists());
    let end = fs::read_to_string(work.path().join(".end")).unwrap_or_default();
    assert!(status.success(), "{page}, block {last:?}: {end}{}", last.map(all).unwrap_or_default());
    assert!(commands > 3, "{page}: {commands}");
    for (number, line) in shown {
        let all = all(number);
        assert!(all.contains(&line), "{page}: {line:?} is not in:\n{all}");
    }
}

/// Whether what the tutorials ask for is here: root, and BPF.
fn can() -> bool {
    let root = midspan_sys::userns::is_root();
    if !root {
        common::skip("needs root");
    }
    let programs = ["unshare", "curl", "python3", "iperf3"];
    root && common::can_run() && programs.iter().all(|program| common::has(program))
}

#[test]
fn an_operators_first_hour_holds() {
    if can() {
        holds("operator.md");
    }
}

#[test]
fn a_researchers_first_hour_holds() {
    if can() {
        holds("researcher.md");
    }
}

#[test]
fn a_server_owners_first_hour_holds() {
    if can() {
        holds("server-owner.md");
    }
}
