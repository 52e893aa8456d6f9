//! The table of metrics, and what is written of it.

use std::collections::BTreeSet;

use midspan_scenario::metric::{Better, METRICS, Metric, Shown};

#[test]
fn a_metric_is_told_by_its_name_its_key_and_its_title() {
    let columns = METRICS.iter().filter_map(|metric| Some(metric.column?.0)).collect::<Vec<_>>();
    for all in [
        METRICS.iter().map(|metric| metric.name).collect::<Vec<_>>(),
        METRICS.iter().map(|metric| metric.key).collect(),
        METRICS.iter().map(|metric| metric.title).collect(),
        columns,
    ] {
        let different: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
        assert!(!different.contains(""));
    }
    for metric in METRICS {
        assert!(!metric.meaning.is_empty(), "{}", metric.name);
        assert_eq!(Metric::named(metric.name), Some(metric));
    }
    assert_eq!(Metric::named("nonesuch"), None);
}

#[test]
fn a_factor_above_one_is_better_either_way() {
    let factor = |name| Metric::named(name).unwrap().factor(10.0, 2.0);
    assert_eq!((factor("goodput"), factor("queueing95")), (5.0, 0.2));
}

#[test]
fn the_documentation_has_the_table() {
    let text = include_str!("../../../../docs/reference/results.md");
    let (_, section) = text.split_once("\n## Metrics\n").expect("it has a section on metrics");
    let section = section.split("\n## ").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with('|'));
    let documented: String = lines.map(|line| format!("{line}\n")).collect();
    assert_eq!(documented, table(), "docs/reference/results.md is to have this:\n{}", table());
}

fn table() -> String {
    let rows = METRICS.iter().map(|metric| {
        let Metric { name, key, title, meaning, .. } = metric;
        let better = match metric.better {
            Better::More => "more",
            Better::Less => "less",
        };
        let shown = if matches!(metric.shown, Shown::Never) { "" } else { title };
        format!("| `{name}` | `{key}` | {better} | {shown} | {meaning} |\n")
    });
    let head = "| name | in `summary.json` | better | a report's table | what it is |\n|---|---|---|---|---|\n";
    head.to_owned() + &rows.collect::<String>()
}
