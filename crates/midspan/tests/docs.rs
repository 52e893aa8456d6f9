//! What the documentation says of itself holds: its links lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

/// A text's headings, as links name them, and its links.
#[derive(Default)]
struct Page {
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

impl Page {
    fn read(path: &Path) -> Page {
        let text = fs::read_to_string(path).unwrap();
        let mut page = Page::default();
        let mut heading = None;
        for event in Parser::new(&text) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    page.anchors.extend(heading.take().map(|heading| anchor(&heading)));
                }
                Event::Start(Tag::Link { dest_url, .. }) => page.links.push(dest_url.into_string()),
                Event::Text(words) | Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                }
                _ => {}
            }
        }
        page
    }
}

/// What GitHub and others make of a heading.
fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || "_- ".contains(*letter);
    heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

fn texts(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|ext| ext == "md")).collect()
}

/// Who looks for something begins there.
#[test]
fn every_page_is_in_the_index() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let links = Page::read(&docs.join("README.md")).links;
    for folder in fs::read_dir(&docs).unwrap().map(|entry| entry.unwrap().path()) {
        if folder.is_dir() && !folder.ends_with("papers") {
            for page in texts(&folder) {
                let page = page.strip_prefix(&docs).unwrap().to_str().unwrap();
                assert!(links.iter().any(|link| link == page), "docs/README.md lacks {page}");
            }
        }
    }
}

#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = [
        "",
        "bench/runs",
        "docs",
        "docs/tutorial",
        "docs/howto",
        "docs/reference",
        "docs/explanation",
    ];
    let pages = pages.map(|folder| texts(&root.join(folder))).concat();
    assert!(pages.len() > 12, "{pages:?}");
    let mut links = 0;
    let mut dead = Vec::new();
    for path in &pages {
        for link in Page::read(path).links {
            if link.contains("://") {
                continue;
            }
            links += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let folder = path.parent().unwrap();
            let target = if file.is_empty() { path.clone() } else { folder.join(file) };
            let leads = target.exists()
                && (heading.is_empty() || Page::read(&target).anchors.contains(heading));
            if !leads {
                dead.push(format!("{}: {link}", path.file_name().unwrap().display()));
            }
        }
    }
    assert!(links > 50, "{links}");
    assert!(dead.is_empty(), "{dead:#?}");
}
