//! `midspan relay decisions`: how often a running relay splits where, and why.

use midspan_observe::admin::{Decided, Decisions};

use super::columns::aligned;

/// Which rows are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    /// How many, those of which most is known first.
    pub(super) most: usize,
    /// Only those that are not simply split.
    pub(super) unusual: bool,
}

impl Default for Rows {
    fn default() -> Self {
        Rows { most: 20, unusual: false }
    }
}

const HEADINGS: [&str; 7] =
    ["connections to", "split", "gain", "at least", "at most", "told by", "splitting is"];

pub(super) fn text(decisions: &Decisions, rows: Rows) -> String {
    let is_shown = |one: &&Decided| one.level == "all" || !rows.unusual || one.because != "fine";
    let mut decided: Vec<&Decided> = decisions.decided.iter().filter(is_shown).collect();
    // All together come first anyway.
    decided.sort_by(|one, other| {
        let key = |one: &Decided| (one.level != "all", -one.weight);
        let (one, other) = (key(one), key(other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    let more = decided.len().saturating_sub(rows.most.saturating_add(1));
    decided.truncate(rows.most.saturating_add(1));
    let cells: Vec<[String; 7]> = std::iter::once(HEADINGS.map(str::to_owned))
        .chain(decided.iter().map(|one| cells(one)))
        .collect();
    let mut text = aligned(&cells, |at| at == 0 || at == 6);
    if more > 0 {
        text += &format!("{more} rows more: --most shows them.\n");
    }
    text + "\n" + &notes(decisions)
}

fn cells(one: &Decided) -> [String; 7] {
    // What bounds of logarithms are as good as none.
    let is_known = one.at_least.zip(one.at_most).is_some_and(|(least, most)| most / least < 50.0);
    let times = |gain: Option<f64>| match gain.filter(|_| is_known) {
        Some(gain) => format!("{gain:.2} x"),
        None => "-".into(),
    };
    let because = match one.because.as_str() {
        "fine" => "no slower",
        "harm" => "slower",
        "pinned" => "told to be done",
        _ => "not known yet",
    };
    let doubt = if one.is_doubted { ", in doubt" } else { "" };
    [
        one.of.clone(),
        format!("{:.0} %", 100.0 * one.split),
        times(one.gain),
        times(one.at_least),
        times(one.at_most),
        format!("{:.0}", one.weight),
        format!("{because}{doubt}"),
    ]
}

fn notes(decisions: &Decisions) -> String {
    let transfers = decisions.transfers;
    let mut text = format!(
        "How many times faster connections are done if they are split; bounds hold together at all times but for one in twenty.\n\
         A subscriber keeps its lot for {} s. {} connections were compared, {} came before anything could be.\n",
        decisions.slot_s, transfers.counted, transfers.learned
    );
    if decisions.is_dry_run {
        text += "This is a dry run: `policy.holdout` says what is done.\n";
    }
    for (count, what) in [
        (transfers.lost, "connections were not heard of, as too many ended at one time"),
        (transfers.full, "connections were of more subscribers than can be told apart at one time"),
    ] {
        if count > 0 {
            text += &format!("{count} {what}.\n");
        }
    }
    text
}
