//! A report's tables ([`crate::Report::text`]) read back: of simulated runs the summary is what is kept.

use midspan_scenario::record::Variant;
use midspan_scenario::{Metric, Scenario};

use super::values::Number;
use crate::view::variant_name;
use midspan_units::number::Quantity;

/// One number of a table.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its cell's place in the scenario.
    pub(super) cell: usize,
    pub(super) variant: Variant,
    pub(super) number: Number,
}

/// The numbers of the table of `metric`; none if there is no such table.
///
/// # Errors
/// A line that is not of a report on `scenario`.
pub(super) fn table(
    scenario: &Scenario,
    metric: &'static Metric,
    text: &str,
) -> Result<Vec<Entry>, String> {
    let is_caption = |line: &&str| {
        let rest = line.strip_prefix(metric.title);
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with(": mean ±") || rest.starts_with(", Mbit/s")
        })
    };
    let mut lines = text.lines().skip_while(|line| !is_caption(line)).skip(1);
    let Some(header) = lines.next() else { return Ok(Vec::new()) };
    let header: Vec<char> = header.chars().collect();
    let columns = columns(scenario, &header)?;
    let mut rows =
        lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("  paper"));
    let mut entries = Vec::new();
    for (cell, spread) in scenario.cells().iter().enumerate() {
        let row = rows.next().ok_or_else(|| format!("{}: a cell has no row", metric.title))?;
        for axis in &scenario.axes {
            let label = spread.labels.get(&axis.name).map_or("", String::as_str);
            if !row.contains(label) {
                return Err(format!("{}: `{row}` is not of {} {label}", metric.title, axis.name));
            }
        }
        let row: Vec<char> = row.chars().collect();
        for (variant, end) in &columns {
            if let Some(number) = number(&row, *end, metric.quantity) {
                entries.push(Entry { cell, variant: *variant, number });
            }
        }
    }
    Ok(entries)
}

/// Where each variant's column ends: names and numbers stand on its right.
fn columns(scenario: &Scenario, header: &[char]) -> Result<Vec<(Variant, usize)>, String> {
    let mut from = 0;
    let mut columns = Vec::new();
    for variant in &scenario.variants {
        let name: Vec<char> = variant_name(*variant).chars().collect();
        let at = header[from..].windows(name.len()).position(|window| window == name);
        let at = at.ok_or_else(|| format!("no column of {}", variant_name(*variant)))?;
        from += at + name.len();
        columns.push((*variant, from));
    }
    Ok(columns)
}

/// The number that ends before the column `end`, with the deviation and the unit behind it.
fn number(row: &[char], end: usize, quantity: Quantity) -> Option<Number> {
    let before: String = row.get(..end)?.iter().collect();
    let mean: f64 = before.split_whitespace().last()?.parse().ok()?;
    let behind: String = row[end..].iter().collect();
    let mut words = behind.split_whitespace().peekable();
    let deviation = match words.next_if_eq(&"±") {
        Some(_) => words.next()?.parse().ok()?,
        None => 0.0,
    };
    let scale = match (quantity, words.next()) {
        (Quantity::Rate, _) => 1e6,
        (Quantity::Duration, Some("s")) => 1.0,
        (Quantity::Duration, Some("ms")) => 1e-3,
        (Quantity::Duration, Some("us")) => 1e-6,
        (Quantity::Duration, _) => return None,
        (Quantity::Size | Quantity::Count | Quantity::Index, _) => 1.0,
    };
    Some(Number { mean: mean * scale, deviation: deviation * scale })
}
