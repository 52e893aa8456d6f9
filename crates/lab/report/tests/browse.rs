//! Pages of a folder of results: what stands where, whatever is asked for.

mod fixture;

use midspan_report::Report;
use midspan_report::browse::{self, Listed, Pick, Side, State, Sweep};
use midspan_scenario::record::{Outcome, Record, Variant};
use proptest::prelude::*;

fn listed(id: &str, state: State, begun_unix_ms: u64, source: &str, planned: usize) -> Listed {
    let scenario = fixture::scenario(source);
    let records = fixture::records(&scenario);
    let sweep = Ok(Sweep::of(&Report::new(&scenario, &records).unwrap(), planned));
    Listed { id: id.to_owned(), state, begun_unix_ms, sweep }
}

#[test]
fn what_runs_is_first_then_the_newest() {
    let runs = [
        listed("old", State::Finished, 1_000, fixture::DEMO, 18),
        listed("new", State::Unfinished, 3_000, fixture::DEMO, 20),
        listed("now", State::Running, 2_000, fixture::DEMO, 40),
    ];
    let page = browse::list("results", &runs);
    let place = |id: &str| page.find(&format!("/run?id={id}\"")).unwrap();
    assert!(place("now") < place("new") && place("new") < place("old"));
    assert!(page.contains("18 of 40 runs, running") && page.contains("18 of 20 runs, stopped"));
    assert!(page.contains("<progress max=\"40\" value=\"18\""));
    assert_eq!(page.matches("<input type=\"checkbox\"").count(), 3);
}

#[test]
fn names_from_outside_are_text() {
    let evil = "a\"><script>alert(1)</script>&b=c d/e";
    let mut run = listed(evil, State::Finished, 0, fixture::DEMO, 18);
    let page = browse::list(evil, std::slice::from_ref(&run));
    assert_eq!(page.matches("<script").count(), 1, "the program's own");
    assert!(
        page.contains("/run?id=a%22%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E%26b%3Dc+d%2Fe\"")
    );
    run.sweep = Err(evil.to_owned());
    for page in [browse::list("", std::slice::from_ref(&run)), browse::run(&run, None)] {
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.contains("a&quot;&gt;&lt;script&gt;"));
    }
    assert!(!browse::list("", &[run]).contains("<input type=\"checkbox"), "nothing to compare");
    assert!(browse::list("results", &[]).contains("There are no results yet"));
}

/// The page of these records beside others, of one scenario.
fn beside(records: [&[Record]; 2], query: &str) -> String {
    let scenario = fixture::scenario(fixture::LOSS);
    let reports = records.map(|records| Report::new(&scenario, records).unwrap());
    let sides: Vec<Side<'_>> = reports
        .iter()
        .zip(["one", "other"])
        .map(|(report, id)| Side { id, begun_unix_ms: 0, report })
        .collect();
    browse::side_by_side(&sides, &Pick::parse(query))
}

#[test]
fn a_ratio_is_over_the_first_run_and_only_of_numbers() {
    let records = fixture::records(&fixture::scenario(fixture::LOSS));
    let mut twice = records.clone();
    for record in &mut twice {
        let Outcome::Measured(run) = &mut record.outcome else { continue };
        fixture::bulk(run).goodput_bps *= 2.0;
        if record.variant == Variant::Haproxy && record.cell["loss"] == "1 %" {
            record.outcome = Outcome::Failed { reason: "made up".to_owned() };
        }
    }
    let page = beside([&records, &twice], "measure=goodput&through=haproxy");
    assert_eq!(page.matches("<td data-by=\"2\">2.00</td>").count(), 4, "{page}");
    assert_eq!(page.matches("title=\"no run succeeded\"").count(), 1);
    assert_eq!(page.matches("<td class=\"soft\" data-by=\"-1\">–</td>").count(), 1);
    let all = beside([&records, &records], "");
    assert_eq!(all.matches("<td data-by=\"1\">1.00</td>").count(), 15);
    assert!(all.contains("Of 15 cells and variants in both, 15 (100 %) within 10 %"));
}

#[test]
fn runs_of_different_scenarios_meet_where_their_labels_do() {
    let (one, other) = (fixture::scenario(fixture::LOSS), fixture::scenario(fixture::DEMO));
    let records = [fixture::records(&one), fixture::records(&other)];
    let reports =
        [Report::new(&one, &records[0]).unwrap(), Report::new(&other, &records[1]).unwrap()];
    let sides: Vec<Side<'_>> =
        reports.iter().map(|report| Side { id: "it", begun_unix_ms: 0, report }).collect();
    let page = browse::side_by_side(&sides, &Pick::default());
    assert!(page.contains("cells are matched by their labels"));
    // Both axes can be gone along.
    for axis in ["loss", "direction"] {
        assert!(page.contains(&format!("<option value=\"{axis}\"")), "{axis}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn there_is_a_page_whatever_is_picked(
        picks in prop::collection::vec(
            ("measure|along|through|at\\.loss|at\\.x|run|[a-z%&=]{0,5}",
             "goodput|closed|loss|midspan|none|1 %|0\\.5 %|[ -~]{0,8}"),
            0..6,
        ),
    ) {
        let query: Vec<String> =
            picks.iter().map(|(name, value)| format!("{name}={}", value.replace('%', "%25"))).collect();
        let records = fixture::records(&fixture::scenario(fixture::LOSS));
        let page = beside([&records, &records[..7]], &query.join("&"));
        prop_assert!(page.contains("</html>") && page.contains("<svg") && !page.contains("NaN"));
        prop_assert_eq!(page.matches("<script").count(), 1);
    }
}
