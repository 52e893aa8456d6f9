//! What operators are given beside the program speaks of what there is: metrics, verdicts, pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words of letters, digits and `_`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
}

/// The metrics that a text names.
fn metrics(text: &str) -> BTreeSet<&str> {
    let is_metric = |word: &&str| word.starts_with("midspan_") || word.starts_with("process_");
    words(text).filter(is_metric).collect()
}

/// The metrics that docs/reference/metrics.md has, with what histograms are made of.
fn documented(page: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.split(" | ").collect();
        let is_histogram = cells.get(1).is_some_and(|kind| *kind == "histogram");
        for name in metrics(cells[0]) {
            names.insert(name.to_owned());
            if is_histogram {
                names.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}")));
            }
        }
    }
    names
}

/// What queries a dashboard makes.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(text) if key == "expr" || key == "query" => found.push(text.to_owned()),
                    _ => queries(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

/// Those of the dashboard and of the rules, a text each.
fn expressions() -> [String; 2] {
    let mut of_dashboard = Vec::new();
    queries(&dashboard(), &mut of_dashboard);
    assert!(of_dashboard.len() > 40, "{of_dashboard:?}");
    [of_dashboard.join("\n"), read(RULES)]
}

const RULES: &str = "packaging/prometheus/midspan.rules.yml";

fn dashboard() -> Value {
    serde_json::from_str(&read("packaging/grafana/midspan.json")).unwrap()
}

/// The names of the rules' alerts.
fn alerts(rules: &str) -> Vec<&str> {
    rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

#[test]
fn dashboard_and_rules_name_metrics_that_there_are() {
    let documented = documented(&read("docs/reference/metrics.md"));
    assert!(documented.contains("midspan_steer_completion_seconds_bucket"), "{documented:?}");
    assert!(!documented.contains("midspan_relay_flows_active_bucket"), "{documented:?}");
    for text in expressions() {
        let named = metrics(&text);
        assert!(named.len() > 20, "{named:?}");
        let unknown: Vec<_> = named.iter().filter(|name| !documented.contains(**name)).collect();
        assert!(unknown.is_empty(), "docs/reference/metrics.md does not have {unknown:?}");
    }
}

#[test]
fn dashboard_and_rules_name_verdicts_that_there_are() {
    let page = read("docs/reference/relay.md");
    let mut seen = 0;
    for text in expressions() {
        for matcher in text.split("verdict=").skip(1) {
            let values = matcher.trim_start_matches('~');
            let quote = values.chars().next().unwrap();
            let values = values[1..].split(quote).next().unwrap();
            for verdict in values.split('|').filter(|verdict| *verdict != "pass_.*") {
                seen += 1;
                assert!(
                    page.contains(&format!("`{verdict}`")),
                    "docs/reference/relay.md lacks {verdict}"
                );
            }
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn each_alert_is_tested_and_says_what_to_do() {
    let (rules, tests, page) =
        (read(RULES), read("packaging/prometheus/midspan.test.yml"), read("docs/howto/operate.md"));
    let alerts = alerts(&rules);
    assert!(alerts.len() > 20, "{alerts:?}");
    for alert in alerts {
        let name = format!("alertname: {alert}\n");
        assert!(
            tests.split(&name).skip(1).any(|after| after.trim_start().starts_with("exp_alerts:")),
            "nothing in midspan.test.yml has {alert} fire"
        );
        assert!(page.contains(&format!("### {alert}\n")), "docs/howto/operate.md lacks {alert}");
        let runbook = format!("docs/howto/operate.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&runbook), "the rules lack {runbook}");
    }
}

#[test]
fn panels_of_the_dashboard_have_their_own_places() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{}", panel["title"]);
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "{} lies over another", panel["title"]);
            }
        }
    }
}

#[test]
fn units_name_pages_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    for entry in fs::read_dir(root.join("packaging")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "service") {
            continue;
        }
        for line in fs::read_to_string(&path).unwrap().lines() {
            let Some(page) = line.strip_prefix("Documentation=file:///usr/share/doc/midspan/")
            else {
                continue;
            };
            seen += 1;
            assert!(root.join("docs").join(page).exists(), "{} names {page}", path.display());
        }
    }
    assert!(seen >= 4, "{seen}");
}
