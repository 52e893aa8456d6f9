//! The page: it holds everything, escapes everything and needs nothing.

mod fixture;

use midspan_report::gain::{self, Effect, Hour, Judgement};
use midspan_report::{Report, compare};
use midspan_scenario::record::{BusyRecord, Outcome, Record, Variant};
use midspan_scenario::reference;
use midspan_scenario::summary::Summary;

/// The page of a made-up scenario, with everything that a page can have.
fn page(source: &str, records: &[Record]) -> String {
    let scenario = fixture::scenario(source);
    let machine = fixture::machine();
    let explanations = ["Because <this> & that.".to_owned()];
    let mut report = Report::new(&scenario, records).unwrap();
    report.source = Some(source);
    report.machine = Some(&machine);
    report.explanations = &explanations;
    report.html()
}

fn full(source: &str) -> String {
    page(source, &fixture::records(&fixture::scenario(source)))
}

#[test]
fn every_page_is_well_formed_and_needs_nothing_from_outside() {
    for source in fixture::ALL {
        for page in [full(source), page(source, &[])] {
            assert_balanced(&page);
            // The namespace of drawings is a name, and nothing that is fetched.
            let page = page.replace("http://www.w3.org/2000/svg", "");
            for outside in ["http", "src=", "url(", "@import", "<link", "NaN"] {
                assert!(!page.contains(outside), "{outside} in {source}");
            }
            assert_eq!(page.matches("<script").count(), 1, "its own, for tables");
        }
    }
}

