//! The page that a newcomer reads first says what is true: its map is the tree, its arrows are the dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// By the folder's own name, the folder below `crates/`.
type Folders = BTreeMap<String, PathBuf>;

/// Who uses whom: by user.
type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_map_is_the_tree() {
    let drawn = drawn();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let folder = entry.unwrap().path();
        if folder.join("Cargo.toml").exists() {
            found.insert(folder);
        } else {
            found.extend(fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    let drawn: BTreeSet<_> = drawn.values().map(|folder| crates().join(folder)).collect();
    assert_eq!(drawn, found);
}

#[test]
fn packages_are_named_as_the_page_says() {
    for (name, folder) in drawn() {
        let package = package_of(&name);
        let manifest = manifest(&folder);
        assert_eq!(manifest["package"]["name"].as_str(), Some(&*package), "{}", folder.display());
    }
}

#[test]
fn the_arrows_are_the_dependencies() {
    let drawn = drawn();
    let mut uses = Uses::new();
    for (name, folder) in &drawn {
        let manifest = manifest(folder);
        let of = |table: &str| manifest.get(table).and_then(toml::Value::as_table).cloned();
        let packages = [of("dependencies"), of("build-dependencies")];
        let packages = packages.into_iter().flatten().flatten().map(|(package, _)| package);
        let used = packages.filter_map(|package| {
            drawn.keys().find(|name| package_of(name) == package && *name != "units").cloned()
        });
        uses.entry(name.clone()).or_default().extend(used);
    }
    uses.retain(|_, used| !used.is_empty());
    assert_eq!(arrows(&page()), uses);
}

/// `a, b  ->  c, d; e, when ...`: a and b use c, d and e. What is said behind a name is for people.
fn arrows(page: &str) -> Uses {
    let lines = page.lines().filter_map(|line| line.split_once("  ->  "));
    let known = |name: &&str| package_of(name) == "midspan" || drawn().contains_key(*name);
    let names = |part: &str| -> BTreeSet<String> {
        let words = part.split([',', ';']).filter_map(|part| part.split_whitespace().next());
        words.filter(known).map(str::to_owned).collect()
    };
    let pairs = lines.flat_map(|(users, used)| {
        let used = names(used);
        names(users).into_iter().map(move |user| (user, used.clone()))
    });
    pairs.filter(|(_, used)| !used.is_empty()).collect()
}

fn package_of(name: &str) -> String {
    let name = match name {
        "midspan" => return name.to_owned(),
        "endpoint" => "tcp",
        "server" => "relay",
        "node" => "assist",
        "proto" => "assist-proto",
        "runner" => "lab",
        other => other,
    };
    format!("midspan-{name}")
}

/// The folders of the page's map: a group by two spaces and a slash, what is in it by four.
fn drawn() -> Folders {
    let page = page();
    let map = page.split("```").nth(1).unwrap();
    let mut group = PathBuf::new();
    let mut drawn = Folders::new();
    for line in map.lines().skip_while(|line| *line != "crates/").skip(1) {
        let name = line.split_whitespace().next().unwrap();
        match line.len() - line.trim_start().len() {
            0 => break,
            2 if name.ends_with('/') => group = PathBuf::from(name),
            2 => drop(drawn.insert(name.to_owned(), PathBuf::from(name))),
            4 => drop(drawn.insert(name.to_owned(), group.join(name))),
            _ => {}
        }
    }
    assert!(drawn.len() > 20, "{drawn:?}");
    drawn
}

fn page() -> String {
    fs::read_to_string(crates().join("../ARCHITECTURE.md")).unwrap()
}

fn manifest(folder: &Path) -> toml::Table {
    fs::read_to_string(crates().join(folder).join("Cargo.toml")).unwrap().parse().unwrap()
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
