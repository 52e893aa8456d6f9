//! How the code hangs together: files that use each other in a circle can only be understood all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// By module, which other modules of its crate it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_file_uses_itself_around() {
    for name in [
        "lab/serve",
        "lab/sim",
        "relay/decide",
        "relay/forward",
        "relay/gain",
        "relay/interception",
        "relay/learning",
        "relay/legs",
        "relay/server",
        "relay/sockets",
        "relay/split",
        "relay/succession",
        "relay/telemetry",
    ] {
        let uses =
            uses_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src"));
        assert!(uses.len() > 1, "{name}: {uses:?}");
        assert_eq!(circle(&uses), None, "{name}");
    }
}

#[test]
fn a_circle_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "mod a;\nmod b;\nmod c;\n");
    write("a.rs", "use crate::b::{self, B};\n");
    write("b.rs", "pub(crate) use crate::{\n    c::{C, D},\n};\n");
    write("c.rs", "// use crate::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n");
    let uses = uses_in(folder.path());
    assert_eq!((uses["a"].len(), uses["b"].len(), uses["c"].len()), (1, 1, 0));
    assert_eq!(circle(&uses), None);
    write("c.rs", "fn c() -> crate::a::A {}\n");
    assert_eq!(circle(&uses_in(folder.path())), Some(vec!["a".into(), "b".into(), "c".into()]));
}

fn uses_in(source: &Path) -> Uses {
    let mut files = BTreeMap::new();
    read(source, "", &mut files);
    files.iter().map(|(module, text)| (module.clone(), used_by(module, text, &files))).collect()
}

/// Reads all files by module; a folder's `mod.rs` is the folder's. Tests may use what they like.
fn read(folder: &Path, module: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let inside = if module.is_empty() { name.clone() } else { format!("{module}::{name}") };
        if path.is_dir() {
            read(&path, &inside, files);
        } else if name != "lib" && path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            let module = if name == "mod" { module.to_owned() } else { inside };
            files.insert(module, lines.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// The modules that a file's text names by a path from the crate's root.
fn used_by(module: &str, text: &str, files: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let is_part = text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
        if !is_part {
            paths("", &text[at + "crate::".len()..], &mut used);
        }
    }
    let of = |path: &String| {
        let mut path = path.as_str();
        while !files.contains_key(path) {
            path = path.rsplit_once("::")?.0;
        }
        (path != module).then(|| path.to_owned())
    };
    used.iter().filter_map(of).collect()
}

/// All paths that begin here: `a::{b, c::d}` is two of them. Answers what comes behind.
fn paths<'a>(before: &str, text: &'a str, all: &mut BTreeSet<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = paths(before, rest, all).trim_start();
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let path = if before.is_empty() { name.to_owned() } else { format!("{before}::{name}") };
    match rest.strip_prefix("::") {
        Some(rest) if !name.is_empty() => paths(&path, rest, all),
        _ => {
            all.insert(path);
            rest
        }
    }
}

/// Modules of which each uses the next, and the last the first.
fn circle(uses: &Uses) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    uses.keys().find_map(|module| follow(module, uses, &mut Vec::new(), &mut done))
}

fn follow(
    module: &str,
    uses: &Uses,
    way: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(at) = way.iter().position(|one| one == module) {
        return Some(way[at..].to_vec());
    }
    if !done.insert(module.to_owned()) {
        return None;
    }
    way.push(module.to_owned());
    let found = uses.get(module)?.iter().find_map(|used| follow(used, uses, way, done));
    way.pop();
    found
}
