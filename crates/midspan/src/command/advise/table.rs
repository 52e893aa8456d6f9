//! Advice as people and programs read it.

use std::fmt;

use midspan_advise::{Advice, Candidate, Compared, Expected, Figures, Gain, Recommendation};
use midspan_scenario::Direction;
use midspan_units::{Factor, Share};
use serde::Serialize;
use serde::ser::SerializeStruct;

use super::given::Given;
use crate::command::units;

/// All that is told.
pub(super) struct AdviceTable<'a> {
    pub(super) given: &'a Given,
    pub(super) advice: &'a Advice,
    pub(super) seeds: u32,
    /// How many runs gave no number, and why.
    pub(super) broken: Option<(usize, &'a str)>,
}

impl Serialize for AdviceTable<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("AdviceTable", 8)?;
        object.serialize_field("figures", &self.given.figures)?;
        object.serialize_field("measured", &self.given.measured)?;
        object.serialize_field("notes", &self.given.known.notes)?;
        object.serialize_field("settings", &self.given.tried)?;
        object.serialize_field("seeds", &self.seeds)?;
        object.serialize_field("broken_runs", &self.broken.map_or(0, |(count, _)| count))?;
        object.serialize_field("advice", self.advice)?;
        object.serialize_field("prior", &self.prior())?;
        object.end()
    }
}

impl fmt::Display for AdviceTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Advice { best, expected, compared, .. } = self.advice;
        writeln!(f, "{}\n", self.verdict())?;
        writeln!(f, "Path: {}.", path(&self.given.figures))?;
        for note in &self.given.known.notes {
            writeln!(f, "Measured: {note}.")?;
        }
        writeln!(f, "\nExpected with the relay {}:\n", place_of(best))?;
        table(f, &expected_rows(expected))?;
        writeln!(f, "\nCompared, times faster than without a relay:\n")?;
        table(f, &compared_rows(expected, compared, best))?;
        let choosing = self.seeds / 3;
        writeln!(
            f,
            "\nSimulated, {} seeds: all by the first {choosing}, the chosen one (*) by the other {}. `at least` and `at most` are a 95 % interval \
             for the mean over seeds: what chance on this path does to it. How far the path is from these figures, and the simulator from the \
             path, is not in it.",
            self.seeds,
            self.seeds - choosing
        )?;
        writeln!(
            f,
            "A relay there that decides by itself begins with this, and goes by what it sees: `[decide] prior = \"{}\"`.",
            self.prior()
        )?;
        match self.broken {
            None => Ok(()),
            Some((count, why)) => {
                writeln!(f, "Left out: {count} simulations that did not come to their end ({why}).")
            }
        }
    }
}

impl AdviceTable<'_> {
    /// What a relay may expect before it has seen anything, within what it takes.
    fn prior(&self) -> Factor {
        let gain = self.advice.gain.mean.clamp(0.1, 10.0);
        // Two digits, as the interval has no more to say.
        Factor::new((gain * 100.0).round() / 100.0)
    }

    /// What to do, in a sentence.
    fn verdict(&self) -> String {
        let Advice { verdict, best, gain, expected, .. } = self.advice;
        let slowest = expected.iter().min_by(|a, b| a.gain.mean.total_cmp(&b.gain.mean));
        let slowest = slowest.map_or(String::new(), |one| {
            format!("{} {}", self.flows(&one.flow), factor(&one.gain))
        });
        match verdict {
            Recommendation::Split => {
                format!("Split {}: expect flows to be {} as fast.", place_of(best), factor(gain))
            }
            Recommendation::Harms => format!(
                "Do not split: flows would get slower. The best place compared is {}, with {slowest} as fast.",
                place_of(best)
            ),
            Recommendation::NoGain => format!(
                "Do not split: it makes no difference. The best place compared is {}, with flows {} as fast.",
                place_of(best),
                factor(gain)
            ),
            Recommendation::Unclear => format!(
                "Not clear: chance on this path is too large for {} seeds; give more (--seeds). The best place compared is {}, with flows {} as \
                 fast, {slowest}.",
                self.seeds,
                place_of(best),
                factor(gain)
            ),
        }
    }

    fn flows(&self, label: &str) -> String {
        match self.given.figures.flows {
            midspan_advise::Flows::Sizes(_) => format!("flows of {label}"),
            midspan_advise::Flows::Times(_) => format!("flows over {label}"),
        }
    }
}