#[test]
fn what_was_run_where_and_why_it_differs_is_there() {
    let page = full(fixture::LOSS);
    for part in [
        "mec 3a",
        "Linux 6.18.0 x86_64",
        "Made-up CPU at 3.0 GHz, 2 cores, 8 GB of memory",
        "haproxy 2.6.12",
        "75 measured",
        "2026-11-21 00:05 UTC",
        "65.0 times faster than no proxy at 1 % loss (upload)",
        "Because &lt;this&gt; &amp; that.",
        "The paper does not state its queue limits",
        "stated in the text beside the figure",
        "loss = [&quot;0 %&quot;, &quot;0.05 %&quot;",
        "paper: 136.21 Mbit/s",
        "paper: gain 17.4 x",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn text_from_outside_is_escaped() {
    let page = full(fixture::SINGLE);
    assert!(page.contains("&lt;one&gt; cell &amp; &quot;quotes&quot;"));
    assert!(!page.contains("<one>"));
    let scenario = fixture::scenario(fixture::DEMO);
    let mut records = fixture::records(&scenario);
    let reason = "</td><b onclick=\"x\">".to_owned();
    records[0].outcome = Outcome::Failed { reason };
    assert!(!self::page(fixture::DEMO, &records).contains("<b onclick"));
}

#[test]
fn every_run_is_there_even_when_it_was_repeated() {
    let scenario = fixture::scenario(fixture::DEMO);
    let mut records = fixture::records(&scenario);
    let mut first_attempt = records[0].clone();
    first_attempt.outcome = fixture::untrusted();
    records.insert(0, first_attempt);
    let page = page(fixture::DEMO, &records);
    let rows = page.matches("2026-11-21 00:").count();
    // Each run's row, and the two ends of the span in which all ran.
    assert_eq!(rows, records.len() + 2);
    assert!(page.contains("emulator p99 lateness 240 us, limit 100 us"));
    assert!(page.contains("9 of 10 runs measured"));
    assert!(page.contains("18 measured of 18 planned"), "the repeated run counts once");
}

#[test]
fn legs_say_what_they_waited_for_where_it_is_known() {
    let scenario = fixture::scenario(fixture::DEMO);
    let mut records = fixture::records(&scenario);
    assert!(!page(fixture::DEMO, &records).contains("waiting for the window"), "nobody knows it");
    let Outcome::Measured(measured) = &mut records[0].outcome else { panic!("not measured") };
    measured.legs[0].busy =
        Some(BusyRecord { busy_us: 12_345_000, rwnd_limited_us: 5_040_000, sndbuf_limited_us: 0 });
    let page = page(fixture::DEMO, &records);
    assert_eq!(page.matches("waiting for the window").count(), 1, "a column of one cell's table");
    let times = |row: &str| row.contains(">12.3 s<") && row.contains(">5.04 s<");
    assert_eq!(page.split("<tr>").filter(|row| times(row)).count(), 1);
}

#[test]
fn a_cell_that_cannot_be_measured_has_no_number() {
    let scenario = fixture::scenario(fixture::DEMO);
    let mut records = fixture::records(&scenario);
    for record in records.iter_mut().filter(|record| record.cell["direction"] == "upload") {
        if record.repetition == 0 {
            record.outcome = fixture::untrusted();
        }
    }
    let page = page(fixture::DEMO, &records);
    assert!(page.contains("(upload): not measurable here: 3 of 9 runs untrusted: emulator p99"));
    // The whole scenario has more than a tenth of untrusted runs, too: the verdict gives no number.
    assert!(page.contains("Not measurable here: 3 of 18 runs untrusted"));
    assert!(!page.contains("times faster"));
    assert_eq!(page.matches("not measurable here</text>").count(), 3);
}

#[test]
fn plots_show_each_run_and_each_size() {
    let page = full(fixture::LOSS);
    // One more in the legend.
    assert_eq!(page.matches("class=\"run\"").count(), 75 + 1);
    assert_eq!(page.matches("class=\"bar ").count(), 15);
    let page = full(fixture::SIZES);
    // Three variants in three panels in two rows.
    assert_eq!(page.matches("class=\"series ").count(), 3 * 3 * 2);
    assert_eq!(page.matches("Time to orderly close: ").count(), 2, "one description a panel");
}

#[test]
fn runs_with_series_are_lines_over_time() {
    let scenario = fixture::scenario(fixture::DEMO);
    let mut records = fixture::records(&scenario);
    assert!(!page(fixture::DEMO, &records).contains("Over time"));
    for record in &mut records {
        fixture::give_series(record);
    }
    // The first run of one variant has no number: its second is shown.
    let upload = |record: &&mut Record| {
        record.cell["direction"] == "upload" && record.variant == Variant::Midspan
    };
    records.iter_mut().find(upload).unwrap().outcome =
        Outcome::Failed { reason: "made up".to_owned() };
    let page = page(fixture::DEMO, &records);
    assert_balanced(&page);
    let section = page.split("<h2>Over time</h2>").nth(1).unwrap().split("<h2>").next().unwrap();
    // Three variants in two cells, of which the first is open.
    assert_eq!(section.matches("<svg").count(), 6);
    assert_eq!(
        (section.matches("<details").count(), section.matches("<details open").count()),
        (2, 1)
    );
    assert_eq!(section.matches("Midspan, run 2</h4>").count(), 1);
    assert_eq!(section.matches(", run 1</h4>").count(), 5);
    for panel in ["Congestion window, segments", "Delivery rate, Mbit/s", "Waiting on the links"] {
        assert_eq!(section.matches(panel).count(), 6, "{panel}");
    }
    // A proxy's two legs, and one without.
    assert_eq!(section.matches(">server leg, sent by the proxy<").count(), 2);
    assert_eq!(section.matches(">end to end<").count(), 2);
}

#[test]
fn many_cells_are_a_map_with_the_worst_marked() {
    // 5 x 3 cells at each of two distances.
    let many = fixture::LATE
        .replace(
            "late = [",
            "far = [\"20 ms\", \"24 ms\"]\nrtt = [\"1 ms\", \"9 ms\", \"49 ms\"]\nlate = [",
        )
        .replace("{ delay = \"0.5 ms\" }]\n\n", "{ delay = \"$rtt\" }]\n\n")
        .replace("delay = \"24.5 ms\"", "delay = \"$far\"");
    let scenario = fixture::scenario(&many);
    let mut records = fixture::records(&scenario);
    // One cell is worse than all others, and one has no number.
    for record in &mut records {
        let at = |late: &str, rtt: &str, far: &str| {
            record.cell["late"] == late && record.cell["rtt"] == rtt && record.cell["far"] == far
        };
        let (worst, untrusted) = (at("0.1 %", "9 ms", "24 ms"), at("0 %", "1 ms", "20 ms"));
        if let (true, Outcome::Measured(run)) = (worst, &mut record.outcome) {
            let is_proxied = record.variant == Variant::Midspan;
            fixture::bulk(run).goodput_bps = if is_proxied { 1e6 } else { 90e6 };
        }
        if untrusted {
            record.outcome = fixture::untrusted();
        }
    }
    let page = page(&many, &records);
    assert_balanced(&page);
    let map = page.split("Gain in all cells").nth(1).unwrap().split("<h2>").next().unwrap();
    assert_eq!(map.matches("<table class=\"heat\">").count(), 2, "one for each distance");
    let squares = ["faster", "slower", "even", "missing"]
        .map(|class| map.matches(&format!("<td class=\"{class}")).count());
    assert_eq!(squares.iter().sum::<usize>(), 5 * 3 * 2, "{map}");
    assert_eq!(squares[3], 1, "{map}");
    let worst: Vec<&str> = map.split("<td ").filter(|part| part.contains(">worst<")).collect();
    let [worst] = worst.as_slice() else { panic!("{worst:?}") };
    assert!(worst.contains("slower-4 worst") && worst.contains("0.0111 x"), "{worst}");
    // Few cells, or one axis, are no map.
    for source in [fixture::LOSS, fixture::LATE, fixture::DEMO, fixture::SINGLE] {
        assert!(!full(source).contains("Gain in all cells"));
    }
}

#[test]
fn a_run_of_many_transfers_has_one_row() {
    let few = full(fixture::SIZES);
    assert!(few.contains("Transfers, timed from") && !few.contains("Transfers of each run"));
    let source = fixture::SIZES.replace("count = 3", "count = 1234");
    let (records, page) = (fixture::records(&fixture::scenario(&source)), full(&source));
    assert!(page.contains("Transfers of each run") && !page.contains("Transfers, timed from"));
    assert_eq!(page.matches(">1\u{2009}234</td>").count(), records.len());
    assert_balanced(&page);
}

#[test]
fn the_comparison_of_several_scenarios_is_a_page() {
    let scenario = fixture::scenario(fixture::REFERENCE);
    let records = fixture::records(&scenario);
    let rows = fixture::reference_rows();
    let summary = Summary::of(&scenario, &records).unwrap();
    let comparison = reference::compare(&rows, &scenario, &summary);
    let one = compare::Compared { scenario: &scenario, summary: &summary, comparison: &comparison };
    let page = compare::page("Two at once", &[one, one]);
    assert_balanced(&page);
    assert!(page.contains("20 of 20 cells and variants of the reference's kind measured"));
    assert_eq!(page.matches("class=\"series ").count(), 20);
    assert_balanced(&compare::page("None", &[]));
}

/// Of one in `of`, with bounds unless it is not known.
fn effect(of: &str, verdict: Judgement) -> Effect {
    let times = match verdict {
        Judgement::Faster => Some([1.3, 1.47, 1.69]),
        Judgement::Slower => Some([0.6, 0.69, 0.78]),
        Judgement::NoSlower => Some([0.98, 1.0, 1.03]),
        Judgement::Unknown => None,
    };
    let [at_least, gain, at_most] = [0, 1, 2].map(|at| times.map(|times| times[at]));
    Effect { of: of.to_owned(), split: 1130, held_out: 1128, gain, at_least, at_most, verdict }
}

#[test]
fn gains_are_a_page_with_a_line_for_each_bound() {
    let all = effect("all", Judgement::Faster);
    let sizes = ["10 to 100 kB", "1 to 10 MB"].map(|of| effect(of, Judgement::NoSlower));
    let services = [
        effect("192.0.2.10", Judgement::Faster),
        effect("2001:db8:1234:5678:9abc:def0:1234:5678", Judgement::Slower),
        effect("<b>", Judgement::Unknown),
        effect("203.0.113.77", Judgement::Unknown),
    ];
    let hours: Vec<Hour> = (0..200)
        .map(|number| Hour {
            start: 1_795_586_400 + 3600 * number,
            effect: effect("an hour", Judgement::Faster),
        })
        .collect();
    let notes = ["3 connections <carried> nothing".to_owned()];
    let full = gain::Page {
        source: "flows & more",
        all: Some(&all),
        sizes: &sizes,
        services: &services,
        prefixes: &[],
        most: 3,
        hours: &hours,
        notes: &notes,
    };
    let none = gain::Page { all: None, sizes: &[], services: &[], hours: &[], notes: &[], ..full };
    for page in [&full, &none].map(gain::Page::html) {
        assert_balanced(&page);
        for outside in ["http", "src=", "url(", "@import", "<script", "<link", "NaN", "inf"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
    let page = full.html();
    // All and two sizes, two servers of which anything is known, and a week.
    assert_eq!(page.matches("class=\"span\"").count(), 3 + 2 + 168);
    for part in [
        "Splitting is 1.47 times faster, 1.30 to 1.69",
        "It is slower to these servers: 2001:db8:1234:5678:9abc:def0:1234:5678.",
        "class=\"verdict poor\"",
        "1.47 x (1.30 to 1.69)",
        "&lt;b&gt;",
        "1 more are not shown",
        "flows &amp; more",
        "3 connections &lt;carried&gt; nothing.",
        // The first 32 hours are too many.
        "11-26 14:00",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("203.0.113.77") && !page.contains("11-25 06:00"));
}

/// Every tag that is opened is closed, in order.
fn assert_balanced(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let start = page.find("</style>").expect("a style sheet") + "</style>".len();
    // A script is no markup.
    let (before, script) = page[start..].split_once("<script>").unwrap_or((&page[start..], ""));
    let after = script.split_once("</script>").map_or("", |(_, after)| after);
    let tags = before.split('<').skip(1).chain(after.split('<').skip(1));
    for tag in tags {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        match tag.strip_prefix('/') {
            Some("head" | "body" | "html") => {}
            Some(name) => assert_eq!(open.pop(), Some(name), "</{name}>"),
            None => {
                let name = tag.split_whitespace().next().expect("a tag has a name");
                if name != "body" {
                    open.push(name);
                }
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
}
