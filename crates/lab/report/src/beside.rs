//! Results of one scenario from two backends as text: cell by cell, and how far off.

use midspan_scenario::Scenario;
use midspan_scenario::beside::Beside;
use midspan_scenario::record::Backend;
use midspan_scenario::summary::Summary;

use crate::Terminal;
use crate::grid::{Cell, Grid, Look, painted, wrapped};
use crate::view::{cell_name, variant_name};
use midspan_units::number::{factor, percent};

/// A line for each cell and variant that both have, and how far off they are in sentences. Ends in a
/// newline.
pub fn text(scenario: &Scenario, ours: &Summary, theirs: &Summary, terminal: Terminal) -> String {
    let beside = Beside::of(ours, theirs);
    let (ours, theirs) = names(ours, theirs);
    let mut out = format!("{}: {ours} against {theirs}\n", scenario.title);
    out.push_str(&lines(scenario, &beside, [&ours, &theirs], terminal));
    out.push('\n');
    for sentence in sentences(&beside) {
        let sentence = wrapped(&sentence, terminal.width, 0);
        out.push_str(&painted(&sentence, Look::Bold, terminal.colour));
        out.push('\n');
    }
    out
}

/// What to call the two.
fn names(ours: &Summary, theirs: &Summary) -> (String, String) {
    let name = |summary: &Summary| match summary.backend {
        Some(Backend::Sim) => "simulated",
        _ => "live",
    };
    match (name(ours), name(theirs)) {
        (one, other) if one == other => (format!("these, {one}"), format!("others, {other}")),
        (one, other) => (one.to_owned(), other.to_owned()),
    }
}

fn lines(scenario: &Scenario, beside: &Beside, names: [&str; 2], terminal: Terminal) -> String {
    let mut grid = Grid::default();
    let [ours, theirs] = names.map(|name| Cell::right(name).look(Look::Dim));
    let dim = |text| Cell::left(text).look(Look::Dim);
    let ratio = Cell::right("ratio").look(Look::Dim);
    grid.push(vec![dim("cell"), dim("through"), ours, Cell::empty(), theirs, Cell::empty(), ratio]);
    for twin in &beside.pairs {
        let quantity = twin.of.quantity;
        let mut row = vec![
            Cell::left(cell_name(scenario, &twin.labels)),
            Cell::left(variant_name(twin.variant)),
        ];
        for stats in [twin.ours, twin.theirs] {
            let spread = stats.deviation.map(|deviation| quantity.spread(deviation, stats.mean));
            let spread = spread.map(|spread| format!("± {spread}")).unwrap_or_default();
            row.push(Cell::right(quantity.digits(stats.mean)));
            let unit = quantity.unit_of(stats.mean);
            row.push(Cell::left(format!("{spread} {unit}").trim()).look(Look::Dim));
        }
        let look = if twin.error() <= 0.25 { Look::Plain } else { Look::Bold };
        row.push(Cell::right(factor(twin.ratio())).look(look));
        grid.push(row);
    }
    grid.render(terminal.colour)
}

/// How far off they are.
pub(crate) fn sentences(beside: &Beside) -> Vec<String> {
    let Some(errors) = beside.errors() else {
        return vec!["No cell was measured in both.".to_owned()];
    };
    let share = |count: usize| format!("{count} ({})", percent(count as f64 / errors.n as f64));
    let mut sentences = vec![format!(
        "Of {} cells and variants in both, {} within 10 %, {} within 25 % and {} within a factor of 2; \
         median error {}, 90th percentile {}, worst {}.",
        errors.n,
        share(errors.within_10),
        share(errors.within_25),
        share(errors.within_twice),
        percent(errors.median),
        percent(errors.p90),
        percent(errors.worst),
    )];
    if !beside.gains.is_empty() {
        let same = beside.gains.iter().filter(|gain| gain.same_winner()).count();
        sentences.push(format!(
            "With or without a proxy, the same side wins in {same} of {} comparisons.",
            beside.gains.len()
        ));
    }
    sentences
}
