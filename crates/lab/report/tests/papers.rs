//! Papers' figures with ours beside them: verdicts follow from numbers, a summary's text gives the numbers of its records,
//! and a description that names what is not there is refused.

mod fixture;

use midspan_report::papers::{Paper, Papers, Runs, Values};
use midspan_report::{Report, Terminal};

const PAPER: &str = r#"
order = 1
short = "mec"
title = "Made-up"
by = "Nobody"
about = "Made-up numbers."

[[item]]
figure = "3a"
title = "Goodput over loss"
sim = "made-up"
says = "Made up."
[[item.chart]]
kind = "lines"
measure = "goodput"
along = "loss"
x = "Loss"
points = ["0 %", "0.5 %", "1 %"]
series = [
    { name = "no proxy", paper = { "0 %" = "949 Mbit/s" } },
    { name = "Midspan", variant = "midspan", paper = { "0.5 %" = "77.6 x" } },
]
[[item.claim]]
says = "no proxy"
paper = "949 Mbit/s"
measure = "goodput"
of = { loss = "0 %" }
[[item.claim]]
says = "gain"
paper = "> 1 x"
measure = "goodput"
of = { variant = "midspan" }
over = { variant = "none" }
each = { loss = ["0.05 %", "0.1 %", "0.5 %", "1 %"] }
[[item.claim]]
says = "a hundred times"
paper = "> 1000000 x"
measure = "goodput"
of = { variant = "midspan" }
over = { variant = "none" }
take = "most"
except = { loss = ["1 %"] }
"#;

fn paper(text: &str) -> Vec<Paper> {
    vec![toml::from_str(text).unwrap()]
}

fn of_records() -> Runs {
    let scenario = fixture::scenario(fixture::LOSS);
    let values = Values::of_records(&scenario, &fixture::records(&scenario)).unwrap();
    Runs::from([("made-up".to_owned(), Some(values))])
}

fn of_summary() -> Runs {
    let scenario = fixture::scenario(fixture::LOSS);
    let records = fixture::records(&scenario);
    let text = Report::new(&scenario, &records).unwrap().text(Terminal::PLAIN);
    let values = Values::of_summary(&scenario, &text).unwrap();
    Runs::from([("made-up".to_owned(), Some(values))])
}

/// The simulated numbers of the table's rows.
fn numbers(page: &str) -> Vec<f64> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| stated"));
    rows.filter_map(|row| row.split('|').nth(5)?.split_whitespace().next()?.parse().ok()).collect()
}

#[test]
fn a_summary_gives_the_numbers_of_its_records() {
    let page = |runs: &Runs| Papers::new(paper(PAPER), runs).unwrap().markdown("d", "r");
    let (records, summary) = (numbers(&page(&of_records())), numbers(&page(&of_summary())));
    assert_eq!(records.len(), 6, "{}", page(&of_records()));
    assert_eq!(records.len(), summary.len());
    for (one, other) in records.iter().zip(&summary) {
        assert!((one / other - 1.0).abs() < 0.01, "{one} {other}");
    }
}

#[test]
fn a_summary_of_another_scenario_is_refused() {
    let scenario = fixture::scenario(fixture::LOSS);
    let late = fixture::scenario(fixture::LATE);
    let records = fixture::records(&late);
    let text = Report::new(&late, &records).unwrap().text(Terminal::PLAIN);
    assert!(Values::of_summary(&scenario, &text).is_err());
}

#[test]
fn the_verdict_is_counted_and_not_written() {
    let page = |text: &str| Papers::new(paper(text), &of_records()).unwrap().markdown("d", "r");
    assert!(page(PAPER).contains("**In part: "), "{}", page(PAPER));
    let easy = PAPER
        .replace("> 1000000 x", "> 0 x")
        .replace("949 Mbit/s\"\nmeasure", "> 1 Mbit/s\"\nmeasure");
    assert!(page(&easy).contains("**Reproduced.**"), "{}", page(&easy));
    let hard = PAPER
        .replace("> 1 x", "> 1000000 x")
        .replace("949 Mbit/s\"\nmeasure", "1 Mbit/s\"\nmeasure");
    assert!(page(&hard).contains("**Differs.**"), "{}", page(&hard));
}

#[test]
fn what_the_paper_does_not_state_is_not_passed_off_as_its() {
    let page = |text: &str| Papers::new(paper(text), &of_records()).unwrap().markdown("d", "r");
    let hard = "paper = \"> 1000000 x\"";
    let experiment = PAPER.replace(hard, &format!("{hard}\nexperiment = true"));
    assert!(page(PAPER).contains("5 of 6"), "{}", page(PAPER));
    // A row that is an experiment is there, and counts for nothing.
    assert!(!page(&experiment).contains(" of 6"), "{}", page(&experiment));
    assert!(page(&experiment).contains("| experiment, not counted: a hundred times |"));
    let words = PAPER.replace(hard, &format!("{hard}\nwords = \"much\""));
    assert!(page(&words).contains("in words (much), read as > 1000000 x"), "{}", page(&words));
    assert!(
        page(&words).contains("5 of 5 agree, of statements in words 0 of 1"),
        "{}",
        page(&words)
    );
}

#[test]
fn drawings_stand_alone_and_are_the_same_each_time() {
    let draw = || {
        let papers = Papers::new(paper(PAPER), &of_records()).unwrap();
        papers.drawings().map(|(name, text)| (name.to_owned(), text)).collect::<Vec<_>>()
    };
    let drawings = draw();
    assert_eq!(drawings, draw());
    let [(name, text)] = &drawings[..] else { panic!("{} drawings", drawings.len()) };
    assert_eq!(name, "mec-figure-3a.svg");
    assert!(text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{text}");
    for wanted in ["<style>", "no proxy", "simulated", "the paper's gain", "Goodput, Mbit/s"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

#[test]
fn what_is_not_there_is_told_with_its_figure() {
    for (change, to, said) in [
        ("sim = \"made-up\"", "sim = \"another\"", "no recorded run `another`"),
        ("measure = \"goodput\"\nof", "measure = \"speed\"\nof", "no measure `speed`"),
        ("of = { loss = \"0 %\" }", "of = { loss = \"7 %\" }", "no cell has"),
        ("of = { loss = \"0 %\" }", "of = {}", "5 cells have"),
        ("variant = \"midspan\", paper", "variant = \"squid\", paper", "no variant `squid`"),
        ("\"> 1 x\"", "\"about 1 x\"", "must be a number"),
        ("points = [\"0 %\",", "points = [\"2 %\",", "no cell has"),
        ("says = \"Made up.\"", "", "`says` must say why"),
        ("figure = \"3a\"", "", "either `figure` or `table`"),
    ] {
        let text = PAPER.replacen(change, to, 1);
        assert_ne!(text, PAPER, "{change}");
        let error = Papers::new(paper(&text), &of_records()).unwrap_err().to_string();
        assert!(error.starts_with("mec ") && error.contains(said), "{change}: {error}");
    }
}