fn place_of(candidate: &Candidate) -> String {
    let Candidate { place, control, buffer } = candidate;
    format!("{place} from the UE, {control} towards it, a buffer of {buffer}")
}

/// `3.10 x (2.90 to 3.32)`
fn factor(gain: &Gain) -> String {
    match gain.lower.zip(gain.upper) {
        Some((lower, upper)) => {
            format!("{} x ({} to {})", times(gain.mean), times(lower), times(upper))
        }
        None => format!("{} x", times(gain.mean)),
    }
}

/// Three digits.
fn times(factor: f64) -> String {
    let digits = match factor {
        0.0..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    format!("{factor:.digits$}")
}

fn path(figures: &Figures) -> String {
    let Figures { rtt, radio_rtt, rate, loss, late, late_by, direction, .. } = figures;
    let mut words = vec![
        match direction {
            Direction::Upload => "uploads".to_owned(),
            Direction::Download => "downloads".to_owned(),
        },
        match radio_rtt {
            Some(radio) => format!("round trip {rtt}, {radio} of it radio"),
            None => format!("round trip {rtt}"),
        },
        rate.to_string(),
    ];
    words.extend((*loss > Share::ZERO).then(|| format!("{loss} lost")));
    words.extend((*late > Share::ZERO).then(|| format!("{late} late by {late_by}")));
    words.push(format!("{} at the server", figures.server_control));
    words.join(", ")
}

fn expected_rows(expected: &[Expected]) -> Vec<Vec<String>> {
    let headings = ["flows", "without", "with", "gain", "at least", "at most"];
    let rate = |bps: f64| format!("{}/s", units::rate(bps / 8.0));
    let bound =
        |bound: Option<f64>| bound.map_or("-".into(), |bound| format!("{} x", times(bound)));
    let row = |one: &Expected| {
        vec![
            one.flow.clone(),
            rate(one.without_bps),
            rate(one.with_bps),
            format!("{} x", times(one.gain.mean)),
            bound(one.gain.lower),
            bound(one.gain.upper),
        ]
    };
    let headings = headings.map(str::to_owned).to_vec();
    std::iter::once(headings).chain(expected.iter().map(row)).collect()
}

fn compared_rows(
    expected: &[Expected],
    compared: &[Compared],
    best: &Candidate,
) -> Vec<Vec<String>> {
    let headings = ["from the UE", "control", "buffer"].map(str::to_owned).into_iter();
    let headings = headings.chain(expected.iter().map(|one| one.flow.clone())).collect();
    let row = |one: &Compared| {
        let Candidate { place, control, buffer } = &one.candidate;
        let star = if one.candidate == *best { "* " } else { "" };
        let words = [format!("{star}{place}"), control.clone(), buffer.to_string()];
        words
            .into_iter()
            .chain(one.gains.iter().map(|gain| format!("{} x", times(*gain))))
            .collect()
    };
    std::iter::once(headings).chain(compared.iter().map(row)).collect()
}

/// Aligned to the right.
fn table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))
        .collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        writeln!(f, "{}", cells.collect::<Vec<_>>().join("  "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_have_three_digits() {
        assert_eq!([0.034, 1.0, 12.345, 234.5].map(times), ["0.03", "1.00", "12.3", "234"]);
        let gain = Gain { mean: 2.0, lower: Some(1.5), upper: Some(2.6) };
        assert_eq!(factor(&gain), "2.00 x (1.50 to 2.60)");
        assert_eq!(factor(&Gain { lower: None, ..gain }), "2.00 x");
    }
}
