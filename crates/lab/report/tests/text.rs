//! The report as text.

mod fixture;

use midspan_report::{Report, Terminal, beside, compare};
use midspan_scenario::record::{Backend, Outcome, Variant};
use midspan_scenario::reference;
use midspan_scenario::summary::Summary;

#[test]
fn a_sweep_with_a_paper_is_a_table_and_a_sentence() {
    let scenario = fixture::scenario(fixture::LATE);
    let records = fixture::records(&scenario);
    let text = Report::new(&scenario, &records).unwrap().text(Terminal::PLAIN);
    let expected = "\
Made-up numbers: 10 ms more on some packets (mec 4)

Goodput, Mbit/s: mean ± standard deviation of 5 runs
late     no proxy         Midspan             gain
0 %         938.5  ± 1.1    939.9  ± 0.6    1.00 x
0.05 %      937.0  ± 0.9    938.2  ± 1.5    1.00 x
0.1 %       937.9  ± 0.7    938.1  ± 1.3    1.00 x
0.5 %       939.4  ± 0.5    609.1  ± 10.9   0.65 x
  paper                                    0.663 x
1 %         938.1  ± 1.5    405.9  ± 4.3    0.43 x
  paper                                    0.419 x

Midspan is at best as fast as no proxy at 0 % late (upload), and at worst 2.31
times slower at 1 % late. It is slower in 2 of 5 cells compared.
";
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn runs_without_a_number_are_said() {
    let scenario = fixture::scenario(fixture::LOSS);
    let mut records = fixture::records(&scenario);
    for record in &mut records {
        match (record.cell["loss"].as_str(), record.repetition, record.variant) {
            ("0.1 %", 0, Variant::None | Variant::Midspan) => record.outcome = fixture::untrusted(),
            ("1 %", _, Variant::Haproxy) => {
                let reason = "haproxy: cannot bind".to_owned();
                record.outcome = Outcome::Failed { reason };
            }
            ("0 %", 4, Variant::Midspan) => record.outcome = fixture::untrusted(),
            _ => {}
        }
    }
    let text = Report::new(&scenario, &records).unwrap().text(Terminal::PLAIN);
    for line in [
        "0 % loss, Midspan: 1 of 5 runs untrusted: emulator p99 lateness 240 us, limit\n  100 us",
        "0.1 % loss: not measurable here: 2 of 15 runs untrusted: emulator p99 lateness\n  240 us",
        "1 % loss, HAProxy: 5 of 5 runs failed: haproxy: cannot bind\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let unmeasurable = text.lines().find(|line| line.starts_with("0.1 % ")).unwrap();
    assert_eq!(
        unmeasurable.split_whitespace().collect::<Vec<_>>(),
        ["0.1", "%", "n/m", "n/m", "n/m"]
    );
}

#[test]
fn nothing_and_one_run_are_enough() {
    let scenario = fixture::scenario(fixture::SINGLE);
    let none = Report::new(&scenario, &[]).unwrap().text(Terminal::PLAIN);
    assert!(none.ends_with("No runs yet.\n"), "{none}");

    let records = fixture::records(&scenario);
    let one = Report::new(&scenario, &records[..1]).unwrap().text(Terminal::PLAIN);
    assert!(one.ends_with("so there is nothing to\ncompare.\n"), "{one}");
    assert!(!one.contains('±'), "one run has no spread: {one}");

    let both = Report::new(&scenario, &records).unwrap().text(Terminal::PLAIN);
    assert!(both.ends_with("Midspan is 23.7 times faster than no proxy (upload).\n"), "{both}");
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    let scenario = fixture::scenario(fixture::DEMO);
    let records = fixture::records(&scenario);
    let report = Report::new(&scenario, &records).unwrap();
    assert!(report.text(Terminal::new(90, None)).contains('\u{1b}'));
    assert!(report.text(Terminal::new(90, Some(""))).contains('\u{1b}'));
    assert!(!report.text(Terminal::new(90, Some("1"))).contains('\u{1b}'));
    assert!(!report.text(Terminal::PLAIN).contains('\u{1b}'));
}

#[test]
fn the_reference_stands_beside_ours() {
    let scenario = fixture::scenario(fixture::REFERENCE);
    let records = fixture::records(&scenario);
    let summary = Summary::of(&scenario, &records).unwrap();
    let comparison = reference::compare(&fixture::reference_rows(), &scenario, &summary);
    let one = compare::Compared { scenario: &scenario, summary: &summary, comparison: &comparison };
    let text = compare::text(&[one], Terminal { width: 100, colour: false });
    for part in [
        "cubic    50 ms  1 ms    0.5 % lost  no proxy       3.60  4.70  ± 0.07   1.30  ± 13.6 %",
        "cubic control, 0.5 % loss  Midspan     23.9 x  18.4 x  yes          yes",
        "10 of 10 cells and variants of the reference's kind measured: median error 3.6 %, worst 30.4 %",
        "the same side wins in 5 of 5 cells, and the factor of",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn simulated_runs_stand_beside_live_ones() {
    let scenario = fixture::scenario(fixture::LATE);
    let live = fixture::records(&scenario);
    let mut simulated = live.clone();
    for record in &mut simulated {
        record.backend = Backend::Sim;
        // Off by half in one cell with the relay, not measured in another.
        match (record.cell["late"].as_str(), record.variant, &mut record.outcome) {
            ("1 %", Variant::Midspan, Outcome::Measured(run)) => {
                fixture::bulk(run).goodput_bps *= 1.5
            }
            ("0 %", _, outcome) => *outcome = fixture::untrusted(),
            _ => {}
        }
    }
    let summary = |records| Summary::of(&scenario, records).unwrap();
    let (simulated, live) = (summary(&simulated), summary(&live));
    let text = beside::text(&scenario, &simulated, &live, Terminal { width: 100, colour: false });
    for part in [
        "10 ms more on some packets: simulated against live\n",
        "1 % late     Midspan       608.8  ± 6.5 Mbit/s   405.9  ± 4.3 Mbit/s    1.50\n",
        "Of 8 cells and variants in both, 7 (87.5 %) within 10 %, 7 (87.5 %) within 25 % and 8 (100 %)",
        "the same side wins in 4 of 4 comparisons.",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("0 % late"), "{text}");
}

#[test]
fn every_scenario_file_fits_a_terminal() {
    for (name, source) in fixture::scenario_files() {
        let scenario = fixture::scenario(&source);
        let records = fixture::records(&scenario);
        let report = Report::new(&scenario, &records).unwrap();
        let text = report.text(Terminal { width: 100, colour: false });
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= 100, "{name}: {widest} columns\n{text}");
        assert!(report.html().len() > 10_000, "{name}");
    }
}
