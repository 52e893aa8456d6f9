use std::path::{Path, PathBuf};

use midspan_scenario::{Cell, Scenario};

use crate::sweep::PlannedRun;

/// Where a run's files of packets and events are: a folder in `base` that is no other run's.
pub(crate) fn run_folder(base: &Path, scenario: &Scenario, run: &PlannedRun<'_>) -> PathBuf {
    let PlannedRun { cell, variant, repetition } = *run;
    let mut folder = base.to_owned();
    if !cell.labels.is_empty() {
        folder.push(folder_of(scenario.cells(), cell));
    }
    folder.push(format!("{variant}-{}", repetition + 1));
    folder
}

/// What a run is, for people.
pub(crate) fn run_title(scenario: &Scenario, run: &PlannedRun<'_>) -> String {
    let PlannedRun { cell, variant, repetition } = *run;
    let mut words = vec![format!("scenario {}", scenario.name)];
    words.extend(cell.labels.iter().map(|(axis, label)| format!("{axis} {label}")));
    words.push(format!("variant {variant}, repetition {}", repetition + 1));
    words.join(", ")
}

/// The name of a cell's folder, which is no other cell's.
fn folder_of(cells: &[Cell], cell: &Cell) -> String {
    let name = folder_name(cell);
    let before = cells.iter().take_while(|other| other.labels != cell.labels);
    match before.filter(|other| folder_name(other) == name).count() {
        0 => name,
        others => format!("{name}-{}", others + 1),
    }
}

/// Axes and labels without what shells and file systems take for something else.
fn folder_name(cell: &Cell) -> String {
    let plain = |text: &str| -> String {
        let kept = text.chars().filter(|letter| !letter.is_whitespace());
        kept.map(|letter| match letter {
            _ if letter.is_alphanumeric() || "%+-._".contains(letter) => letter,
            _ => '_',
        })
        .collect()
    };
    let names = cell.labels.iter().map(|(axis, label)| format!("{}={}", plain(axis), plain(label)));
    names.collect::<Vec<_>>().join(",")
}
