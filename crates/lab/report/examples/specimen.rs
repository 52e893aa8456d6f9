//! Shows a report made of made-up numbers, for whoever changes how reports look:
//!
//! ```sh
//! cargo run -p midspan-report --example specimen -- loss html > specimen.html
//! cargo run -p midspan-report --example specimen -- series html > specimen.html
//! cargo run -p midspan-report --example specimen -- sizes text
//! cargo run -p midspan-report --example specimen -- scenarios/mec/4.toml text
//! ```

#![allow(clippy::disallowed_methods, reason = "an example reads files")]

#[path = "../tests/fixture/mod.rs"]
mod fixture;

use midspan_report::{Report, Terminal, compare};
use midspan_scenario::record::Outcome;
use midspan_scenario::reference;
use midspan_scenario::summary::Summary;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (which, form) = match arguments.as_slice() {
        [which, form @ ("html" | "text")] => (*which, *form),
        _ => {
            return Err(
                "usage: specimen loss|sizes|late|demo|series|single|reference|bad|FILE.toml html|text"
                    .into(),
            );
        }
    };
    let file;
    let source = match which {
        "loss" | "bad" => fixture::LOSS,
        "sizes" => fixture::SIZES,
        "late" => fixture::LATE,
        "demo" | "series" => fixture::DEMO,
        "single" => fixture::SINGLE,
        "reference" => fixture::REFERENCE,
        path => {
            file = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            file.as_str()
        }
    };
    let mut scenario = fixture::scenario(source);
    if !scenario.title.starts_with("Made-up numbers") {
        scenario.title = format!("Made-up numbers: {}", scenario.title);
    }
    let mut records = fixture::records(&scenario);
    if which == "bad" {
        spoil(&mut records);
    }
    if which == "series" {
        records.iter_mut().for_each(fixture::give_series);
    }
    let machine = fixture::machine();
    let explanations = ["Made-up: here stands why our numbers differ from the paper's.".to_owned()];
    let mut report = Report::new(&scenario, &records)?;
    report.source = Some(source);
    report.machine = Some(&machine);
    report.explanations = &explanations;
    // Of this one, what stands beside the reference.
    if which == "reference" {
        let summary = Summary::of(&scenario, &records)?;
        let comparison = &reference::compare(&fixture::reference_rows(), &scenario, &summary);
        let one = [compare::Compared { scenario: &scenario, summary: &summary, comparison }];
        match form {
            "html" => print!("{}", compare::page(&scenario.title, &one)),
            _ => print!("{}", compare::text(&one, Terminal { width: 100, colour: true })),
        }
        return Ok(());
    }
    match form {
        "html" => print!("{}", report.html()),
        _ => print!("{}", report.text(Terminal { width: 100, colour: true })),
    }
    Ok(())
}

/// Some runs untrusted, some failed.
fn spoil(records: &mut [midspan_scenario::record::Record]) {
    for record in records.iter_mut() {
        let loss = record.cell["loss"].as_str();
        if loss == "0.1 %" && record.repetition < 2 {
            record.outcome = fixture::untrusted();
        }
        if loss == "1 %" && record.variant as u8 == 2 {
            let reason = "haproxy: exited with status 1: cannot bind".to_owned();
            record.outcome = Outcome::Failed { reason };
        }
    }
}
