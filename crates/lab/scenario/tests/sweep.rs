//! Cells are the product of the axes; digests and seeds hang on what determines results only.

use std::collections::BTreeSet;

use midspan_scenario::{Buffers, Bulk, Direction, Scenario, ServiceHost, Workload};
use proptest::prelude::*;

const PATH: &str = r#"
[path.access]
up = [{ loss = { share = "0.5 %" } }, { delay = "0.5 ms" }]
down = [{ delay = "0.5 ms" }]
[path.wide]
up = [{ delay = "24.5 ms" }]
down = [{ delay = "24.5 ms" }]
"#;

const HEAD: &str = "name = \"x\"\ntitle = \"X\"\nvariants = [\"none\", \"midspan\"]\n";
const BULK: &str = "[workload]\nkind = \"bulk\"\ndirection = \"upload\"\ntime = \"2 s\"\n";

fn parse(text: &str) -> Scenario {
    Scenario::parse(text, "x.toml").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn defaults() {
    let scenario = parse(&format!("{HEAD}{PATH}{BULK}"));
    assert_eq!((scenario.seed, scenario.repetitions), (1, 1));
    assert!(scenario.short().is_none() && scenario.axes.is_empty());
    let [cell] = scenario.cells() else { panic!("one cell without a sweep") };
    assert!(cell.labels.is_empty());
    let spec = &cell.spec;
    assert_eq!(spec.hosts.ue.congestion_control, "cubic");
    assert_eq!(spec.hosts.server.buffers, Buffers::DEFAULT);
    assert_eq!(spec.service.at, ServiceHost::Server);
    let Workload::Bulk(Bulk { direction, flows, .. }) = spec.workload else { panic!("bulk") };
    assert_eq!((direction, flows), (Direction::Upload, 1));
}

#[test]
fn the_last_axis_turns_fastest_and_axes_keep_the_files_order() {
    let text = format!(
        "{HEAD}{}{BULK}flows = \"$flows\"\n[sweep]\nloss = [\"0 %\", \"1 %\"]\nflows = [1, 2]\n",
        PATH.replace("\"0.5 %\"", "\"$loss\"")
    );
    let scenario = parse(&text);
    let order: Vec<String> = scenario
        .cells()
        .iter()
        .map(|cell| format!("{} {}", cell.labels["loss"], cell.labels["flows"]))
        .collect();
    assert_eq!(order, ["0 % 1", "0 % 2", "1 % 1", "1 % 2"]);
    assert_eq!(scenario.axes[0].name, "loss");
}

fn swept(lengths: &[usize], tail: &str) -> String {
    // One delay element for each axis, so that each is used.
    let used: String =
        (0..lengths.len()).map(|axis| format!("{{ delay = \"$a{axis}\" }},")).collect();
    let path = PATH.replacen("up = [", &format!("up = [{used}"), 1);
    let axes: String = lengths
        .iter()
        .enumerate()
        .map(|(axis, length)| {
            let points: String = (0..*length).map(|point| format!("\"{point} ms\",")).collect();
            format!("a{axis} = [{points}]\n")
        })
        .collect();
    format!("{HEAD}{path}{BULK}[sweep]\n{axes}{tail}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn cells_are_the_product_of_the_axes(
        lengths in proptest::collection::vec(1usize..5, 0..4),
        repetition in 0u32..5,
    ) {
        let scenario = parse(&swept(&lengths, ""));
        let cells = scenario.cells();
        prop_assert_eq!(cells.len(), lengths.iter().product::<usize>());
        let labels: BTreeSet<_> = cells.iter().map(|cell| &cell.labels).collect();
        prop_assert_eq!(labels.len(), cells.len());
        let seeds: BTreeSet<u64> =
            cells.iter().map(|cell| scenario.run_seed(cell, repetition)).collect();
        prop_assert_eq!(seeds.len(), cells.len());
    }

    #[test]
    fn no_text_panics(text in "[a-z\\[\\]{}=\"$.%0-9 \n]{0,200}") {
        let _ = Scenario::parse(&text, "x.toml");
        let _ = Scenario::parse(&format!("{HEAD}{PATH}{BULK}{text}"), "x.toml");
    }

    #[test]
    fn a_cut_file_is_refused_or_whole(cut in 0usize..600) {
        let text = swept(&[2, 3], "");
        if let Ok(read) = Scenario::parse(text.get(..cut).unwrap_or(&text), "x.toml") {
            prop_assert_eq!(read.digest(), parse(&text).digest());
        }
    }
}

#[test]
fn a_sweep_without_end_is_refused() {
    let error = Scenario::parse(&swept(&[101, 100], ""), "x.toml").unwrap_err();
    assert!(error.what.contains("10100 cells; at most 10000"), "{error}");
}

#[test]
fn skips_take_runs_out() {
    let skip = |body: &str| parse(&swept(&[2, 2], &format!("[[skip]]\nbecause = \"x\"\n{body}\n")));
    let without_midspan = skip("cell = { a0 = [\"0 ms\"] }\nvariants = [\"midspan\"]");
    let variants: Vec<usize> =
        without_midspan.cells().iter().map(|cell| cell.variants.len()).collect();
    assert_eq!(variants, [1, 1, 2, 2]);
    assert_eq!(skip("cell = { a0 = [\"0 ms\"], a1 = [\"1 ms\"] }").cells().len(), 3);
}

#[test]
fn the_digest_follows_what_determines_results() {
    let text = swept(&[2], "");
    let digest = parse(&text).digest();
    assert_eq!(digest.len(), 16);
    for (from, to) in [
        ("\"0.5 %\"", "\"0.6 %\""),
        ("2 s", "3 s"),
        ("upload", "download"),
        ("\"1 ms\",]", "\"3 ms\",]"),
        ("title = \"X\"", "title = \"X\"\nseed = 2"),
        ("[workload]", "[hosts]\nue = { buffers = \"max\" }\n[workload]"),
        ("[workload]", "[relay]\nbuffer = \"1 MiB\"\n[workload]"),
    ] {
        assert!(text.contains(from), "{from}");
        assert_ne!(parse(&text.replacen(from, to, 1)).digest(), digest, "{to}");
    }
    let reported = "[[reported]]\nvariants = [\"none\"]\ngoodput = \"1 Mbit/s\"\n";
    for same in [
        text.replace("title = \"X\"", "title = \"Y\"\nfigure = \"mec 3a\"\nrepetitions = 9"),
        text.replace("\"none\", \"midspan\"", "\"none\""),
        // Another way to write the same.
        text.replace("\"0.5 %\"", "\"0.50 %\"").replace("2 s", "2000 ms"),
        format!("{text}{reported}"),
        format!("# a comment\n{text}"),
    ] {
        assert_eq!(parse(&same).digest(), digest, "{same}");
    }
}

/// Results are compared across versions of this program: these must not change by accident.
#[test]
fn seeds_are_stable() {
    let scenario = parse(&swept(&[2], ""));
    let seeds: Vec<u64> = scenario.cells().iter().map(|cell| scenario.run_seed(cell, 0)).collect();
    assert_eq!(seeds, [12_448_657_267_845_001_817, 14_681_955_765_854_979_197]);
    assert_ne!(scenario.run_seed(&scenario.cells()[0], 1), seeds[0]);
}

#[test]
fn a_point_that_is_added_leaves_the_others_seeds_alone() {
    let (few, more) = (parse(&swept(&[2], "")), parse(&swept(&[3], "")));
    for (a, b) in few.cells().iter().zip(more.cells()) {
        assert_eq!(few.run_seed(a, 3), more.run_seed(b, 3));
    }
}
