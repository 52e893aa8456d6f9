//! The page as Markdown, for a forge.

use std::fmt::Write as _;

use super::claim::{COLUMNS, Row};
use super::{Agreement, MEANING, Papers, Shown, ShownItem};

pub(super) fn page(all: &Papers, drawings: &str, root: &str) -> String {
    let mut out = String::from("# The five papers, figure by figure\n\n");
    out.push_str(
        "<!-- Made by `midspan lab papers` from bench/papers and bench/runs; a test holds it to them. -->\n\n",
    );
    line(&mut out, &all.count());
    if let Some(sentence) = all.live_beside_simulated() {
        line(&mut out, &sentence);
    }
    for sentence in MEANING {
        line(&mut out, sentence);
    }
    for Shown { paper, items } in &all.papers {
        let _ = write!(
            out,
            "| [{}](#{}) | | |\n|---|---|---|\n",
            paper.short,
            anchor(&title_of(&paper.short, &paper.title))
        );
        for item in items {
            let _ = writeln!(
                out,
                "| [{}](#{}) | {} | {} |",
                item.item.name(),
                anchor(&heading(&paper.short, item)),
                cell(&item.item.title),
                marked(item.agreement),
            );
        }
        out.push('\n');
    }
    for Shown { paper, items } in &all.papers {
        let _ = write!(
            out,
            "## {}\n\n{}\n\n{}\n\n",
            title_of(&paper.short, &paper.title),
            paper.by,
            paper.about
        );
        for shown in items {
            item(&mut out, &paper.short, shown, drawings, root);
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn item(out: &mut String, paper: &str, shown: &ShownItem, drawings: &str, root: &str) {
    let ShownItem { item, rows, drawings: drawn, agreement } = shown;
    let _ = write!(out, "### {}\n\n", heading(paper, shown));
    let says = if item.says.is_empty() { String::new() } else { format!(" {}", item.says) };
    let _ = write!(out, "**{}**{says}\n\n", agreement.sentence());
    for (index, (name, _)) in drawn.iter().enumerate() {
        let title = &item.chart[index].title;
        if !title.is_empty() {
            let _ = write!(out, "{title}:\n\n");
        }
        let _ = write!(
            out,
            "![{}: {}]({drawings}/{name})\n\n",
            item.name(),
            if title.is_empty() { &item.title } else { title }
        );
    }
    if !rows.is_empty() {
        table(out, rows);
    }
    let mut named: Vec<&str> = Vec::new();
    for run in item.runs() {
        if !named.contains(&run) {
            named.push(run);
        }
    }
    if !named.is_empty() {
        let links: Vec<String> =
            named.iter().map(|run| format!("[{run}]({root}/bench/runs/{run})")).collect();
        let _ = write!(out, "Records: {}\n\n", links.join(", "));
    }
    if !item.code.is_empty() {
        let links: Vec<String> =
            item.code.iter().map(|path| format!("[{path}]({root}/{path})")).collect();
        let _ = write!(out, "Code: {}\n\n", links.join(", "));
    }
}

fn table(out: &mut String, rows: &[Row]) {
    let _ = write!(out, "| {} |\n|---|---:|---:|---:|---:|---:|---:|\n", COLUMNS.join(" | "));
    for row in rows {
        let _ = writeln!(
            out,
            "| {} | {} | {} |",
            cell(&row.says),
            cell(&row.paper),
            row.columns().join(" | ")
        );
    }
    out.push('\n');
}

/// `mec figure 3a: Throughput ...`.
fn heading(paper: &str, shown: &ShownItem) -> String {
    format!("{paper} {}: {}", shown.item.name().to_lowercase(), shown.item.title)
}

fn title_of(short: &str, title: &str) -> String {
    format!("{short}: {title}")
}

/// What forges make of a heading.
fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || "_- ".contains(*letter);
    heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

fn marked(agreement: Agreement) -> String {
    match agreement {
        Agreement::Reproduced => format!("✓ {}", agreement.words()),
        Agreement::Differs => format!("✗ {}", agreement.words()),
        Agreement::Part(..) => format!("◐ {}", agreement.words()),
        Agreement::Shown | Agreement::NotRun | Agreement::NotApplicable => agreement.words(),
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push_str("\n\n");
}

/// Text for a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}
